"""What becomes of dims that are called by arithmetic on the names of others, where these are fixed or renamed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from mnnx.errors import ConversionError
from mnnx.schema.dim_names import argument_of, extent_of, is_arithmetic, names_in, size_of
from mnnx.schema.model import Dim, Range, range_text

#: Stands for the end of a range without one: no dim is larger.
_NO_LIMIT = 2**63


def computed_dim(text: str, became: Mapping[str, Dim], names: Collection[str]) -> Dim:
    """What becomes of a dim that is called by arithmetic on the `names` of other dims, where some of these `became` others, or sizes; the
    name itself where it is no such thing."""
    found = names_in(text)
    if text.isidentifier() or not found <= set(names) or found.isdisjoint(became) or not is_arithmetic(text):
        return text
    sizes = {name: dim for name in found if isinstance(dim := became.get(name), int)}
    if found - sizes.keys():
        return re.sub(r"[A-Za-z_]\w*", lambda match: _operand(became.get(match[0], match[0])), text)
    size = size_of(text, sizes)
    return text if size is None or size < 0 else size


def solved_dims(became: Mapping[str, Dim], names: Collection[str]) -> dict[str, int]:
    """The sizes of names that follow from those of arithmetic on them: N is 3 where 2*N `became` 6.

    Raises ConversionError where no size of the name would do, or two arithmetics want two.
    """
    found: dict[str, tuple[int, str]] = {}
    for text, size in became.items():
        if text.isidentifier() or not isinstance(size, int) or (solution := argument_of(text, size)) is None:
            continue
        name, number = solution
        if name not in names or name in became:
            continue
        if number is None:
            raise ConversionError(f"the dim {text!r} can't be {size}: no size of {name!r} makes it so")
        first, by = found.setdefault(name, (number, text))
        if first != number:
            raise ConversionError(
                f"the dim {text!r} can't be {size}, which makes {name!r} {number}: {by!r} is {became[by]}, which makes it {first}"
            )
    return {name: number for name, (number, _) in found.items()}


def check_extents(wanted: Mapping[str, Dim | Range]) -> None:
    """Raises ConversionError where sizes or ranges that are `wanted` of names and of arithmetic on these don't go with each other.

    (A dim that is the sum of others may also be 1: masks are broadcast along it.)
    """
    ends = {name: extent for name, dim in wanted.items() if (extent := _extent(dim)) is not None}
    for text, (smallest, largest) in ends.items():
        names = names_in(text) - {text}
        computed = extent_of(text, ends) if names and is_arithmetic(text) else None
        if computed is None or (largest >= computed[0] and smallest <= computed[1]) or (len(names) > 1 and (smallest, largest) == (1, 1)):
            continue
        given = ", ".join(f"{name!r} is {_text(ends[name])}" for name in sorted(names))
        raise ConversionError(f"the dim {text!r} can't be {_text((smallest, largest))}: {given}, which makes it {_text(computed)}")


def _extent(dim: Dim | Range) -> tuple[int, int] | None:
    match dim:
        case int():
            return dim, dim
        case (smallest, largest):
            return smallest, _NO_LIMIT if largest is None else largest
    return None


def _text(ends: tuple[int, int]) -> str:
    return f"{ends[0]}" if ends[0] == ends[1] else range_text(ends[0], None if ends[1] >= _NO_LIMIT else ends[1])


def _operand(dim: Dim) -> str:
    return f"{dim}" if isinstance(dim, int) or dim.isidentifier() else f"({dim})"
