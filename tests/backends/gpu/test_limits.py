"""What is larger than an argument of a kernel can be: ways and ops that need it are left out, and the CPU runs what remains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import mnnx
from mnnx.backends.backend import Layouts
from mnnx.backends.gpu.backend import GpuBackend
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.convolution import Conv
from mnnx.schema.ops.matmul import Gemm, MatMul
from mnnx.schema.ops.normalization import InstanceNormalization
from mnnx.schema.ops.pooling import AveragePool
from mnnx.schema.ops.reduction import ReduceSum
from tests.backends.gpu.run import gpu as backend_of
from tests.backends.gpu.run import run
from tests.devices import halves

_FLOAT32 = np.dtype("float32")


def _limited(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch, nbytes: int) -> GpuBackend:
    monkeypatch.setattr(backend.device, "largest", nbytes)
    return backend


def _ways(backend: GpuBackend, op: Op, *specs: Spec) -> tuple[list[Layouts], list[Layouts]]:
    """The blocked ways that an execution offers, and those that can be run."""
    results = [op.infer(*specs)]
    offered = backend.create(op, specs, results).layouts(specs, results, backend.block_width)
    return list(offered), [way for way in offered if backend.can_run(op, specs, results, way)]


def _weights(*shape: int) -> Spec:
    return Spec(_FLOAT32, shape, np.ones(shape, np.float32))


@pytest.mark.parametrize(
    ("op", "rest"), [(Conv(), (_weights(5, 5, 1, 1),)), (AveragePool(kernel_shape=(1, 1)), ()), (InstanceNormalization(), None)], ids=str
)
def test_ways_with_too_large_blocks_are_left_out(gpu: str, op: Op, rest: tuple[Spec, ...] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    x = Spec(_FLOAT32, (1, 5, 40, 40))
    specs = [x, *((_weights(5), _weights(5)) if rest is None else rest)]
    backend = backend_of(gpu)
    offered, possible = _ways(backend, op, *specs)
    assert offered == possible != []
    _limited(backend, monkeypatch, x.nbytes + 64)  # enough for 5 channels, not for 8 or 16
    assert backend.supports(op, specs, [op.infer(*specs)]) is None
    offered, possible = _ways(backend, op, *specs)
    assert offered
    assert not possible


def test_a_network_runs_where_its_blocks_would_be_too_large(
    session_of: Callable[..., mnnx.Session], gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _limited(backend_of(gpu), monkeypatch, 5 * 48 * 48 * 4)
    session = session_of(
        """<ir_version: 10, opset_import: ["": 21]> main (float[1, 5, 48, 48] x) => (float[1, 5, 48, 48] y)
        <float[5, 5, 1, 1] w = {1,0,0,0,0, 0,2,0,0,0, 0,0,3,0,0, 0,0,0,4,0, 0,0,0,0,5}> { a = Conv(x, w) b = Relu(a) y = Conv(b, w) }""",
        backend=gpu,
    )
    x = np.random.default_rng(0).standard_normal((1, 5, 48, 48)).astype(np.float32)
    factors = np.arange(1, 6, dtype=np.float32).reshape(-1, 1, 1)
    np.testing.assert_allclose(session.run({"x": x})["y"], np.maximum(x, 0) * factors**2, rtol=1e-5)


def test_packed_operands_count(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = Spec(_FLOAT32, (300, 2000)), Spec(_FLOAT32, (2000, 301))
    backend, result = backend_of(gpu), [MatMul().infer(a, b)]
    assert backend.supports(MatMul(), [a, b], result) is None
    _limited(backend, monkeypatch, b.nbytes)
    assert "it needs 2 MiB in a piece, more than" in backend.supports(MatMul(), [a, b], result)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (MatMul(), ((7, 600), (600, 301))),
        (MatMul(), ((1, 600), (600, 301))),
        (MatMul(), ((3, 7, 200), (3, 200, 301))),
        (Gemm(transB=True, alpha=0.5), ((7, 600), (301, 600), (301,))),
        (Gemm(beta=2.0), ((7, 600), (600, 301), (7, 301))),
        (Gemm(), ((7, 600), (600, 301), (7, 1))),
    ],
    ids=str,
)
def test_constant_operands_are_divided(gpu: str, op: Op, shapes: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    """By columns, where they are larger than an argument can be."""
    a, b, *rest = inputs = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)]
    if isinstance(op, Gemm):
        right = b.astype(np.float64).T if op.transB else b.astype(np.float64)
        wanted = op.alpha * (a @ right) + (op.beta * rest[0] if rest else 0)
    else:
        wanted = a @ b.astype(np.float64)
    backend = _limited(backend_of(gpu), monkeypatch, b.nbytes // 4)
    ((_, (y,)),) = run(backend, op, *inputs, constants=(1, *range(2, len(inputs))))
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-3)
    _limited(backend, monkeypatch, 900)
    specs = [Spec(x.dtype, x.shape, x if i else None) for i, x in enumerate(inputs)]
    assert "larger than" in backend.supports(op, specs, [op.infer(*specs)]) or "in a piece" in backend.supports(
        op, specs, [op.infer(*specs)]
    )


def test_what_the_ints_of_kernels_cannot_number_is_too_large(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = _limited(backend_of(gpu), monkeypatch, 1 << 40)
    x = Spec(_FLOAT32, (1 << 31,))
    reason = backend.supports(MatMul(), [x, x], [Spec(_FLOAT32, ())])
    assert "elements" in reason


@pytest.mark.parametrize("op", [Conv(group=5), Conv()], ids=["depthwise", "product"])
def test_packed_weights_count(gpu: str, op: Conv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their blocks hold more channels than there are."""
    x, w = Spec(_FLOAT32, (1, 5, 60, 60)), _weights(5, 1 if op.group > 1 else 5, 59, 59)
    backend, specs = backend_of(gpu), [x, w]
    offered, possible = _ways(backend, op, *specs)
    assert offered == possible != []
    _limited(backend, monkeypatch, 8 * x.nbytes // 5 * (backend.block_width // 4) - 64)
    for way in _ways(backend, op, *specs)[1]:
        execution = backend.create(op, specs, [op.infer(*specs)])
        execution.way = way
        assert execution.largest_piece(specs, [op.infer(*specs)]) <= backend.device.largest


def test_what_is_alive_together_need_not_lie_in_one_allocation(
    session_of: Callable[..., mnnx.Session], gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = """<ir_version: 10, opset_import: ["": 21]> main (float[9, 2000] x) => (float[9, 2000] y)
    { a = Exp(x) b = Transpose<perm = [1, 0]>(x) c = MatMul(b, a) d = MatMul(a, c) e = Relu(d) f = Mul(e, a) y = Sub(f, x) }"""
    x = np.random.default_rng(0).standard_normal((9, 2000)).astype(np.float32)
    wanted = session_of(model).run({"x": x})["y"]
    device = backend_of(gpu).device
    limit = 2000 * 2000 * 4 + 70_000
    monkeypatch.setattr(device, "largest", limit)
    monkeypatch.setattr(device, "largest_allocation", limit)
    session = session_of(model, backend=gpu)
    for _ in range(2):
        np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-3 * np.abs(wanted).max())
    assert session.info()["arena_bytes"] > limit
    assert {row.backend for row in session.placement()} == {gpu}


def test_working_memory_lies_in_one_allocation(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, axes = Spec(_FLOAT32, (4, 300, 4, 50)), Spec.of(np.array([1, 3]))
    op, backend = ReduceSum(), backend_of(gpu)
    result = [op.infer(x, axes)]
    needed = backend.create(op, [x, axes], result).scratch_bytes([x, axes], result)
    assert backend.supports(op, [x, axes], result) is None
    monkeypatch.setattr(backend.device, "largest_allocation", needed - 1)
    assert "to work in, more than the" in backend.supports(op, [x, axes], result)


def test_halves_keep_what_is_fed_finite_and_let_what_is_computed_overflow(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    session = session_of(
        """<ir_version: 10, opset_import: ["": 21]> main (float[2] x, float[2] z) => (float[2] a, float[2] b, float[2] c)
        <float[2] k = {1e6, -1e6}> { a = Abs(x) b = Mul(x, x) c = Min(z, k) }""",
        backend=gpu,
        backend_config=halves("low"),
    )
    results = session.run({"x": np.float32([-1e30, 300]), "z": np.float32([1e30, 1])})
    np.testing.assert_array_equal(results["a"], np.float32([65504, 300]))
    np.testing.assert_array_equal(results["b"], np.float32([np.inf, np.inf]))
    np.testing.assert_array_equal(results["c"], np.float32([65504, -65504]))
