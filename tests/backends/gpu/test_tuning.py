"""Work groups chosen by measuring, and by what was measured before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mnnx
from mnnx.backends.gpu.device import GpuCommandList
from tests.backends.gpu.run import gpu as backend_of

MODEL = """
<ir_version: 10, opset_import: ["": 21]>
main (float[1, 8, 40, 40] x) => (float[1, 8, 40, 40] y) { a = Exp(x) y = Transpose<perm = [0, 1, 3, 2]>(a) }
"""


def test_groups_are_measured_once_and_results_stay(session_of: Callable[..., mnnx.Session], gpu: str, tmp_path: Path) -> None:
    plain = session_of(MODEL, backend=gpu)
    feed = {"x": np.random.default_rng(0).standard_normal((1, 8, 40, 40)).astype(np.float32)}
    want = np.exp(feed["x"].astype(np.float64)).transpose(0, 1, 3, 2)
    file = tmp_path / "times.json"
    plain.interpreter.set_cache_file(file)
    tuned = plain.interpreter.create_session(mnnx.ScheduleConfig(backend=gpu, tune=True))
    assert tuned.info()["tuned"] == 2
    (times,) = (entry["times"] for name, entry in json.loads(file.read_text())["devices"].items() if name.startswith(gpu))
    assert len(times) == 2
    again = plain.interpreter.create_session(mnnx.ScheduleConfig(backend=gpu, tune=True))
    assert (again.info()["tuned"], again.info()["tuned_from_cache"]) == (0, 2)
    for session in (plain, tuned, again):
        np.testing.assert_allclose(session.run(feed)["y"], want, rtol=1e-5)


def test_each_candidate_is_recorded_once(session_of: Callable[..., mnnx.Session], gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(backend_of(gpu).commands)
    timed, enqueue_timed = [], kind.enqueue_timed

    def noted(self: GpuCommandList, first: int, last: int) -> int:
        timed.append(self)
        return enqueue_timed(self, first, last)

    monkeypatch.setattr(kind, "enqueue_timed", noted)
    session_of(MODEL, backend=gpu, tune=True)
    kernels, groups = 2, 9
    assert 0 < len(set(map(id, timed))) <= kernels * groups
    assert len(timed) > 2 * len(set(map(id, timed)))
