"""Fixes dims of a model's inputs before it is converted, or says in which range they lie: by input (`input_shapes`) or by the name that
dims have (`dims`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from mnnx.converter.computed_dims import check_extents, computed_dim, solved_dims
from mnnx.errors import ConversionError
from mnnx.schema.model import Dim, Range, dims_text, range_text

Shape = tuple[Dim, ...]

#: What leaves a dim of an input as the model has it.
_AS_IT_IS = (None, -1, "?")
#: What ONNX can hold.
_LARGEST = 2**63 - 1
#: What errors say of what is allowed for the name of a dim, and in a shape.
_SIZE = "a whole number from 1 to 2**63 - 1, or a range (smallest, largest)"
_PLACE = f'{_SIZE}, or a name, or None, -1 or "?" where it stays as it is'


class FixedShapes:
    """What a caller wants of the shapes of inputs, checked as far as that can be done without the model.

    input_shapes: input name → for each dim a size, a range (smallest, largest), a name for it, or None, -1 or "?" where it stays as it
    is. dims: the name of a dim → its size or its range. Raises ConversionError for what is none of these.
    """

    def __init__(self, input_shapes: Mapping[str, Sequence[Dim | Range]] | None = None, dims: Mapping[str, int | Range] | None = None):
        shapes = {name: _checked_shape(name, shape) for name, shape in _mapping("input_shapes", input_shapes).items()}
        sizes = {name: _checked_dim(f"the dim {name!r}", size) for name, size in _mapping("dims", dims).items()}
        self.shapes = {name: tuple(None if _is_range(dim) else dim for dim in shape) for name, shape in shapes.items()}
        self.sizes = {name: size for name, size in sizes.items() if not _is_range(size)}
        self._places = {(n, axis): dim for n, shape in shapes.items() for axis, dim in enumerate(shape) if _is_range(dim)}
        self._named = {name: size for name, size in sizes.items() if _is_range(size)}

    def __bool__(self) -> bool:
        return bool(self.shapes or self.sizes or self._named)

    def settle(self, inputs: Mapping[str, Shape | None]) -> Settled:
        """The inputs' shapes as they shall be.

        All names change at once: what the caller calls M is not the model's own M, which may get another name. Sizes and ranges go to
        the names after that; a dim without a name gets one for its range. inputs: the model's own shapes by name; None where not even the
        rank is known. Raises ConversionError for a name that the model doesn't have, another rank, another size of a fixed dim, two
        sizes or ranges for one name, or such as don't go with each other where one name is arithmetic on others.
        """
        renamed: dict[str, Dim] = {}
        for name, shape in self.shapes.items():
            if name not in inputs:
                found = ", ".join(f"{known!r} {dims_text(dims)}" for known, dims in inputs.items())
                raise ConversionError(f"the model has no input {name!r}; its inputs are {found or 'none'}")
            _note(name, inputs[name], shape, renamed)
        given = {new for name, shape in self.shapes.items() for new in _new_names(inputs[name], shape)}
        names = given | {dim for shape in inputs.values() for dim in shape or () if isinstance(dim, str)}
        for name in [*self.sizes, *self._named]:
            if name not in names:
                raise ConversionError(f"no input has a dim {name!r}; named dims are {', '.join(map(repr, sorted(names))) or 'none'}")
        for name, size in self.sizes.items():
            if name not in given and renamed.get(name, size) != size:
                raise ConversionError(f"the dim {name!r} can't be {size}: the input shapes make it {renamed[name]!r}")
        sizes = self._sizes(renamed, given, names)
        became = self.sizes | {old: sizes.get(new, new) for old, new in renamed.items()}
        check_extents({name: wanted for name, wanted in (self._named | self.sizes).items() if name in given})
        old_ranges = self._old_ranges(inputs, given)
        check_extents(old_ranges | became)
        became |= solved_dims(became, names)
        check_extents(old_ranges | became)
        became |= {name: new for name in names - given - became.keys() if (new := computed_dim(name, became, names)) != name}

        def settled(name: str, declared: Shape | None) -> Shape | None:
            given = self.shapes.get(name)
            if declared is None:
                return None if given is None else tuple(None if new in _AS_IT_IS else sizes.get(new, new) for new in given)
            pairs = zip(declared, declared if given is None else given, strict=True)
            return tuple(became.get(old, old) if new in _AS_IT_IS or new == old else sizes.get(new, new) for old, new in pairs)

        shapes = {name: settled(name, shape) for name, shape in inputs.items()}
        return Settled(shapes, became, self._ranges(shapes, became, given))

    def _sizes(self, renamed: Mapping[str, Dim], given: set[str], names: set[str]) -> dict[str, Dim]:
        """What becomes of names that the caller gives: those with a size, and those that are arithmetic on such."""
        known = {old: new for old, new in renamed.items() if old not in given} | self.sizes
        return {name: new for name in given if (new := self.sizes.get(name, computed_dim(name, known, names))) != name}

    def _old_ranges(self, inputs: Mapping[str, Shape | None], given: set[str]) -> dict[str, Range]:
        """The ranges of the model's own names."""
        placed = {inputs[name][axis]: wanted for (name, axis), wanted in self._places.items() if inputs[name] is not None}
        return {name: wanted for name, wanted in (placed | self._named).items() if isinstance(name, str) and name not in given}

    def _ranges(self, shapes: dict[str, Shape | None], became: Mapping[str, Dim], given: set[str]) -> dict[str, Range]:
        """The ranges of names; a dim that has a range and no name gets one in `shapes`."""
        ranges: dict[str, Range] = {}

        def add(what: str, dim: Dim, wanted: Range) -> None:
            if isinstance(dim, int):
                raise ConversionError(f"{what} is fixed at {dim}, and can't have the range {range_text(*wanted)}")
            if ranges.setdefault(dim, wanted) != wanted:
                raise ConversionError(f"{what} can't have two ranges, {range_text(*ranges[dim])} and {range_text(*wanted)}")

        for name, wanted in self._named.items():
            add(f"the dim {name!r}", name if name in given else became.get(name, name), wanted)
        for (name, axis), wanted in self._places.items():
            shape = shapes[name]
            if shape[axis] is None:
                shapes[name] = shape = (*shape[:axis], f"{name}.{axis}", *shape[axis + 1 :])
            add(f"dim {axis} of the input {name!r} {dims_text(shape)}", shape[axis], wanted)
        return ranges


