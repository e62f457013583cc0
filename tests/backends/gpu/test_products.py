"""Products of matrices and attention on GPUs, in sizes that fit no tile, against sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mnnx
from mnnx.schema.ops import Op
from mnnx.schema.ops.attention import Attention, FusedAttention
from mnnx.schema.ops.fused import FusedMatMul
from mnnx.schema.ops.matmul import Gemm, MatMul
from mnnx.schema.writer import serialize
from tests.op_model import model_of

#: Errors that are allowed, as parts of the largest value, by precision.
TOLERANCES = {"high": 1e-5, "low": 4e-3}


def run(gpu: str, precision: str, op: Op, *inputs: Any, constant: frozenset[int] = frozenset()) -> np.ndarray:
    """The result of an op, all of which must have run on the GPU."""
    with mnnx.Interpreter.from_bytes(serialize(model_of(op, inputs, 1, constant))) as interpreter:
        config = mnnx.ScheduleConfig(backend=gpu, num_threads=1, backend_config=mnnx.BackendConfig(precision=precision))
        session = interpreter.create_session(config)
        feed = {f"i{i}": value for i, value in enumerate(inputs) if value is not None and i not in constant}
        result = session.run(feed)["o0"]
        assert {row.backend for row in session.placement()} == {gpu}
        return result


def assert_near(got: np.ndarray, wanted: np.ndarray, precision: str) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCES[precision] * np.abs(wanted).max())


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


SHAPES = [
    ((1, 300), (300, 17)),
    ((1, 1024), (1024, 1000)),
    ((3, 129), (129, 64)),
    ((37, 65), (65, 131)),
    ((128, 96), (96, 64)),
    ((65, 260), (260, 48)),
    ((3, 1, 19, 33), (5, 33, 35)),
    ((2, 3, 40, 64), (2, 3, 64, 80)),
    ((4, 50, 16), (16, 30)),
    ((70,), (70, 9)),
    ((2, 9, 70), (70,)),
    ((513,), (513,)),
]


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize(("a", "b"), SHAPES, ids=str)
def test_a_product_is_that_of_its_matrices(gpu: str, precision: str, constant: bool, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = floats(0, *a), floats(1, *b)
    got = run(gpu, precision, MatMul(), x, y, constant=frozenset({1} if constant else ()))
    assert_near(got, x.astype(np.float64) @ y.astype(np.float64), precision)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("constant", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize("c", [(45,), (1, 45), (33, 1), (33, 45), ()], ids=str)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)], ids=str)
def test_gemm_adds_what_broadcasts(gpu: str, precision: str, constant: bool, c: tuple[int, ...], transposed: tuple[bool, bool]) -> None:
    a, b, bias = floats(0, 33, 70), floats(1, 70, 45), floats(2, *c)
    op = Gemm(alpha=0.5, beta=-2.0, transA=transposed[0], transB=transposed[1])
    x, y = (np.ascontiguousarray(m.T) if turn else m for m, turn in zip((a, b), transposed, strict=True))
    got = run(gpu, precision, op, x, y, bias, constant=frozenset({1, 2} if constant else ()))
    assert_near(got, 0.5 * (a.astype(np.float64) @ b) - 2.0 * bias, precision)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("columns", [43, 64])
@pytest.mark.parametrize("rows", [1, 4, 21])
@pytest.mark.parametrize("constant", [False, True], ids=["computed", "constant"])
def test_a_fused_product_adds_its_bias_and_residual(gpu: str, precision: str, columns: int, rows: int, constant: bool) -> None:
    a, b, bias, residual = floats(0, 2, rows, 96), floats(1, columns, 96), floats(2, columns), floats(3, 2, rows, columns)
    op = FusedMatMul(transpose_b=True, alpha=0.25, activation="LeakyRelu", activation_parameters=(0.1,))
    got = run(gpu, precision, op, a, b, bias, residual, constant=frozenset({1, 2} if constant else ()))
    wanted = 0.25 * (a.astype(np.float64) @ b.T) + bias + residual
    assert_near(got, np.where(wanted > 0, wanted, 0.1 * wanted), precision)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize(("queries", "keys", "head"), [(1, 200, 64), (77, 77, 40), (50, 33, 17), (128, 128, 32)], ids=str)
def test_fused_attention_reads_heads_where_they_lie(gpu: str, precision: str, queries: int, keys: int, head: int) -> None:
    q, k, v = floats(0, 2, queries, 3, head), floats(1, 2, keys, 3, head), floats(2, 2, keys, 3, head)
    mask = np.where(floats(3, 2, 1, 1, keys) > 0.5, -np.inf, 0).astype(np.float32)
    mask[..., 0] = 0
    op = FusedAttention(scale=0.3, q_perm=(0, 2, 1, 3), k_perm=(0, 2, 3, 1), v_perm=(0, 2, 1, 3), y_perm=(0, 2, 1, 3))
    got = run(gpu, precision, op, q, k, v, mask)
    weights = softmax(0.3 * np.einsum("nqhd,nkhd->nhqk", q, k, dtype=np.float64) + mask)
    assert_near(got, np.einsum("nhqk,nkhd->nqhd", weights, v), precision)


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_grouped_heads_sees_no_later_keys(gpu: str, precision: str, masked: bool) -> None:
    q, k, v = floats(0, 2, 6, 45, 24), floats(1, 2, 2, 61, 24), floats(2, 2, 2, 61, 20)
    mask = floats(3, 45, 61) > -0.8 if masked else None
    got = run(gpu, precision, Attention(is_causal=True), q, k, v, mask)
    scores = np.einsum("nhqd,nhkd->nhqk", q, np.repeat(k, 3, 1), dtype=np.float64) / np.sqrt(24)
    seen = np.tril(np.ones((45, 61), bool)) & (True if mask is None else mask)
    scores = np.where(seen, scores, -1e30)
    weights = np.where(seen, softmax(scores), 0)
    assert_near(got, np.einsum("nhqk,nhkd->nhqd", weights, np.repeat(v, 3, 1)), precision)


def test_attention_goes_through_many_scores_in_parts(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mnnx.backends.gpu.executions import attention

    monkeypatch.setattr(attention, "_SCORE_BYTES", 4 * 70 * 10)
    q, k, v = floats(0, 2, 3, 33, 16), floats(1, 2, 3, 16, 70), floats(2, 2, 3, 70, 16)
    mask = floats(3, 33, 70)
    got = run(gpu, "high", FusedAttention(), q, k, v, mask)
    assert_near(got, softmax(q.astype(np.float64) @ k + mask) @ v, "high")


@pytest.mark.parametrize("shape", [None, (40, 50), (1, 50), (2, 1, 40, 50), (2, 3, 1, 50)], ids=str)
@pytest.mark.parametrize("boolean", [True, False])
def test_masks_are_made_for_some_queries_at_a_time(
    gpu: str, shape: tuple[int, ...] | None, boolean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mnnx.backends.gpu.executions import attention

    monkeypatch.setattr(attention, "_SCORE_BYTES", 4 * 50 * 7)
    q, k, v = floats(0, 2, 3, 40, 8), floats(1, 2, 3, 50, 8), floats(2, 2, 3, 50, 8)
    mask = None if shape is None else floats(3, *shape)
    if boolean and mask is not None:
        mask = mask > -0.6
        mask[..., 0] = True
    got = run(gpu, "high", Attention(is_causal=True), q, k, v, mask)
    scores = np.einsum("nhqd,nhkd->nhqk", q, k, dtype=np.float64) / np.sqrt(8)
    scores = scores + (0 if mask is None else np.where(mask, 0, -np.inf) if boolean else mask)
    scores[..., ~np.tril(np.ones((40, 50), bool))] = -np.inf
    assert_near(got, softmax(scores) @ v, "high")
