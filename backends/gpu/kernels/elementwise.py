"""One kernel per elementwise expression."""

from __future__ import annotations

from mnnx.backends.gpu.constants import BROADCAST_DIMS
from mnnx.backends.gpu.expressions import COMPUTES, c_expression
from mnnx.backends.gpu.kernel import kernel_factory
from mnnx.backends.gpu.kernels.elementwise_variants import variants
from mnnx.backends.gpu.source import Source, reads, writes
from mnnx.backends.gpu.wide import LIBRARY

#: Storages that only these kernels know, as the storage and width that the languages know.
_PACKED = {"long": ("int", 2), "ulong": ("int", 2), "bfloat": ("ushort", 1)}
#: What a value of a storage is when it has been loaded.
_LOADED = {"half": "float", "bfloat": "float", "long": "int2", "char": "int", "uchar": "int", "short": "int", "ushort": "int"}
#: How a value of one type becomes one of another.
_CONVERSIONS = {
    ("float", "int"): "to_int({})",
    ("float", "uint"): "u_of_float({})",
    ("float", "int2"): "l_of_float({})",
    ("float", "bool"): "({} != 0.0f)",
    ("int", "float"): "to_float({})",
    ("int", "uint"): "to_uint({})",
    ("int", "int2"): "l_of({})",
    ("int", "bool"): "({} != 0)",
    ("uint", "float"): "to_float({})",
    ("uint", "int"): "to_int({})",
    ("uint", "int2"): "l_of_uint({})",
    ("uint", "bool"): "({} != 0u)",
    ("int2", "float"): "l_to_float({})",
    ("int2", "int"): "({}).x",
    ("int2", "uint"): "to_uint(({}).x)",
    ("int2", "bool"): "l_ne({}, pair(0, 0))",
    ("ulong", "float"): "ul_to_float({})",
    ("bool", "float"): "({} ? 1.0f : 0.0f)",
    ("bool", "int"): "({} ? 1 : 0)",
    ("bool", "uint"): "({} ? 1u : 0u)",
    ("bool", "int2"): "l_of({} ? 1 : 0)",
}


@kernel_factory("elementwise", variants)
def elementwise(
    text: str, letters: str, attributes: tuple[str, ...], compute: str, inputs: tuple[str, ...], result: str, strided: bool
) -> Source:
    """y[i] = expression of the inputs' elements.

    inputs, result: storages; int64, uint64 and bfloat16 are "long", "ulong" and "bfloat". Params: total; then per input the elements from
    one to the next (strided: from one index of each of BROADCAST_DIMS dims to the next, outermost first, after the sizes of all but the
    first of these); then the attributes.
    """
    names = {name: (f"attribute_{name}", False) for name in attributes}
    kind = "ulong" if compute == "uint64" else COMPUTES[compute][0]
    loads = []
    for letter, storage in zip(letters, inputs, strict=True):
        boolean = storage == "bool"
        place = " + ".join(f"j{d} * {letter}{d}" for d in range(BROADCAST_DIMS)) if strided else f"i * {letter}0"
        loaded = f"bfloat_to_float(load_{letter}({place}))" if storage == "bfloat" else f"load_{letter}({place})"
        made = "bool" if boolean else kind
        loads.append(f"    {_c_type(made)} v_{letter} = {_converted(loaded, _LOADED.get(storage, storage), made)};")
        names[letter] = (f"v_{letter}", boolean)
    value, boolean = c_expression(text, compute, names)
    value = _converted(value, "bool" if boolean else kind, _LOADED.get(result, result))
    sizes = [f"n{d}" for d in range(1, BROADCAST_DIMS)] if strided else []
    steps = [f"{letter}{d}" for letter in letters for d in range(BROADCAST_DIMS if strided else 1)]
    split = "".join(
        f"    int j{d} = rest % n{d}; rest /= n{d};\n" if d else "    int j0 = rest;\n" for d in reversed(range(BROADCAST_DIMS))
    )
    body = f"""\
    int i = gid(0);
    if (i >= total) return;
{f"    int rest = i;{chr(10)}{split}" if strided else ""}{chr(10).join(loads)}
    store_y(i, {f"bfloat_of_float({value})" if result == "bfloat" else value});"""
    params = ["int total", *(f"int {name}" for name in [*sizes, *steps]), *(f"float attribute_{name}" for name in attributes)]
    buffers = [*(reads(letter, *_packed(storage)) for letter, storage in zip(letters, inputs, strict=True)), writes("y", *_packed(result))]
    return Source(tuple(buffers), ", ".join(params), body, LIBRARY.used_by(body))


def _packed(storage: str) -> tuple[str, int]:
    return _PACKED.get(storage, (storage, 1))


def _c_type(kind: str) -> str:
    return "int2" if kind == "ulong" else kind


def _converted(value: str, source: str, target: str) -> str:
    """C of a value of one type as another: float, int, uint, bool, int2 (an int64), ulong (a uint64)."""
    if _c_type(source) == _c_type(target):
        return value
    found = _CONVERSIONS.get((source, target)) or _CONVERSIONS[_c_type(source), _c_type(target)]
    return found.format(value)
