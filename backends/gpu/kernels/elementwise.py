"""One kernel per elementwise expression."""

from __future__ import annotations

from mnnx.backends.gpu.expressions import c_expression
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.elementwise_variants import variants
from mnnx.backends.gpu.source import Source, reads, writes

#: Groups of dims in which operands may broadcast.
DIMS = 4


@kernel_factory("elementwise", variants)
def elementwise(
    text: str, letters: str, attributes: tuple[str, ...], compute: str, inputs: tuple[str, ...], result: str, strided: bool
) -> Source:
    """y[i] = expression of the inputs' elements.

    inputs, result: storages. Params: total; then per input the elements from one to the next (strided: from one index of each of DIMS
    dims to the next, outermost first, after the sizes of the last DIMS - 1 of these); then the attributes.
    """
    names = {name: (f"attribute_{name}", False) for name in attributes}
    loads = []
    for letter, storage in zip(letters, inputs, strict=True):
        boolean = storage == "bool"
        kind = "bool" if boolean else {"float32": "float", "int32": "int"}[compute]
        if strided:
            place = " + ".join(f"j{d} * {letter}{d}" for d in range(DIMS))
        else:
            place = f"i * {letter}0"
        loads.append(f"    {kind} v_{letter} = load_{letter}({place});")
        names[letter] = (f"v_{letter}", boolean)
    value, _ = c_expression(text, compute, names)
    sizes = [f"n{d}" for d in range(1, DIMS)] if strided else []
    steps = [f"{letter}{d}" for letter in letters for d in range(DIMS if strided else 1)]
    split = "".join(f"    int j{d} = rest % n{d}; rest /= n{d};\n" if d else "    int j0 = rest;\n" for d in reversed(range(DIMS)))
    body = f"""\
    int i = gid(0);
    if (i >= total) return;
{f"    int rest = i;{chr(10)}{split}" if strided else ""}{chr(10).join(loads)}
    store_y(i, {value});"""
    params = ["int total", *(f"int {name}" for name in [*sizes, *steps]), *(f"float attribute_{name}" for name in attributes)]
    buffers = [*(reads(letter, storage) for letter, storage in zip(letters, inputs, strict=True)), writes("y", result)]
    return Source(tuple(buffers), ", ".join(params), body)
