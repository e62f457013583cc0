"""Memory, work groups and failures of Vulkan devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mnnx
from mnnx.errors import BackendError
from tests.backends.vulkan.conftest import Functions

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
main (float[n, 3, w] x) => (float[w, n, 3] y)
<float[3, 1] scale = {2.0, -1.0, 0.5}>
{
    scaled = Mul(x, scale)
    sum = Add(scaled, x)
    y = Transpose<perm = [2, 0, 1]>(sum)
}
"""


def _x(n: int, w: int) -> np.ndarray:
    return np.random.default_rng(n + w).standard_normal((n, 3, w)).astype(np.float32)


def _assert_right(session: mnnx.Session, x: np.ndarray) -> None:
    want = (x * np.array([[2.0], [-1.0], [0.5]], np.float32) + x).transpose(2, 0, 1)
    np.testing.assert_allclose(session.run({"x": x})["y"], want, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 37), (4, 500_000)])
def test_memory_that_the_host_does_not_see_is_copied(
    session_of: Callable[..., mnnx.Session], device: Any, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]
) -> None:
    monkeypatch.setattr(device, "mapped", False)
    monkeypatch.setattr(device.heap, "_blocks", [])
    _assert_right(session_of(MODEL, backend="vulkan"), _x(*shape))
    monkeypatch.setattr(device.heap, "_blocks", [])


def test_more_groups_than_an_axis_has_are_numbered_through_all(session_of: Callable[..., mnnx.Session], device: Any) -> None:
    most = device.limits.maxComputeWorkGroupCount
    usual = list(most)
    most[0] = 3
    try:
        _assert_right(session_of(MODEL, backend="vulkan"), _x(5, 999))
    finally:
        most[0] = usual[0]


def test_shapes_of_one_kernel_share_a_pipeline(session_of: Callable[..., mnnx.Session], device: Any) -> None:
    most = device.limits.maxComputeWorkGroupCount
    usual = list(most)
    session = session_of(MODEL, backend="vulkan")
    _assert_right(session, _x(5, 999))
    made = len(device.pipelines._made)
    most[0] = 3
    try:
        for w in (999, 1200, 1500):
            _assert_right(session, _x(6, w))
    finally:
        most[0] = usual[0]
    assert len(device.pipelines._made) == made


def test_runs_and_released_sessions_leave_nothing_on_the_device(session_of: Callable[..., mnnx.Session], device: Any) -> None:
    session, x = session_of(MODEL, backend="vulkan"), _x(3, 30_000)
    _assert_right(session, x)
    device.collect()
    before = device.handles
    for _ in range(1000):
        session.run({"x": x})
    for _ in range(10):
        with session.interpreter.create_session(session.config) as other:
            _assert_right(other, x)
    device.collect()
    assert device.handles == before
    session.interpreter.release()
    device.collect()
    assert device.handles < before


def test_a_full_device_is_an_error_and_leaves_room_for_the_next(
    session_of: Callable[..., mnnx.Session], device: Any, functions: Functions
) -> None:
    session, x = session_of(MODEL, backend="vulkan"), _x(4, 40_000)
    device.collect()
    before = device.handles
    functions.failing["vkAllocateMemory"] = -2
    with pytest.raises(BackendError, match=r"no memory left.*VK_ERROR_OUT_OF_DEVICE_MEMORY"):
        session.run({"x": x})
    device.collect()
    assert device.handles <= before
    functions.failing.clear()
    _assert_right(session, x)


def test_a_lost_device_ends_its_sessions_and_no_others(session_of: Callable[..., mnnx.Session], device: Any, functions: Functions) -> None:
    session, x = session_of(MODEL, backend="vulkan"), _x(2, 50)
    _assert_right(session, x)
    functions.failing["vkQueueSubmit"] = -4
    with pytest.raises(BackendError, match="lost"):
        session.run({"x": x})
    functions.failing.clear()
    with pytest.raises(BackendError, match="was lost: make a new session"):
        session.run({"x": x})
    _assert_right(session.interpreter.create_session(session.config), x)
    session.release()
