"""All cases of single ops as one list, each with the op, the opset and the element type that it tests.

They are the rows of the case table (tests/cases), the old forms of tests/converter/test_old_opsets*.py, and ONNX's own node cases. These
are written for the newest form of their op; where the same node is legal in an older opset, and means the same there, it is a case of
that opset too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.loader
from onnx import checker, defs

from mnnx.schema import dtypes
from mnnx.schema.writer import serialize
from tests.agreement import assert_same, expected
from tests.cases import Case, load_all
from tests.conformance.backend import host_value
from tests.converter import test_old_opsets, test_old_opsets_of_movement, test_old_opsets_of_networks
from tests.one_node import fed, model
from tests.op_model import model_of

#: Op → opsets that gave the same node another meaning than the next one: what isn't said (an axis, a mode) was something else before.
MEANING_CHANGED: dict[str, tuple[int, ...]] = {
    "Softmax": (13,),
    "LogSoftmax": (13,),
    "Hardmax": (13,),
    "PRelu": (7,),
}


@dataclass(frozen=True)
class OpCase:
    """One op on given values. `source`: a ModelProto, or the bytes of an .mnnx file; `check(results by name)` fails where one is wrong."""

    op: str
    opset: int
    dtype: str
    name: str
    source: onnx.ModelProto | bytes
    feed: dict[str, Any]
    check: Callable[[dict[str, Any]], None]

    @property
    def key(self) -> tuple[str, int, str]:
        return self.op, self.opset, self.dtype


@cache
def all_cases() -> list[OpCase]:
    return [*_rows_of_the_table(), *_old_forms(), *_cases_of_onnx()]


def _rows_of_the_table() -> Iterator[OpCase]:
    """Those of ops that ONNX or com.microsoft have."""
    for case in load_all():
        domain, _, op_type = case.op.name.rpartition("::")
        if domain == "mnnx":
            continue
        feed = {f"i{i}": value for i, value in enumerate(case.inputs) if value is not None}
        data = serialize(model_of(case.op, case.inputs, case.outputs))
        opset = _since(op_type, domain, None)
        yield OpCase(case.op.name, opset, _dtype(feed.values()), case.name, data, feed, _row_check(case))


def _row_check(case: Case) -> Callable[[dict[str, Any]], None]:
    def check(results: dict[str, Any]) -> None:
        for index, value in enumerate(expected(case)[: case.outputs]):
            assert_same(results[f"o{index}"], value, case)

    return check


def _old_forms() -> Iterator[OpCase]:
    rows = [(*row[:4], [row[4]], ()) for module in (test_old_opsets, test_old_opsets_of_networks) for row in module.ROWS]
    for opset, op_type, inputs, attributes, wanted, constants in [*rows, *test_old_opsets_of_movement.CASES]:
        proto = model(opset, op_type, *inputs, constants=constants, outputs=len(wanted), **attributes)
        feed = fed(inputs, constants)
        check = _outputs_check(proto, list(wanted), 1e-4, 1e-5)
        yield OpCase(op_type, _since(op_type, "", opset), _dtype(inputs), f"{op_type}-{opset}", proto, feed, check)


def _cases_of_onnx() -> Iterator[OpCase]:
    nodes: dict[str, onnx.NodeProto] = {}  # by the name of the case; an "expanded" one has the body of another's op
    for test in onnx.backend.test.loader.load_model_tests(kind="node"):
        (graph, opsets), ((inputs, outputs),) = (test.model.graph, _opsets(test.model)), test.data_sets
        if len(graph.node) == 1:
            nodes[test.name] = graph.node[0]
        node = nodes[re.sub(r"_expanded.*", "", test.name)]
        names = [info.name for info in graph.input]
        feed = dict(zip(names, map(host_value, inputs), strict=False))
        wanted = [host_value(output) for output in outputs]
        name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        since = _since(node.op_type, node.domain, opsets.get(node.domain))
        for opset, proto in [(since, test.model), *_in_older_opsets(test.model, node, since)]:
            check = _outputs_check(proto, wanted, test.rtol, test.atol)
            yield OpCase(name, opset, _dtype(feed.values()), test.name, proto, feed, check)


def _in_older_opsets(proto: onnx.ModelProto, node: onnx.NodeProto, newest: int) -> Iterator[tuple[int, onnx.ModelProto]]:
    """The model in each older form of its only op in which it is legal."""
    if len(proto.graph.node) > 1 or node.domain:
        return
    changed = max((opset for opset in MEANING_CHANGED.get(node.op_type, ()) if opset <= newest), default=1)
    for opset in _versions(node.op_type, node.domain):
        if changed <= opset < newest:
            older = onnx.ModelProto()
            older.CopyFrom(proto)
            older.opset_import[0].version = opset
            try:
                checker.check_model(older, full_check=True)
            except (checker.ValidationError, onnx.shape_inference.InferenceError):
                continue
            yield opset, older


def _outputs_check(proto: onnx.ModelProto, wanted: list[Any], rtol: float, atol: float) -> Callable[[dict[str, Any]], None]:
    names = [info.name for info in proto.graph.output]

    def check(results: dict[str, Any]) -> None:
        onnx.backend.test.runner.Runner.assert_similar_outputs(wanted, [results[name] for name in names], rtol, atol)

    return check


@cache
def _versions(op_type: str, domain: str) -> tuple[int, ...]:
    return tuple(sorted(s.since_version for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (op_type, domain)))


def _since(op_type: str, domain: str, opset: int | None) -> int:
    """The opset that gave the op the form which it has in `opset` (None: the newest)."""
    return max((since for since in _versions(op_type, domain) if opset is None or since <= opset), default=opset or 1)


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    return {one.domain: one.version for one in proto.opset_import}


def _dtype(values: Any) -> str:
    """Of the first tensor among values, or in the first sequence."""
    for value in values:
        if isinstance(value, list):
            return _dtype(value)
        if isinstance(value, np.ndarray):
            return "string" if value.dtype.kind in "OSUT" else dtypes.name(value.dtype)
    return "none"
