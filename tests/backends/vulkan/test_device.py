"""Memory, work groups and failures of Vulkan devices."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mnnx
from mnnx.backends.vulkan.commands import VulkanCommandList
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


class _Interrupted(BaseException):
    pass


@pytest.mark.parametrize("reads", [False, True])
def test_an_interrupted_copy_is_waited_for_by_the_next(device: Any, monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    from mnnx.backends.vulkan.submission import Submission

    monkeypatch.setattr(device, "mapped", False)
    monkeypatch.setattr(device.heap, "_blocks", [])
    memory, array = device.allocate(1 << 20), np.arange(1 << 18, dtype=np.int32)
    device.write(memory, 0, array)
    waits, wait = [], Submission.wait

    def interrupted(self: Submission) -> None:
        waits.append(self._pending)
        if self._pending and waits.count(True) == 1:
            raise _Interrupted
        wait(self)

    monkeypatch.setattr(Submission, "wait", interrupted)
    with pytest.raises(_Interrupted):
        (device.read if reads else device.write)(memory, 0, array[::-1].copy())
    device.write(memory, 0, array)
    got = np.empty_like(array)
    device.read(memory, 0, got)
    np.testing.assert_array_equal(got, array)
    assert waits[:3] == [False, True, True]
    monkeypatch.setattr(device.heap, "_blocks", [])


def test_staging_that_could_not_be_made_is_made_the_next_time(device: Any, functions: Functions, monkeypatch: pytest.MonkeyPatch) -> None:
    from mnnx.backends.vulkan.staging import Staging

    monkeypatch.setattr(device, "mapped", False)
    monkeypatch.setattr(device.heap, "_blocks", [])
    memory, array, staging = device.allocate(1 << 20), np.arange(9, dtype=np.int32), Staging(device)
    functions.failing["vkCreateCommandPool"] = -1
    with pytest.raises(BackendError):
        staging.write(memory, 0, array)
    functions.failing.clear()
    staging.write(memory, 0, array)
    got = np.empty_like(array)
    staging.read(memory, 0, got)
    np.testing.assert_array_equal(got, array)
    monkeypatch.setattr(device.heap, "_blocks", [])


def test_pipelines_that_tuning_makes_are_saved_together(
    session_of: Callable[..., mnnx.Session], device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    pipelines = device.pipelines
    monkeypatch.setattr(pipelines, "_disk", SimpleNamespace(write=lambda name, data: written.append(name)))
    monkeypatch.setattr(pipelines, "_made", {})
    monkeypatch.setattr(pipelines, "_known", set())
    monkeypatch.setattr(pipelines, "_saved", 0)
    session = session_of(MODEL, backend="vulkan", tune=True)
    for _ in range(2):
        _assert_right(session, _x(4, 200))
    assert len(pipelines._made) > 10
    assert len(written) <= 2


@pytest.mark.parametrize(("late", "new", "runs"), [(True, True, 1), (True, False, 0), (False, True, 0)])
def test_drivers_that_compile_late_do_so_when_a_session_is_made(
    session_of: Callable[..., mnnx.Session], device: Any, monkeypatch: pytest.MonkeyPatch, late: bool, new: bool, runs: int
) -> None:
    session, x = session_of(MODEL, backend="vulkan"), _x(3, 30)
    session.run({"x": x})
    device.pipelines.save()
    if new:
        monkeypatch.setattr(device.pipelines, "_saved", -1)
    monkeypatch.setattr(device, "profile", device.profile._replace(compiles_late=late))
    seen, enqueue = [], VulkanCommandList.enqueue

    def noted(self: VulkanCommandList, first: int, last: int) -> None:
        seen.append((first, last))
        enqueue(self, first, last)

    monkeypatch.setattr(VulkanCommandList, "enqueue", noted)
    other = session.interpreter.create_session(session.config)
    other.resize({"x": x.shape})
    assert len(seen) == runs
    _assert_right(other, x)


def test_runs_and_released_sessions_leave_nothing_on_the_device(session_of: Callable[..., mnnx.Session], device: Any) -> None:
    session, x = session_of(MODEL, backend="vulkan"), _x(3, 30_000)
    _assert_right(session, x)
    gc.collect()  # else what earlier tests left in cycles goes while this one counts
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
