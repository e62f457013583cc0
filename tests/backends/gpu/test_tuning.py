"""Work groups chosen by measuring, and by what was measured before."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx
from mnnx.backends.backend import Backend
from mnnx.backends.gpu.device import GpuCommandList
from mnnx.backends.tuning import Choice, Tuner
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


CONVOLUTIONS = """
<ir_version: 10, opset_import: ["": 21]>
main (float[1, 24, 19, 17] x, float[40, 24, 3, 3] w, float[24, 40, 1, 1] v) => (float[1, 24, 19, 17] y)
{ a = Conv<pads = [1, 1, 1, 1]>(x, w) y = Conv(a, v) }
"""


@pytest.mark.parametrize("place", [0, 1, -1])
def test_convolutions_are_right_in_every_tile(
    place: int, session_of: Callable[..., mnnx.Session], gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, model = np.random.default_rng(3), onnx.parser.parse_model(CONVOLUTIONS)
    x = rng.standard_normal((1, 24, 19, 17)).astype(np.float32)
    for name, shape in (("w", (40, 24, 3, 3)), ("v", (24, 40, 1, 1))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name))
        model.graph.input.remove(next(value for value in model.graph.input if value.name == name))
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    tiles = []

    def choose(self: Tuner, backend: Backend, problem: str, candidates: Sequence[str], prepare: Callable) -> Choice:
        chosen = candidates[0]
        if problem.startswith("a tile"):
            assert prepare(candidates[place % len(candidates)])() > 0
            tiles.append(chosen := candidates[place % len(candidates)])
        return Choice(chosen, {})

    monkeypatch.setattr(Tuner, "choose", choose)
    got = session_of(model, backend=gpu, tune=True).run({"x": x})["y"]
    assert len(tiles) == 2
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
