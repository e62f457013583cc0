"""Where operands of attention lie before Transposes, and before their heads were repeated for those of q (grouped queries)."""

from __future__ import annotations

from mnnx.converter.graph import Value
from mnnx.converter.passes.base import made_by
from mnnx.schema.ops.shape import Expand, Reshape, Transpose, Unsqueeze
from mnnx.schema.records import Row

Perm = tuple[int, ...]


class Repeated(Row):
    """A tensor whose heads, dim -3 once its dims are in the order of `perm`, were repeated so many times one by one."""

    value: Value
    perm: Perm
    times: int


def unmoved(value: Value, swapped: bool) -> tuple[Value, Perm]:
    """What a Transpose made a value of, and its perm, where rows stay dense: their dim is the last one, or where `swapped`, the last but
    one, too."""
    node = made_by(value, Transpose)
    if node is None or not _allowed(node.op.perm, swapped):
        return value, ()
    return node.inputs[0], node.op.perm


def repeated_heads(value: Value, perm: Perm, swapped: bool, through_transposes: bool = True) -> Repeated | None:
    """What a value [..., H * times, L, D], of which `perm` is taken, was made of by repeating heads: Unsqueeze, Expand, Reshape."""
    reshape = made_by(value, Reshape)
    expand = made_by(reshape.inputs[0], Expand) if reshape is not None else None
    single = made_by(expand.inputs[0], Unsqueeze, Reshape) if expand is not None else None
    if single is None:
        return None
    x = single.inputs[0]
    shapes = [part.shape for part in (x, expand.inputs[0], reshape.inputs[0], value)]
    if any(shape is None or None in shape for shape in shapes) or len(shapes[0]) < 3:
        return None
    (*outer, heads, length, size), *others = shapes
    times = others[1][-3] if len(others[1]) == len(outer) + 4 else None
    if not isinstance(times, int) or not isinstance(heads, int):
        return None
    stages = [(heads, 1), (heads, times), (heads * times,)]
    if [tuple(shape) for shape in others] != [(*outer, *stage, length, size) for stage in stages]:
        return None
    if perm and perm[-3] != len(perm) - 3:
        return None
    moved = made_by(x, Transpose) if through_transposes else None
    if moved is not None and moved.op.perm:
        merged = tuple(moved.op.perm[axis] for axis in perm or range(x.rank))
        if _allowed(merged, swapped):
            return Repeated(moved.inputs[0], merged, times)
    return Repeated(x, perm, times)


def keeps_rows(perm: Perm | None) -> bool:
    return bool(perm) and perm[-1] == len(perm) - 1


def _allowed(perm: Perm | None, swapped: bool) -> bool:
    return keeps_rows(perm) or (swapped and bool(perm) and perm[-2] == len(perm) - 1)
