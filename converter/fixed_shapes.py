"""Fixes dims of a model's inputs before it is converted: by input (`input_shapes`) or by the name that dims have (`dims`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from mnnx.errors import ConversionError
from mnnx.schema.model import Dim, dims_text

Shape = tuple[Dim, ...]

#: What leaves a dim of an input as the model has it.
_AS_IT_IS = (None, -1, "?")
#: What ONNX can hold.
_LARGEST = 2**63 - 1


class FixedShapes:
    """What a caller wants of the shapes of inputs, checked as far as that can be done without the model.

    input_shapes: input name → for each dim a size, a name for it, or None, -1 or "?" where it stays as it is. dims: the name of a
    dim → its size. Raises ConversionError for what is neither.
    """

    def __init__(self, input_shapes: Mapping[str, Sequence[Dim]] | None = None, dims: Mapping[str, int] | None = None):
        self.shapes = {name: _checked_shape(name, shape) for name, shape in _mapping("input_shapes", input_shapes).items()}
        self.sizes = {name: _checked_size(f"the dim {name!r}", size) for name, size in _mapping("dims", dims).items()}

    def __bool__(self) -> bool:
        return bool(self.shapes or self.sizes)

    def settle(self, inputs: Mapping[str, Shape | None]) -> tuple[dict[str, Shape | None], dict[str, Dim]]:
        """The inputs' shapes as they shall be, and what becomes of the names of dims, wherever the model uses them.

        All names change at once: what the caller calls M is not the model's own M, which may get another name. Sizes go to the names
        after that. inputs: the model's own shapes by name; None where not even the rank is known. Raises ConversionError for a name that
        the model doesn't have, another rank, another size of a fixed dim, or two sizes for one name.
        """
        renamed: dict[str, Dim] = {}
        for name, shape in self.shapes.items():
            if name not in inputs:
                found = ", ".join(f"{known!r} {dims_text(dims)}" for known, dims in inputs.items())
                raise ConversionError(f"the model has no input {name!r}; its inputs are {found or 'none'}")
            _note(name, inputs[name], shape, renamed)
        given = {new for name, shape in self.shapes.items() for new in _new_names(inputs[name], shape)}
        names = given | {dim for shape in inputs.values() for dim in shape or () if isinstance(dim, str)}
        for name, size in self.sizes.items():
            if name not in names:
                raise ConversionError(f"no input has a dim {name!r}; named dims are {', '.join(map(repr, sorted(names))) or 'none'}")
            if name not in given and renamed.get(name, size) != size:
                raise ConversionError(f"the dim {name!r} can't be {size}: the input shapes make it {renamed[name]!r}")
        became = self.sizes | {old: self.sizes.get(new, new) for old, new in renamed.items()}

        def settled(name: str, declared: Shape | None) -> Shape | None:
            given = self.shapes.get(name)
            if declared is None:
                return None if given is None else tuple(None if new in _AS_IT_IS else self.sizes.get(new, new) for new in given)
            pairs = zip(declared, declared if given is None else given, strict=True)
            return tuple(became.get(old, old) if new in _AS_IT_IS or new == old else self.sizes.get(new, new) for old, new in pairs)

        return {name: settled(name, shape) for name, shape in inputs.items()}, became


def _note(name: str, declared: Shape | None, wanted: Shape, renamed: dict[str, Dim]) -> None:
    """Notes in `renamed` what becomes of the names in one input's shape."""
    if declared is None:
        return
    where = f"the input {name!r} is {dims_text(declared)}"
    if len(wanted) != len(declared):
        raise ConversionError(f"{where}, of rank {len(declared)}; the shape given has rank {len(wanted)}: {dims_text(wanted)}")
    for old, new in zip(declared, wanted, strict=True):
        if new in _AS_IT_IS or new == old:
            continue
        if isinstance(old, int):
            raise ConversionError(f"{where}; its dim {old} is fixed, and can't be {new!r}")
        if old is not None and renamed.setdefault(old, new) != new:
            raise ConversionError(f"{where}; its dim {old!r} can't be both {renamed[old]!r} and {new!r}")


def _new_names(declared: Shape | None, wanted: Shape) -> set[str]:
    """The names that a caller gives to dims of one input."""
    known = (None,) * len(wanted) if declared is None else declared
    return {new for old, new in zip(known, wanted, strict=True) if isinstance(new, str) and new not in _AS_IT_IS and new != old}


def _mapping(what: str, given: Any) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ConversionError(f"{what} must be a dict with names as its keys, not {given!r}")
    return given


def _checked_shape(name: str, shape: Any) -> Shape:
    if isinstance(shape, str | bytes) or not isinstance(shape, Sequence):
        raise ConversionError(f"the shape of the input {name!r} must be a list of sizes, not {shape!r}")
    return tuple(dim if dim in _AS_IT_IS or _is_name(dim) else _checked_size(f"a dim of the input {name!r}", dim) for dim in shape)


def _is_name(dim: Any) -> bool:
    """Whether this may name a dim: text that isn't a number."""
    return isinstance(dim, str) and re.fullmatch(r"\s*[-+]?[\d.]*\s*", dim) is None


def _checked_size(what: str, size: Any) -> int:
    if not isinstance(size, Integral) or isinstance(size, bool) or not 1 <= size <= _LARGEST:
        raise ConversionError(f"{what} must be a whole number from 1 to 2**63 - 1, not {size!r}")
    return int(size)
