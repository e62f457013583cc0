"""Removes ops that give back their input: Identity (an imported Dropout, too), and what moves, adds, repeats or cuts off nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mnnx.converter.dims_of_results import THE_END
from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Pass
from mnnx.converter.shape_values import ints_at
from mnnx.schema.ops.cast import Cast
from mnnx.schema.ops.shape import Concat, Expand, Flatten, Identity, Reshape, Split, Tile, Transpose
from mnnx.schema.ops.slicing import Pad, Slice

_CANDIDATES = (Identity, Cast, Transpose, Concat, Expand, Flatten, Reshape, Split, Tile, Pad, Slice)


class IdentityElimination(Pass):
    """Removes Identity and Dropout, and Cast, Transpose, Reshape, Slice, Pad, Expand, Tile, Concat and Split that change nothing."""

    name = "identity-elimination"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        kept = []
        for node in graph.nodes:
            if _gives_back_its_input(node) and self._bypass(node, graph):
                counts[node.op.name] += 1
            else:
                kept.append(node)
        graph.nodes = kept

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        if isinstance(node.op, _CANDIDATES):
            gives_back = _gives_back_its_input(node)
            yield "removal", "an output of the graph has to keep its name" if gives_back else "it isn't known to give back its input"

    def _bypass(self, node: Node, graph: Graph) -> bool:
        """Takes the node out; False where it has to stay so that a graph output keeps its name."""
        source, result = node.inputs[0], node.outputs[0]
        if graph.is_output(result):
            if source.producer is None or source.constant is not None or graph.is_output(source):
                return False
            _rename_output(graph, source, result)
        else:
            source.shape = result.shape if source.shape is None else source.shape
            graph.replace_value(result, source)
        node.detach()
        return True


def _rename_output(graph: Graph, source: Value, result: Value) -> None:
    """Lets the producer of `source` make the graph output `result` itself."""
    producer = source.producer
    producer.outputs[producer.outputs.index(source)] = result
    result.producer = producer
    result.dtype = source.dtype if result.dtype is None else result.dtype
    result.shape = source.shape if result.shape is None else result.shape
    graph.replace_value(source, result)


def _gives_back_its_input(node: Node) -> bool:
    op = node.op
    if not node.inputs or node.inputs[0] is None:  # a broken model's node; the op itself says so when it is planned
        return False
    x = node.inputs[0]
    match op:
        case Identity():
            return True
        case Cast():
            return x.dtype is not None and x.dtype == op.to
        case Transpose():
            return bool(op.perm) and op.perm == tuple(range(len(op.perm)))
        case Concat():
            return len(node.inputs) == 1
        case Split():
            return len(node.outputs) == 1
        case Flatten():
            return x.rank == 2 and op.axis in (1, -1)
        case Reshape():
            return _keeps_shape(x, ints_at(node, 1), op.allowzero)
        case Expand():
            return _keeps_size(x, ints_at(node, 1))
        case Tile():
            return x.rank is not None and ints_at(node, 1) == [1] * x.rank
        case Pad():
            return (pads := ints_at(node, 1)) is not None and not any(pads)
        case Slice():
            return _keeps_all(x, node)
    return False


def _keeps_shape(x: Value, wanted: list[int] | None, allowzero: bool) -> bool:
    """Whether a Reshape to `wanted` leaves x as it is."""
    if wanted is None or x.rank != len(wanted):
        return False
    kept = [(size == 0 and not allowzero) or (size > 0 and size == dim) for size, dim in zip(wanted, x.shape, strict=True)]
    if all(kept):
        return True
    if -1 not in wanted or sum(kept) < len(kept) - 1:
        return False
    # What remains for a -1 is the dim itself; where there are no elements to tell it by, only an open one could be meant otherwise.
    others = [dim for size, dim in zip(wanted, x.shape, strict=True) if size != -1]
    remaining = x.shape[wanted.index(-1)]
    return all(isinstance(dim, int) and dim > 0 for dim in others) or (isinstance(remaining, int) and remaining > 0)


def _keeps_size(x: Value, wanted: list[int] | None) -> bool:
    """Whether an Expand to `wanted` leaves x as it is."""
    if wanted is None or x.rank is None or len(wanted) > x.rank:
        return False
    return all(size in (1, dim) for size, dim in zip(wanted, x.shape[x.rank - len(wanted) :], strict=True))


def _keeps_all(x: Value, node: Node) -> bool:
    """Whether a Slice takes all of x."""
    starts, ends, axes, steps = (ints_at(node, place) for place in (1, 2, 3, 4))
    given = [value is not None for value in (*node.inputs[3:5], None, None)][:2]
    if starts is None or ends is None or any(starts) or given != [axes is not None, steps is not None]:
        return False
    axes = list(range(len(ends))) if axes is None else axes
    if len(axes) != len(ends) or any(step != 1 for step in steps or ()):
        return False
    return all(end >= THE_END or _reaches(x, axis, end) for axis, end in zip(axes, ends, strict=True))


def _reaches(x: Value, axis: int, end: int) -> bool:
    dim = x.shape[axis] if x.rank is not None and -x.rank <= axis < x.rank else None
    return isinstance(dim, int) and end >= dim
