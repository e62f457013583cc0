"""Where a model begins to go wrong: the first op that differs from the reference's, and the first pass after which outputs differ."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnnx.errors import MnnxError
from mnnx.tools.comparison import Bounds, compare, drawn_at_random

if TYPE_CHECKING:
    import onnx

    from mnnx.converter.stages import Stage
    from mnnx.interpreter.config import ScheduleConfig
    from mnnx.interpreter.interpreter import Interpreter
    from mnnx.interpreter.session import Session
    from mnnx.schema.model import Graph, Node
    from mnnx.tools.references import Reference

#: So many nodes are run by themselves, in search of one that is wrong; each takes a conversion.
MOST_ALONE = 24


def first_wrong_op(
    reference: Reference, interpreter: Interpreter, session: Session, feed: Mapping[str, Any], bounds: Bounds
) -> dict[str, Any] | None:
    """The first node, in topological order, that gives other results than the reference's on the reference's own inputs.

    A row of `compare` for the tensor, with `node` and `op`, the number of tensors `compared`, the model's `tensors`, and `alone`: True
    where the node differs by itself too; False where none of those that differ does, so that what was rounded before them is magnified:
    then it is the first tensor that differs. None where that can't be tried. `execution_differs`: see `_execution_differs`.

    Only tensors of the main graph that both sides still have, and that don't depend on random numbers, can be seen; None where none of
    them differs.
    """
    from mnnx.converter.frontends.onnx.order import in_order

    graph = interpreter.model.graphs[0]
    alive = {v.name for v in graph.values if v.constant is None} - drawn_at_random(graph)
    makers = {name: node for node in in_order(reference.proto.graph) for name in node.output if name in alive}
    wanted = reference.run(feed, list(makers))
    got = session.run(feed, outputs=list(makers))
    total = sum(1 for node in reference.proto.graph.node for name in node.output if name)
    different = []
    for name, node in makers.items():
        row = compare(name, got[name], wanted[name], *bounds, maker=node.op_type)
        if not row["equal"]:
            different.append(row | {"node": node.name, "op": node.op_type, "compared": len(makers), "tensors": total})
    found = None
    for row in different[:MOST_ALONE]:
        alone = (
            False if row["rounding_steps"] else _differs_alone(reference, makers[row["name"]], dict(feed) | wanted, bounds, session.config)
        )
        if alone is not False:
            found = row | {"alone": alone}
            break
    else:
        found = different[0] | {"alone": False} if different else None
    return found and found | {"execution_differs": _execution_differs(graph, session, feed, found["name"], bounds)}


def _differs_alone(
    reference: Reference, node: onnx.NodeProto, values: Mapping[str, Any], bounds: Bounds, config: ScheduleConfig
) -> bool | None:
    """Whether a node differs from the reference when both get the same inputs; None where it can't be run by itself."""
    import mnnx
    from mnnx.tools.one_node import model_of_one_node

    try:
        model, feed = model_of_one_node(reference.proto, node, values)
        with tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
            mnnx.convert(model, Path(folder) / "node.mnnx", level=0)
            with mnnx.Interpreter.from_file(Path(folder) / "node.mnnx") as interpreter, interpreter.create_session(config) as session:
                got = session.run(feed)
    except (MnnxError, TypeError, KeyError):  # a sequence among its inputs, a value that must be a constant, a tensor that isn't there
        return None
    return not all(compare(name, value, values[name], *bounds)["equal"] for name, value in got.items() if name in values)


def first_wrong_pass(
    source: str,
    level: int,
    options: Mapping[str, Any],
    feed: Mapping[str, Any],
    wanted: Mapping[str, Any],
    bounds: Bounds,
    quantized: set[str],
    config: ScheduleConfig | None = None,
) -> dict[str, Any] | None:
    """The first pass after which an output isn't as `wanted`, and the first tensor that isn't what it was before this pass.

    {pass, position (its number among all passes), rewrites (how often each was applied), error (of a model that no longer runs, or None),
    tensor (a row of `compare` with `node` and `op`; None where none of those that are in both models differs), execution_differs}.
    None where no pass does it. Raises MnnxError where an output isn't right before the first pass already.
    """
    from mnnx.converter.stages import stages

    with tempfile.TemporaryDirectory(prefix="mnnx-") as folder:
        before: Stage | None = None
        for stage in stages(source, level, **options):
            found = {"pass": stage.by_pass, "position": stage.position, "rewrites": dict(stage.counts), "error": None}
            found |= {"tensor": None, "execution_differs": None}
            try:
                with _session(stage, folder, config) as session:
                    got = session.run(feed)
            except MnnxError as error:
                if before is None:
                    raise
                return found | {"error": str(error)}
            if not all(compare(name, got[name], value, *bounds, name in quantized)["equal"] for name, value in wanted.items()):
                if before is None:
                    raise MnnxError("they do before the first pass already, where the unoptimized model didn't")
                return found | _first_changed(before, stage, folder, feed, bounds, config)
            before = stage
    return None


def _first_changed(
    before: Stage, after: Stage, folder: str, feed: Mapping[str, Any], bounds: Bounds, config: ScheduleConfig | None
) -> dict[str, Any]:
    graph, known = after.graphs[0], _makers(before.graphs[0])
    seen = known.keys() - drawn_at_random(before.graphs[0]) - drawn_at_random(graph)
    makers = {name: node for name, node in _makers(graph).items() if name in seen}
    with _session(before, folder, config) as session:
        wanted = session.run(feed, outputs=list(makers))
    with _session(after, folder, config) as session:
        got = session.run(feed, outputs=list(makers))
        for name, node in makers.items():
            row = compare(name, got[name], wanted[name], *bounds, maker=node.op.name)
            if not row["equal"]:
                row |= {"node": node.name, "op": node.op.name, "compared": len(makers)}
                return {"tensor": row, "execution_differs": _execution_differs(graph, session, feed, name, bounds)}
    return {}


@contextmanager
def _session(stage: Stage, folder: str, config: ScheduleConfig | None) -> Iterator[Session]:
    import mnnx
    from mnnx.schema.writer import write_model

    path = Path(folder) / "stage.mnnx"
    write_model(stage.model(), path)
    with mnnx.Interpreter.from_file(path) as interpreter, interpreter.create_session(config) as session:
        yield session


def _makers(graph: Graph) -> dict[str, Node]:
    """The node that makes each value, in the order of nodes."""
    return {graph.values[i].name: node for node in graph.nodes for i in node.outputs if i >= 0}


def _execution_differs(graph: Graph, session: Session, feed: Mapping[str, Any], name: str, bounds: Bounds) -> bool | None:
    """Whether the backend's execution of the op that makes a tensor gives something else than the NumPy execution on the same inputs: then
    that is at fault, not the model. None where there is no telling: control flow, or an op that ran in NumPy."""
    import numpy as np

    from mnnx.backends import host

    node = _makers(graph).get(name)
    if node is None or not node.op.deterministic or not host.supports(node.op):
        return None
    values = [None if i < 0 else graph.values[i] for i in node.inputs]
    computed = [v.name for v in values if v is not None and v.constant is None]
    try:
        ran = session.run(feed, outputs=[*dict.fromkeys([*computed, name])])
        with np.errstate(all="ignore"):
            inputs = [None if v is None else ran[v.name] if v.constant is None else v.constant for v in values]
            results = host.run(node.op, inputs)
    except Exception:  # an execution that fails is at fault, but not for its numbers
        return None
    place = next(place for place, i in enumerate(node.outputs) if i >= 0 and graph.values[i].name == name)
    return not compare(name, ran[name], results[place], *bounds)["equal"]
