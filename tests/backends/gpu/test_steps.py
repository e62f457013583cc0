"""Loops that a driver would end: products and reductions are divided, other ops are left to the CPU, and the numbers are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mnnx
from mnnx.backends.gpu.backend import GpuBackend
from mnnx.backends.gpu.executions.rows import TEAM, Rows
from mnnx.backends.gpu.profile import profile_of
from mnnx.backends.gpu.steps import BESIDES, nested
from mnnx.schema.ops.activation import Hardmax, Softmax
from mnnx.schema.ops.attention import Attention
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.detection import RoiAlign
from mnnx.schema.ops.dynamic_quantization import FusedDynamicQuantizeMatMul, FusedMatMulInteger
from mnnx.schema.ops.fused import FusedMatMul
from mnnx.schema.ops.indexing import ScatterElements, ScatterND, TopK
from mnnx.schema.ops.loss import NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
from mnnx.schema.ops.matmul import Gemm, MatMul
from mnnx.schema.ops.normalization import (
    LRN,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    MeanVarianceNormalization,
)
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalLpPool, LpPool, MaxPool
from mnnx.schema.ops.quantization import ConvInteger, DynamicQuantizeLinear, MatMulInteger
from mnnx.schema.ops.recurrent import LSTM
from mnnx.schema.ops.reduction import ArgMax, CumSum, ReduceMax, ReduceMean, ReduceSum
from mnnx.schema.ops.resize import Resize
from tests.backends.gpu.run import gpu as backend_of
from tests.backends.gpu.run import run

#: What kernels may make here beside loops of constant length.
_MOST = 1000


def _limited(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch, most: int = _MOST) -> GpuBackend:
    monkeypatch.setattr(backend.device, "profile", backend.device.profile._replace(loop_steps=most + BESIDES))
    return backend


def _floats(*shape: int) -> Spec:
    return Spec(np.dtype("float32"), shape)


def _of(dtype: str, *shape: int) -> Spec:
    return Spec(np.dtype(dtype), shape)


def _known(values, dtype: str = "int64") -> Spec:
    return Spec.of(np.array(values, dtype))


def _lstm(hidden: int) -> tuple[Op, list[Spec]]:
    weights = (Spec(zero.dtype, zero.shape, zero) for zero in (np.broadcast_to(np.float32(0), (1, 4 * hidden, n)) for n in (3, hidden)))
    return LSTM(hidden_size=hidden), [_floats(2, 5, 3), *weights]


def _attention(keys: int) -> tuple[Op, list[Spec]]:
    return Attention(), [_floats(1, 1, 3, 8), _floats(1, 1, keys, 8), _floats(1, 1, keys, 8)]


def _scatter_nd(updates: int) -> tuple[Op, list[Spec]]:
    return ScatterND(reduction="add"), [_floats(7, 3), _of("int64", updates, 1), _floats(updates, 3)]


def _scatter_elements(updates: int) -> tuple[Op, list[Spec]]:
    return ScatterElements(axis=0, reduction="add"), [_floats(7, 3), _of("int64", updates, 3), _floats(updates, 3)]


#: Ops of a size, with one that is within the limit on every device, and one that isn't on any.
_OPS: dict[str, tuple[Callable[[int], tuple[Op, list[Spec]]], int, int]] = {
    "CumSum": (lambda n: (CumSum(), [_floats(n), _known(0)]), 999, 1000),
    "CumSum of int32": (lambda n: (CumSum(), [_of("int32", n), _known(0)]), 999, 1000),
    "ReduceSum of int32": (lambda n: (ReduceSum(), [_of("int32", n, 3), _known([0])]), 999, 1000),
    "ArgMax": (lambda n: (ArgMax(), [_floats(n, 3)]), 999, 64_001),
    "Hardmax": (lambda n: (Hardmax(axis=0), [_floats(n, 3)]), 499, 500),
    "Softmax": (lambda n: (Softmax(axis=0), [_floats(n, 3)]), 300, 64_001),
    "LayerNormalization": (lambda n: (LayerNormalization(), [_floats(1, n), _floats(n)]), 300, 1_000_001),
    "InstanceNormalization": (lambda n: (InstanceNormalization(), [_floats(1, 3, n), _floats(3), _floats(3)]), 300, 1_000_001),
    "GroupNormalization": (lambda n: (GroupNormalization(num_groups=1), [_floats(1, 3, n), _floats(3), _floats(3)]), 100, 1_000_001),
    "MeanVarianceNormalization": (lambda n: (MeanVarianceNormalization(axes=(2,)), [_floats(1, 3, n)]), 300, 1_000_001),
    "LpNormalization": (lambda n: (LpNormalization(axis=0), [_floats(n, 3)]), 300, 64_001),
    "LRN": (lambda n: (LRN(size=2001), [_floats(1, n, 2, 2)]), 900, 1001),
    "AveragePool": (lambda n: (AveragePool(kernel_shape=(n, n)), [_floats(1, 3, 40, 40)]), 30, 32),
    "MaxPool": (lambda n: (MaxPool(kernel_shape=(n, n)), [_floats(1, 3, 40, 40)]), 30, 32),
    "LpPool": (lambda n: (LpPool(kernel_shape=(n, n), p=20), [_floats(1, 3, 40, 40)]), 6, 7),
    "GlobalAveragePool": (lambda n: (GlobalAveragePool(), [_floats(1, 3, n)]), 999, 64_001),
    "GlobalLpPool": (lambda n: (GlobalLpPool(p=4), [_floats(1, 3, n)]), 199, 64_001),
    "Conv": (lambda n: (Conv(), [_floats(1, n, 3, 3), _floats(2, n, 1, 1)]), 900, 1000),
    "Conv of constant weights": (lambda n: (Conv(), [_floats(1, n, 3), Spec.of(np.zeros((9, n, 1), np.float32))]), 900, 1000),
    "Conv of many taps": (lambda n: (Conv(), [_floats(1, 1, 1000), _floats(1, 1, n)]), 300, 340),
    "ConvTranspose": (lambda n: (ConvTranspose(), [_floats(1, n, 3, 3), _floats(n, 2, 1, 1)]), 900, 1000),
    "ConvInteger": (lambda n: (ConvInteger(), [_of("uint8", 1, n, 5), _of("int8", 2, n, 2)]), 124, 125),
    "MatMulInteger": (lambda n: (MatMulInteger(), [_of("uint8", 3, n), _of("int8", n, 5)]), 999, 1000),
    "FusedMatMulInteger": (lambda n: (FusedMatMulInteger(), [_of("uint8", 3, n), _of("int8", n, 5), None, None, _floats()]), 999, 1000),
    "FusedDynamicQuantizeMatMul": (lambda n: (FusedDynamicQuantizeMatMul(), [_floats(3, n), _of("int8", n, 5)]), 999, 1000),
    "DynamicQuantizeLinear": (lambda n: (DynamicQuantizeLinear(), [_floats(n)]), 999_000, 2_000_000),
    "LSTM": (_lstm, 999, 1000),
    "Attention": (_attention, 300, 64_001),
    "ScatterND": (_scatter_nd, 330, 334),
    "ScatterElements": (_scatter_elements, 999, 1000),
    "TopK": (lambda n: (TopK(axis=0), [_floats(n, 3), _known([5])]), 250, 4000),
    "NegativeLogLikelihoodLoss": (lambda n: (NegativeLogLikelihoodLoss(), [_floats(n, 7), _of("int64", n)]), 900, 64_001),
    "SoftmaxCrossEntropyLoss": (lambda n: (SoftmaxCrossEntropyLoss(), [_floats(3, n), _of("int64", 3)]), 300, 1_000_001),
    "Resize": (
        lambda n: (Resize(mode="linear", antialias=True), [_floats(1, 1, n), None, None, _known([1, 1, 2])]),
        300,
        2000,
    ),
    "RoiAlign": (
        lambda n: (RoiAlign(sampling_ratio=n, output_height=2, output_width=2), [_floats(1, 3, 9, 9), _floats(5, 4), _of("int64", 5)]),
        30,
        32,
    ),
}


def _reason(backend: GpuBackend, op: Op, specs: list[Spec]) -> str | None:
    results = op.infer_all(*specs)
    return backend.supports(op, specs, results[:1] if isinstance(op, Attention) else results)


@pytest.mark.parametrize("name", _OPS)
def test_ops_with_longer_loops_are_refused(gpu: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, within, beyond = _OPS[name]
    backend = backend_of(gpu)
    _limited(backend, monkeypatch)
    assert _reason(backend, *make(within)) is None
    assert "steps, more than the 1,256 that" in _reason(backend, *make(beyond))


def test_loops_as_long_as_data_say_are_refused(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = RoiAlign(sampling_ratio=0)
    specs = [_floats(1, 3, 9, 9), _floats(5, 4), _of("int64", 5)]
    reason = _reason(_limited(backend_of(gpu), monkeypatch), op, specs)
    assert reason.startswith("RoiAlign: its data say how many steps its loops take")


def test_blocked_ways_have_steps_of_their_own(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = _limited(backend_of(gpu), monkeypatch, 65)
    specs = [_floats(1, 128, 4, 4), Spec.of(np.zeros((16, 128, 1, 1), np.float32))]
    results = [Conv().infer(*specs)]
    ways = backend.create(Conv(), specs, results).layouts(specs, results, backend.block_width)
    possible = [way.inputs[0] for way in ways if backend.can_run(Conv(), specs, results, way)]
    assert possible == [backend.block_width]


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("constant", [False, True])
def test_products_are_divided_along_their_depth(
    gpu: str, precision: str, rows: int, constant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(rows)
    a, b = random.uniform(-1, 1, (2, rows, 2500)), random.uniform(-1, 1, (2500, 13))
    bias, residual = random.uniform(-9, 9, 13), random.uniform(-9, 9, (2, rows, 13))
    backend = _limited(backend_of(gpu, precision), monkeypatch)
    cases = [
        (MatMul(), (a, b), a @ b),
        (Gemm(transA=True, alpha=0.5, beta=2.0), (a[0].T.copy(), b, bias), 0.5 * (a[0] @ b) + 2 * bias),
        (FusedMatMul(activation="Relu"), (a, b, bias, residual), np.maximum(a @ b + bias + residual, 0)),
    ]
    for op, inputs, expected in cases:
        given = [array.astype(np.float32) for array in inputs]
        for _, (y,) in run(backend, op, *given, constants=(1,) if constant else ()):
            np.testing.assert_allclose(y, expected, rtol=1e-4 if precision == "high" else 2e-2, atol=1e-3 if precision == "high" else 0.3)


@pytest.mark.parametrize("op_class", [ReduceSum, ReduceMean, ReduceMax])
def test_long_columns_are_reduced_in_parts(gpu: str, op_class: type[Op], monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((900, 4100)).astype(np.float32)
    ((_, (y,)),) = run(_limited(backend_of(gpu), monkeypatch, 256), op_class(), x, np.array([0]), constants=(1,))
    expected = {ReduceSum: np.sum, ReduceMean: np.mean, ReduceMax: np.max}[op_class](x.astype(np.float64), axis=0, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_many_long_rows_are_shared(gpu: str) -> None:
    backend = backend_of(gpu)
    alone = 1 if backend.device.profile.is_cpu else TEAM
    assert Rows(8192, 1 << 15, 1, 1, False).team(backend) == alone
    assert Rows(8192, 1 << 12, 1, 1, False).team(backend) == 1
    assert Rows(8192, 1 << 12, 1, 1, False).team(backend, walks=18) == alone


def test_steps_count_what_finds_that_a_loop_is_over() -> None:
    assert nested() == 0
    assert nested(5) == 6
    assert nested(2, 3) == 2 * (1 + 4) + 1


def test_only_lavapipe_is_known_to_end_loops() -> None:
    assert profile_of("Mesa llvmpipe (LLVM 15.0.6, 256 bits)").loop_steps == 65_535
    assert profile_of("NVIDIA H200").loop_steps is None


# ---- at the driver's own limit

_HEAD = '<ir_version: 9, opset_import: ["": 18]> g '


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _pooled(x: np.ndarray, n: int) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, (n, n), axis=(2, 3))
    return windows.mean((-1, -2))


#: Text, a float input for a size, what is right, and sizes around that from which on the op is left to the CPU (None: none is).
_NETWORKS = {
    "CumSum": (
        "(float[N] x) => (float[N] y) { a = Constant<value_int=0>() y = CumSum(x, a) }",
        lambda n: (n,),
        lambda x, n: np.cumsum(x),
        65_278,
        65_279,
    ),
    "ReduceSum of int32": (
        "(float[N,M] x) => (int32[K,L] y) { a = Constant<value_ints=[0]>() i = Cast<to=6>(x) y = ReduceSum(i, a) }",
        lambda n: (n, 3),
        lambda x, n: x.astype(np.int32).sum(0, keepdims=True),
        65_278,
        65_279,
    ),
    "AveragePool": (
        "(float[N,C,H,W] x) => (float[N,C,K,L] y) { y = AveragePool<kernel_shape=[SIZE,SIZE]>(x) }",
        lambda n: (1, 1, 256, 256),
        _pooled,
        254,
        255,
    ),
    "Conv": (
        "(float[1,C,L] x, float[1,C,K] w) => (float[1,1,M] y) { y = Conv(x, w) }",
        lambda n: (1, 2, n + 2),
        lambda x, n: np.lib.stride_tricks.sliding_window_view(x, n, axis=2).sum((1, 3))[:, None],
        16_318,
        16_319,
    ),
    "Softmax": ("(float[N,M] x) => (float[N,M] y) { y = Softmax(x) }", lambda n: (1, n), lambda x, n: _softmax(x), 1_300_001, 1_400_001),
    "ArgMax": (
        "(float[N,M] x) => (int64[N,K] y) { y = ArgMax<axis=1>(x) }",
        lambda n: (1, n),
        lambda x, n: x.argmax(1)[:, None],
        4_177_792,
        4_177_793,
    ),
    "ReduceMean": (
        "(float[N,M] x) => (float[K,M] y) { a = Constant<value_ints=[0]>() y = ReduceMean(x, a) }",
        lambda n: (n, 3),
        lambda x, n: x.mean(0, keepdims=True),
        65_278,
        None,
    ),
    "MatMul": (
        "(float[N,K] x, float[K,M] w) => (float[N,M] y) { y = MatMul(x, w) }",
        lambda n: (5, n),
        lambda x, n: np.repeat(x.sum(1, keepdims=True), 7, 1),
        65_278,
        None,
    ),
}
_WEIGHTS = {"Conv": lambda n: (1, 2, n), "MatMul": lambda n: (n, 7)}


@pytest.mark.parametrize("name", _NETWORKS)
def test_values_around_the_limit(name: str, session_of: Callable[..., mnnx.Session]) -> None:
    limit = backend_of("vulkan").device.profile.loop_steps
    text, shape, right, within, beyond = _NETWORKS[name]
    for size in (within, beyond or 300_000):
        x = np.random.default_rng(size).integers(-9, 9, shape(size)).astype(np.float32)
        x.reshape(-1)[-1] = 10.0  # what a loop that ends too early misses
        feeds = {"x": x}
        if name in _WEIGHTS:
            feeds["w"] = np.ones(_WEIGHTS[name](size), np.float32)
        session = session_of(_HEAD + text.replace("SIZE", str(size)), backend="vulkan")
        np.testing.assert_allclose(session.run(feeds)["y"], right(x.astype(np.float64), size), rtol=1e-4, atol=1e-3)
        (row,) = [row for row in session.placement() if row.op_type == name.split()[0]]
        if limit and size == beyond:
            assert row.backend == "cpu"
            assert f"more than the {limit:,} that lavapipe makes" in row.reason
        else:
            assert row.backend == "vulkan", row.reason


def test_the_limit_is_the_driver_s(session_of: Callable[..., mnnx.Session], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when lavapipe no longer ends loops: then its profile need not say so."""
    backend = backend_of("vulkan")
    limit = backend.device.profile.loop_steps
    if limit is None:
        pytest.skip("for drivers that end loops")
    monkeypatch.setattr(backend.device, "profile", backend.device.profile._replace(loop_steps=None))
    ((_, (y,)),) = run(backend, ReduceSum(), np.ones(70_000, np.int32), np.array([0]), constants=(1,))
    assert y == [limit]
