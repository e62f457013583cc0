"""Lengths of sequences and numbers of keys that can't be end a run with an InputError on all backends, and the session goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mnnx
from mnnx.errors import InputError
from mnnx.schema.ops.attention import Attention
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.recurrent import GRU, LSTM, RNN
from mnnx.schema.writer import serialize
from tests.devices import GPU_BACKENDS, missing
from tests.op_model import model_of

RNG = np.random.default_rng(5)
BACKENDS = ("cpu", *GPU_BACKENDS)


def ends_and_goes_on(
    backend: str, op: Op, inputs: tuple[Any, ...], constant: frozenset[int], illegal: int, message: str, on: str | None
) -> None:
    """The last input is legal; `illegal` in its place isn't. on: the backend that must run the op, None: whichever does."""
    if reason := missing(backend):
        pytest.skip(reason)
    feed = {f"i{i}": value for i, value in enumerate(inputs) if value is not None and i not in constant}
    name = f"i{len(inputs) - 1}"
    wrong = feed[name].copy()
    wrong[-1] = illegal
    with mnnx.Interpreter.from_bytes(serialize(model_of(op, inputs, 1, constant))) as interpreter:
        session = interpreter.create_session(mnnx.ScheduleConfig(backend=backend, num_threads=1))
        assert on is None or [row.backend for row in session.placement()] == [on]
        wanted = session.run(feed)["o0"]
        for _ in range(2):
            with pytest.raises(InputError, match=rf"op 'op' \({op.name}\).*{message}, not {illegal}$"):
                session.run(feed | {name: wrong})
            np.testing.assert_array_equal(session.run(feed)["o0"], wanted)


@pytest.mark.parametrize("illegal", [-1, 5])
@pytest.mark.parametrize("constant", [frozenset({1, 2, 3}), frozenset()], ids=["constant weights", "fed weights"])
@pytest.mark.parametrize("op", [LSTM(direction="bidirectional"), GRU(layout=True), RNN()], ids=lambda op: op.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_sequences_of_illegal_lengths(backend: str, op: Any, constant: frozenset[int], illegal: int) -> None:
    shapes = ((3, 4, 2) if op.layout else (4, 3, 2), (op.directions, op.gates * 6, 2), (op.directions, op.gates * 6, 6))
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in (*shapes, (op.directions, op.gates * 12))]
    inputs = (*arrays, np.array([4, 0, 3], np.int32))
    ends_and_goes_on(backend, op, inputs, constant, illegal, "sequence_lens must be in 0 … 4", backend if constant else None)


@pytest.mark.parametrize("illegal", [-1, 8, (1 << 32) + 2])
@pytest.mark.parametrize("op", [Attention(), Attention(is_causal=True)], ids=["all keys", "causal"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_illegal_numbers_of_keys(backend: str, op: Attention, illegal: int) -> None:
    arrays = [RNG.standard_normal((2, 3, length, 4)).astype(np.float32) for length in (5, 7, 7)]
    inputs = (*arrays, None, None, None, np.array([7, 0], np.int64))
    ends_and_goes_on(backend, op, inputs, frozenset(), illegal, "nonpad_kv_seqlen must be in 0 … 7", backend)