@dataclass(frozen=True)
class Settled:
    """Shapes of all inputs, what becomes of the names of dims wherever the model uses them, and the ranges of those that stay open."""

    shapes: dict[str, Shape | None]
    renamed: dict[str, Dim]
    ranges: dict[str, Range]


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
        raise ConversionError(f"the shape of the input {name!r} must be a list of sizes, as (1, 3, 224, 224), not {shape!r}")
    return tuple(dim if _is_open(dim) or _is_name(dim) else _checked_dim(f"a dim of the input {name!r}", dim, _PLACE) for dim in shape)


def _is_open(dim: Any) -> bool:
    return dim is None or (isinstance(dim, str | Integral) and dim in _AS_IT_IS)


def _is_range(dim: Any) -> bool:
    return isinstance(dim, tuple)


def _checked_dim(what: str, dim: Any, allowed: str = _SIZE) -> int | Range:
    if not _is_range(dim):
        tuple_hint = f"; a range is a tuple: {tuple(dim)!r}" if isinstance(dim, list) and len(dim) == 2 else ""
        return _checked_size(what, dim, f"{allowed}, not {dim!r}{tuple_hint}")
    if len(dim) != 2:
        raise ConversionError(f"{what} must be {allowed}, not {dim!r}")
    smallest = _checked_size(f"the smallest size of {what}", dim[0], f"a whole number from 0 to 2**63 - 1, not {dim[0]!r}", least=0)
    largest = dim[1]
    if largest is not None:
        wanted = f"a whole number from 1 to 2**63 - 1, or None for no limit, not {largest!r}"
        largest = _checked_size(f"the largest size of {what}", largest, wanted)
        if smallest > largest:
            raise ConversionError(f"the range of {what} is empty: {range_text(smallest, largest)}")
    return smallest, largest


def _is_name(dim: Any) -> bool:
    """Whether this may name a dim: text that isn't a number."""
    return isinstance(dim, str) and re.fullmatch(r"\s*[-+]?[\d.]*\s*", dim) is None


def _checked_size(what: str, size: Any, wanted: str, least: int = 1) -> int:
    if not isinstance(size, Integral) or isinstance(size, bool) or not least <= size <= _LARGEST:
        raise ConversionError(f"{what} must be {wanted}")
    return int(size)
