"""What becomes of dims that are called by arithmetic on the names of others, where these are fixed or renamed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from mnnx.schema.dim_names import is_arithmetic, names_in, size_of
from mnnx.schema.model import Dim


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


def _operand(dim: Dim) -> str:
    return f"{dim}" if isinstance(dim, int) or dim.isidentifier() else f"({dim})"
