"""What the names of dims say of the sizes of a session's inputs: one name stands for one size (ONNX IR, "Static tensor shapes")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mnnx.errors import InputError
from mnnx.schema.dim_names import names_in, size_of
from mnnx.schema.model import Dim


class SharedDims:
    """The names of dims that several inputs have, and those that are arithmetic on one other: 2*N. (A sum of two, as of keys that there
    were and that come, says less: masks with such a dim are broadcast, too.)

    inputs: by name the dims of each; None where not even the rank is known.
    """

    def __init__(self, inputs: Mapping[str, Sequence[Dim] | None]):
        places: dict[str, list[tuple[str, int]]] = {}
        for name, dims in inputs.items():
            for axis, dim in enumerate(dims or ()):
                if isinstance(dim, str):
                    places.setdefault(dim, []).append((name, axis))
        self._computed = {dim: where for dim, where in places.items() if len(names_in(dim) - {dim}) == 1 and names_in(dim) <= places.keys()}
        asked = {name for dim in self._computed for name in names_in(dim)}
        self._places = {dim: where for dim, where in places.items() if len(where) > 1 or dim in asked or dim in self._computed}

    def check(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Raises InputError where the shapes of inputs (-1: not known yet) give one name two sizes, or a computed one another."""
        if not self._places:
            return
        sizes: dict[str, int] = {}
        for dim, found in self._found(shapes):
            first, sizes[dim] = found[0]
            for name, size in found:
                if size != sizes[dim]:
                    raise InputError(f"the dim {dim!r} is {sizes[dim]} in the input {first!r} and {size} in {name!r}: it has one size")
        for dim in self._computed.keys() & sizes.keys():
            wanted = size_of(dim, {name: size for name, size in sizes.items() if name != dim})
            if wanted is not None and wanted != sizes[dim]:
                name = self._computed[dim][0][0]
                given = ", ".join(f"{one} is {sizes[one]}" for one in sorted(names_in(dim)))
                raise InputError(f"the dim {dim!r} of the input {name!r} must be {wanted}, for {given}; it is {sizes[dim]}")

    def _found(self, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
        """The sizes of each dim, with the inputs that have them."""
        for dim, where in self._places.items():
            known = [(name, shapes[name][axis]) for name, axis in where if len(shapes.get(name, ())) > axis]
            if known := [(name, size) for name, size in known if size >= 0]:
                yield dim, known


def sizes_of(inputs: Mapping[str, Sequence[Dim] | None], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of the inputs' named dims, as far as shapes of some inputs settle them."""
    return {
        dim: size
        for name, shape in shapes.items()
        for dim, size in zip(inputs.get(name) or (), shape, strict=False)
        if isinstance(dim, str) and size >= 0
    }
