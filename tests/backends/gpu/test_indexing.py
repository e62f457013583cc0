"""Indices out of range end a run with an InputError, as on the CPU, and the session goes on."""

import numpy as np
import pytest

import mnnx
from mnnx.errors import InputError
from mnnx.schema.ops.attention import RotaryEmbedding
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.indexing import Gather, GatherElements, GatherND, ScatterElements, ScatterND, TensorScatter
from mnnx.schema.ops.loss import NegativeLogLikelihoodLoss
from mnnx.schema.ops.slicing import ReverseSequence
from mnnx.schema.writer import serialize
from tests.backends.gpu.run import gpu, run
from tests.devices import GPU_BACKENDS, missing
from tests.op_model import model_of

_X = np.arange(24, dtype=np.float32).reshape(4, 6)
_TWO = np.ones((2, 6), np.float32)

#: Op, its inputs with legal indices, which of them the indices are, and an illegal value.
_CASES = [
    (Gather(axis=1), (_X, np.array([[0, -6], [5, 2]], np.int64)), 1, 6),
    (Gather(axis=0), (_X, np.array([0, -4, 3], np.int32)), 1, -5),
    (Gather(axis=0), (_X, np.array([0, -4, 3], np.int64)), 1, 1 << 32),
    (GatherElements(axis=0), (_X, np.array([[0, -4, 3, 1, 2, 2]], np.int64)), 1, 4),
    (GatherND(), (_X, np.array([[3, -6], [0, 0]], np.int64)), 1, -7),
    (ScatterElements(axis=0), (_X, np.array([[0] * 6, [-1] * 6], np.int64), _TWO), 1, 4),
    (ScatterElements(axis=0, reduction="add"), (_X, np.array([[1] * 6, [-3] * 6], np.int32), _TWO), 1, -5),
    (ScatterND(), (_X, np.array([[0], [-1]], np.int64), _TWO), 1, 4),
    (ScatterND(reduction="mul"), (_X, np.array([[0], [0]], np.int64), _TWO), 1, -5),
    (TensorScatter(axis=1), (_X[:2], _TWO[:, :2].copy(), np.array([0, 4], np.int64)), 2, 5),
    (ReverseSequence(batch_axis=0, time_axis=1), (_X, np.array([1, 6, 0, 3], np.int64)), 1, 7),
    (RotaryEmbedding(num_heads=1), (_X[None], _X[:, :3].copy(), _X[:, 3:].copy(), np.array([[0, 3, 1, 1]], np.int64)), 3, 4),
    (NegativeLogLikelihoodLoss(reduction="none"), (_X, np.array([0, 5, 2, 3], np.int32)), 1, 6),
    (NegativeLogLikelihoodLoss(ignore_index=9, reduction="none"), (_X, np.array([0, 9, 2, 3], np.int64)), 1, -1),
]


@pytest.mark.parametrize(("op", "inputs", "place", "illegal"), _CASES, ids=[f"{case[0]}-{case[3]}" for case in _CASES])
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_an_index_out_of_range_is_named_and_the_next_run_works(backend: str, op: Op, inputs: tuple, place: int, illegal: int) -> None:
    if reason := missing(backend):
        pytest.skip(reason)
    wrong = list(inputs)
    wrong[place] = inputs[place].copy()
    wrong[place].flat[-1] = illegal
    with mnnx.Interpreter.from_bytes(serialize(model_of(op, inputs, 1))) as interpreter:
        cpu, device = (interpreter.create_session(mnnx.ScheduleConfig(backend=name, num_threads=1)) for name in ("cpu", backend))
        assert [row.backend for row in device.placement()] == [backend]
        feed = {f"i{i}": value for i, value in enumerate(inputs)}
        wanted = cpu.run(feed)["o0"]
        np.testing.assert_array_equal(device.run(feed)["o0"], wanted)
        with pytest.raises(InputError, match=rf"op 'op' \({op.name}\).*{illegal}"):
            device.run({f"i{i}": value for i, value in enumerate(wrong)})
        np.testing.assert_array_equal(device.run(feed)["o0"], wanted)


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_equal_indices_are_reduced_in_order(backend: str) -> None:
    rng = np.random.default_rng(3)
    x, updates = rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal((40, 7)).astype(np.float32)
    index = rng.integers(-5, 5, (40, 1))
    for name, function in (("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
        wanted = x.copy()
        function.at(wanted, index[:, 0], updates)
        ((_, (y,)),) = run(gpu(backend), ScatterND(reduction=name), x, index, updates)
        np.testing.assert_allclose(y, wanted, 1e-6, 1e-6)
        ((_, (y,)),) = run(gpu(backend), ScatterElements(reduction=name), x, np.repeat(index, 7, 1), updates, in_place=True)
        np.testing.assert_allclose(y, wanted, 1e-6, 1e-6)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool"])
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_rows_of_any_width_are_gathered(backend: str, dtype: str, precision: str) -> None:
    for inner in (1, 3, 16, 24):
        x = np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 100, (3, 5, inner)).astype(dtype)
        indices = np.array([[4, -5, 0], [-1, 2, 2]], np.int64)
        ((_, (y,)),) = run(gpu(backend, precision), Gather(axis=1), x, indices)
        np.testing.assert_array_equal(y, np.take(x, indices % 5, 1))
