"""The dims of what is reshaped, expanded, filled, resized, counted or cut by computed numbers, as far as those are known to be dims."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mnnx.converter.graph import Node
from mnnx.converter.shape_values import DimOf, elements
from mnnx.converter.sizes import size_of_result
from mnnx.schema.model import Dim
from mnnx.schema.ops.generation import ConstantOfShape, Range
from mnnx.schema.ops.resize import Resize
from mnnx.schema.ops.shape import Expand, Reshape
from mnnx.schema.ops.slicing import Slice

#: What exporters write for the end of a dim, or more than that: tf2onnx this, others 2**31 - 1 and 2**63 - 1.
THE_END = 10**9


def dims_of_result(node: Node) -> list[Dim] | None:
    """The dims of a node's first result, None for those that aren't known; None where not even their number is."""
    if isinstance(node.op, Resize):
        x = node.inputs[0]
        return None if x is None or x.rank is None else [size_of_result(node, place) for place in range(x.rank)]
    if not isinstance(node.op, (ConstantOfShape, Expand, Range, Reshape, Slice)) or any(value is None for value in node.inputs[:2]):
        return None
    if not node.inputs:
        return None
    if isinstance(node.op, (Range, Slice)):
        return _counted(node) if isinstance(node.op, Range) else _cut(node)
    found, x = elements(node.inputs[-1]), node.inputs[0].shape
    if found is None or found.is_scalar:
        return None
    items = [item.name if isinstance(item, DimOf) else item for item in found.items]
    if isinstance(node.op, Reshape):
        items = _reshaped(x, items, node.op.allowzero)
    items = [None if isinstance(item, int) and item < 0 else item for item in items]  # a run says that it is no size
    if isinstance(node.op, Expand):
        return None if x is None else broadcast([x, items])
    return items


def _counted(node: Node) -> list[Dim] | None:
    """The dims of a Range from 0 in steps of 1."""
    start, limit, step = (elements(value) for value in node.inputs)
    counts = start == step._replace(items=(0,)) and step.items == (1,) if start and step else False
    count = limit.items[0] if counts and limit and len(limit.items) == 1 else None
    return [count.name] if isinstance(count, DimOf) else None


def _cut(node: Node) -> list[Dim] | None:
    """The dims of a Slice: those along which it doesn't cut, and those that it takes whole."""
    x, (starts, ends, axes, steps) = node.inputs[0], (*(elements(value) for value in node.inputs[1:]), None, None)[:4]
    if x is None or x.shape is None or starts is None or ends is None or (len(node.inputs) > 4 and steps is None):
        return None
    places = range(len(ends.items)) if len(node.inputs) < 4 else axes.items if axes else (None,)
    if not all(isinstance(place, int) and -x.rank <= place < x.rank for place in places):
        return None
    if any(len(given.items) != len(places) for given in (starts, ends, steps) if given is not None):
        return None
    dims: list[Dim] = list(x.shape)
    for i, place in enumerate(places):
        end, step = ends.items[i], 1 if steps is None else steps.items[i]
        ends_there = end.is_dim_of(x, place % x.rank) if isinstance(end, DimOf) else end is not None and end >= THE_END
        dims[place] = x.shape[place] if ends_there and starts.items[i] == 0 and step == 1 else None
    return dims


def _reshaped(x: tuple[Dim, ...] | None, items: list[Dim], allowzero: bool) -> list[Dim]:
    """The dims of a Reshape of dims `x` to elements of which None isn't known."""
    places = [place for place, item in enumerate(items) if item == 0 and not allowzero]
    for place in places:
        items[place] = None if x is None or place >= len(x) else x[place]
    if items.count(-1) == 1:
        items[items.index(-1)] = _what_remains(x, [item for item in items if item != -1])
    return items


def _what_remains(x: tuple[Dim, ...] | None, others: list[Dim]) -> Dim:
    """The dim that makes, with `others`, a tensor of as many elements as one of the dims `x`; None where that isn't known."""
    if x is None or None in (*x, *others):
        return None
    open_dims = [dim for dim in x if isinstance(dim, str)]
    for dim in others:
        if isinstance(dim, str):
            if dim not in open_dims:
                return None
            open_dims.remove(dim)
    has, takes = (math.prod(dim for dim in dims if isinstance(dim, int)) for dims in (x, others))
    if not takes or has % takes:
        return None
    if not open_dims:
        return has // takes
    return open_dims[0] if len(open_dims) == 1 and has == takes else None


def broadcast(shapes: Sequence[Sequence[Dim]]) -> list[Dim]:
    """The dims that tensors broadcast to, None where names differ: either of two dims may be 1."""
    dims: list[Dim] = []
    for place in range(-max(map(len, shapes)), 0):
        found = {shape[place] for shape in shapes if len(shape) >= -place} - {1}
        sizes = [dim for dim in found if isinstance(dim, int)]
        dims.append(sizes[0] if sizes else next(iter(found), 1) if len(found) < 2 else None)
    return dims
