"""Recurrent networks on GPUs: few and many sequences, few and many units, single results, against a naive computation."""

from __future__ import annotations

import numpy as np
import pytest

import mnnx
from mnnx.schema.ops.recurrent import GRU, LSTM, RNN, Recurrent
from mnnx.schema.writer import serialize
from tests.backends.gpu.test_products import floats
from tests.cases.recurrent import reference_of
from tests.op_model import model_of

#: Errors that are allowed, by precision.
TOLERANCES = {"high": 2e-5, "low": 2e-2}
OPS = (RNN(direction="bidirectional"), GRU(direction="reverse"), GRU(linear_before_reset=True), LSTM(direction="bidirectional"))


def arrays(op: Recurrent, batch: int, hidden: int) -> tuple[np.ndarray, ...]:
    """x, w, r and b for 6 steps of 9 inputs."""
    gates, directions = op.gates * hidden, op.directions
    r = floats(2, directions, gates, hidden) / np.float32(hidden**0.5)
    return floats(0, 6, batch, 9), floats(1, directions, gates, 9), r, floats(3, directions, 2 * gates)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize(("batch", "hidden"), [(1, 130), (4, 64), (11, 37)], ids=str)
@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name} {op.direction}")
def test_a_layer_is_its_steps(gpu: str, precision: str, op: Recurrent, batch: int, hidden: int) -> None:
    given, count = arrays(op, batch, hidden), 3 if isinstance(op, LSTM) else 2
    got = _run(gpu, precision, op, given, tuple(range(count)))
    for name, wanted in enumerate(reference_of(op)(*given)):
        np.testing.assert_allclose(got[name], wanted, rtol=0, atol=TOLERANCES[precision])


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)], ids=str)
def test_each_result_may_be_the_only_one(gpu: str, wanted: tuple[int, ...]) -> None:
    op = LSTM()
    given = arrays(op, 2, 19)
    got, right = _run(gpu, "high", op, given, wanted), reference_of(op)(*given)
    for index in wanted:
        np.testing.assert_allclose(got[index], right[index], rtol=0, atol=TOLERANCES["high"])


def test_runs_begin_with_the_same_states(gpu: str) -> None:
    op = LSTM()
    x, *weights = arrays(op, 3, 12)
    with mnnx.Interpreter.from_bytes(serialize(model_of(op, (x, *weights), 3, frozenset({1, 2, 3})))) as interpreter:
        session = interpreter.create_session(mnnx.ScheduleConfig(backend=gpu))
        first, second = session.run({"i0": x}), session.run({"i0": x})
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)


def _run(gpu: str, precision: str, op: Recurrent, given: tuple[np.ndarray, ...], wanted: tuple[int, ...]) -> dict[int, np.ndarray]:
    """The wanted results, the only ones that the model has; all of it must have run on the GPU."""
    model = model_of(op, given, 3 if isinstance(op, LSTM) else 2, frozenset({1, 2, 3}))
    graph = model.graphs[0]
    (node,) = graph.nodes
    results = tuple(index if place in wanted else -1 for place, index in enumerate(node.outputs))
    graph.nodes[0] = type(node)(node.name, node.op, node.inputs, results)
    graph.outputs = tuple(index for index in results if index >= 0)
    with mnnx.Interpreter.from_bytes(serialize(model)) as interpreter:
        config = mnnx.ScheduleConfig(backend=gpu, num_threads=1, backend_config=mnnx.BackendConfig(precision=precision))
        session = interpreter.create_session(config)
        got = session.run({"i0": given[0]})
        assert {row.backend for row in session.placement()} == {gpu}
    return {index: got[f"o{index}"] for index in wanted}
