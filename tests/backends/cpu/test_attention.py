"""Native attention: on threads, where a query sees nothing, and which forms of it are native."""

import os
import sys

import numpy as np
import pytest

from mnnx.backends.cpu.numpy_executions import registry
from mnnx.schema.ops.attention import Attention, FusedAttention
from tests.backends.cpu.native import Guarded, Native

RNG = np.random.default_rng(11)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("queries", "keys"), [(1, 300), (2, 5), (7, 128), (128, 7), (300, 1000)])
@pytest.mark.parametrize("size", [8, 20, 64])
def test_attention_on_threads(threads: int, queries: int, keys: int, size: int) -> None:
    q, k, v, mask = f32(2, 3, queries, size), f32(2, 3, keys, size), f32(2, 3, keys, size + 3), RNG.random((2, 1, queries, keys)) > 0.4
    for op in (Attention(), Attention(is_causal=True, left_window_size=9)):
        for inputs in ((q, k, v), (q, k, v, mask), (q, k, v, f32(queries, keys))):
            wanted = registry.run(op, [x if x.dtype == bool else x.astype(np.float64) for x in inputs])[0]
            np.testing.assert_allclose(Native(op, *inputs, constants=(), threads=threads).run()[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages as Linux does")
@pytest.mark.parametrize("queries", [1, 2, 3, 9])
@pytest.mark.parametrize("size", [16, 32, 48])
def test_nothing_is_read_beyond_the_tensors(queries: int, size: int) -> None:
    """In a process of its own, which the system ends where it does."""
    child = os.fork()
    if child == 0:
        y = Guarded(Attention(), f32(1, 2, queries, size), f32(1, 2, 5, size), f32(1, 2, 5, size), constants=()).run()[0]
        os._exit(0 if np.isfinite(y).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_query_that_sees_no_key_gets_what_its_op_says() -> None:
    q, k, v, mask = f32(1, 1, 9, 4), f32(1, 1, 6, 4), f32(1, 1, 6, 5), np.zeros((9, 6), np.float32)
    mask[3] = -np.inf
    zero = Native(Attention(), q, k, v, mask, constants=()).run()[0]
    nan = Native(FusedAttention(scale=0.5, k_perm=(0, 1, 3, 2)), q, k, v, mask, constants=()).run()[0]
    assert not zero[0, 0, 3].any()
    assert np.isnan(nan[0, 0, 3]).all()
    others = np.arange(9) != 3
    np.testing.assert_allclose(nan[:, :, others], zero[:, :, others], rtol=1e-5, atol=1e-6)


def test_not_a_number_stays_with_its_query() -> None:
    q, k, v = f32(1, 1, 9, 4), f32(1, 1, 6, 4), f32(1, 1, 6, 5)
    q[0, 0, 2, 1] = np.nan
    y = Native(Attention(), q, k, v, constants=()).run()[0]
    assert np.isnan(y).all(axis=-1)[0, 0].tolist() == [i == 2 for i in range(9)]


@pytest.mark.parametrize(
    ("op", "extra", "reason"),
    [
        (Attention(softcap=2.0), (), "softcap"),
        (Attention(), (f32(5, 4),), "a number for each key"),
        (Attention(), (None, f32(1, 2, 3, 8), f32(1, 2, 3, 8)), "past keys"),
        (FusedAttention(k_perm=(0, 1, 3, 2)), (f32(5, 1),), "a number for each key"),
        (FusedAttention(q_perm=(0, 1, 3, 2), k_perm=(0, 1, 3, 2)), (), "dense"),
    ],
)
def test_what_is_not_native_says_why(op: Attention | FusedAttention, extra: tuple, reason: str) -> None:
    q = f32(1, 2, 8, 5) if getattr(op, "q_perm", ()) else f32(1, 2, 5, 8)
    with pytest.raises(ValueError, match=reason):
        Native(op, q, f32(1, 2, 6, 8), f32(1, 2, 6, 8), *extra, constants=())
