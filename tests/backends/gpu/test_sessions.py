"""Sessions on GPUs: values, placement, callbacks, precision, several at once, processes, and what is said when there is no device."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx
from mnnx.backends.backend import SharedWeights, create_backend
from mnnx.errors import BackendError, BackendUnavailable
from tests.backends.gpu.run import gpu as backend_of
from tests.devices import halves

#: Elementwise ops, movement and a broadcast, of any batch and width; with integers beside them.
MODEL = """
<ir_version: 10, opset_import: ["": 21]>
main (float[n, 3, w] x, int64[n, 3] k) => (float[w, n, 3] y, int64[n, 3] z)
<float[3, 1] scale = {2.0, -1.0, 0.5}>
{
    scaled = Mul(x, scale)
    shifted = Sigmoid(scaled)
    sum = Add(shifted, x)
    y = Transpose<perm = [2, 0, 1]>(sum)
    z = Add(k, k)
}
"""


def _expected(x: np.ndarray) -> np.ndarray:
    scale = np.array([[2.0], [-1.0], [0.5]])
    return (1 / (1 + np.exp(-x.astype(np.float64) * scale)) + x).transpose(2, 0, 1)


def _feed(rng: np.random.Generator, n: int = 2, w: int = 37) -> dict[str, np.ndarray]:
    return {"x": rng.standard_normal((n, 3, w)).astype(np.float32), "k": rng.integers(-9, 9, (n, 3))}


def test_floats_run_there_and_what_it_lacks_runs_on_the_cpu(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    session = session_of(MODEL, backend=gpu)
    feed = _feed(np.random.default_rng(1))
    result = session.run(feed)
    np.testing.assert_allclose(result["y"], _expected(feed["x"]), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result["z"], 2 * feed["k"])
    placed = {row.op_type: row for row in session.placement() if "float" in row.dtype}
    assert {row.backend for row in placed.values()} == {gpu}


def test_resizes_and_comes_back_to_a_former_shape(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    session, rng = session_of(MODEL, backend=gpu), np.random.default_rng(2)
    for n, w in ((1, 5), (3, 64), (1, 5), (2, 0), (1, 1)):
        feed = _feed(rng, n, w)
        np.testing.assert_allclose(session.run(feed)["y"], _expected(feed["x"]), rtol=1e-5, atol=1e-6)


def test_low_precision_stores_halves(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    full = session_of(MODEL, backend=gpu)
    low = session_of(MODEL, backend=gpu, backend_config=halves("low"))
    feed = _feed(np.random.default_rng(3), 4, 4096)
    want = _expected(feed["x"])
    full_error, low_error = (np.abs(session.run(feed)["y"] - want).max() for session in (full, low))
    assert full_error < 1e-5 < low_error < 5e-3
    assert low.info()["arena_bytes"] < 0.6 * full.info()["arena_bytes"]


@pytest.mark.parametrize("faster", [False, True])
def test_low_precision_stores_halves_only_where_that_is_faster(
    session_of: Callable[..., mnnx.Session], gpu: str, faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = backend_of(gpu).device
    monkeypatch.setattr(device, "profile", device.profile._replace(halves=faster))
    session = session_of(MODEL, backend=gpu, backend_config=mnnx.BackendConfig(precision="low"))
    feed = _feed(np.random.default_rng(3), 4, 4096)
    assert (np.abs(session.run(feed)["y"] - _expected(feed["x"])).max() > 1e-5) == faster


def test_callbacks_see_every_op_and_its_time(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    session, feed = session_of(MODEL, level=0, backend=gpu), _feed(np.random.default_rng(4))
    seen: dict[str, np.ndarray] = {}
    nanoseconds: dict[str, int] = {}

    def after(tensors, info) -> None:
        seen[info.type] = tensors[0].copy_to_host()
        nanoseconds[info.type] = info.nanoseconds

    assert session.run_with_callbacks(lambda tensors, info: None, after, feed) == 0
    np.testing.assert_allclose(seen["Transpose"], _expected(feed["x"]), rtol=1e-5, atol=1e-6)
    assert nanoseconds["Mul"] > 0


def test_an_input_takes_the_output_of_a_session_elsewhere(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> main (float[n, 3] x) => (float[n, 3] y) { y = Exp(x) }'
    session, x = session_of(text, backend=gpu), np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    other = session.interpreter.create_session()
    session.run({"x": x})
    other.inputs["x"].copy_from(session.outputs["y"])
    np.testing.assert_allclose(other.run()["y"], np.exp(np.exp(x)), rtol=1e-5)
    session.inputs["x"].copy_from(other.outputs["y"])
    np.testing.assert_allclose(session.run()["y"], np.exp(np.exp(np.exp(x))), rtol=1e-5)


def test_sessions_in_threads_do_not_meet(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    first = session_of(MODEL, backend=gpu)
    sessions = [first, *(first.interpreter.create_session(first.config) for _ in range(3))]
    feeds = [_feed(np.random.default_rng(seed), 2, 500 + seed) for seed in range(len(sessions))]
    wrong: list[int] = []

    def work(number: int) -> None:
        want = _expected(feeds[number]["x"])
        for _ in range(20):
            if not np.allclose(sessions[number].run(feeds[number])["y"], want, rtol=1e-5, atol=1e-6):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_runs_and_sessions_leave_no_memory_behind(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    session, feed = session_of(MODEL, backend=gpu), _feed(np.random.default_rng(5), 4, 1000)
    interpreter, config = session.interpreter, session.config
    for _ in range(50):
        session.run(feed)
    before = _resident()
    for _ in range(1000):
        session.run(feed)
    for _ in range(30):
        with interpreter.create_session(config) as other:
            other.run(feed)
    assert _resident() - before < 8 << 20


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_another_process_compiles_nothing(tmp_path: Path, gpu: str) -> None:
    model = tmp_path / "model.mnnx"
    mnnx.convert(onnx.parser.parse_model(MODEL), model)
    script = (
        "import sys, numpy as np, mnnx\n"
        "session = mnnx.Interpreter.from_file(sys.argv[1]).create_session(mnnx.ScheduleConfig(backend=sys.argv[2]))\n"
        "session.run({'x': np.ones((1, 3, 8), np.float32), 'k': np.ones((1, 3), np.int64)})\n"
        "print(session.info()['kernels_compiled'])\n"
    )
    environment = {**os.environ, "MNNX_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    counts = [
        int(subprocess.run([sys.executable, "-c", script, model, gpu], env=environment, check=True, capture_output=True, text=True).stdout)
        for _ in range(2)
    ]
    assert counts[0] > 0
    assert counts[1] == 0


def test_a_forked_process_is_refused(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    session, feed = session_of(MODEL, backend=gpu), _feed(np.random.default_rng(6))
    want = session.run(feed)["y"]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for use in (lambda: session.run(feed), lambda: session.interpreter.create_session(session.config)):
                with pytest.raises(BackendError, match="fork"):
                    use()
            session.release()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(session.run(feed)["y"], want)


@pytest.mark.parametrize("device", ["7", "no such device", "accelerator"])
def test_a_device_that_is_not_there_is_named_with_those_that_are(session_of: Callable[..., mnnx.Session], gpu: str, device: str) -> None:
    with pytest.raises(BackendUnavailable, match=rf"{device}.*there is {gpu}:0 \("):
        session_of(MODEL, backend=f"{gpu}:{device}")


def test_a_device_is_found_by_number_and_by_name(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    feed = _feed(np.random.default_rng(7))
    for device in ("0", {"opencl": "pthread", "vulkan": "llvmpipe"}[gpu]):
        session = session_of(MODEL, backend=f"{gpu}:{device}")
        np.testing.assert_allclose(session.run(feed)["y"], _expected(feed["x"]), rtol=1e-5, atol=1e-6)


def test_low_precision_keeps_large_numbers_finite(session_of: Callable[..., mnnx.Session], gpu: str) -> None:
    model = '<ir_version: 10, opset_import: ["": 21]> main (float[5] x) => (float[5] y) { y = Neg(x) }'
    session = session_of(model, backend=gpu, backend_config=halves("low"))
    x = np.array([1e9, -1e9, 65504.0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(session.run({"x": x})["y"], np.array([-65504.0, 65504.0, -65504.0, -np.inf, np.nan], np.float32))


def test_devices_of_one_name_share_no_weights(gpu: str) -> None:
    shared, weight = SharedWeights(), np.ones(4, np.float32)
    first, second = (create_backend(gpu, mnnx.ScheduleConfig(backend=gpu), shared) for _ in range(2))
    assert first.packed("plain", weight, np.array) is second.packed("plain", weight, np.array)
    second.device = copy.copy(second.device)
    assert first.packed("plain", weight, np.array) is not second.packed("plain", weight, np.array)


CONVOLUTIONS = """
<ir_version: 10, opset_import: ["": 21]>
main (float[1, 5, 64, 64] x) => (float[1, 5, 64, 64] y)
{ a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w) b = Relu(a) y = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(b, w) }
"""


@pytest.mark.parametrize("nbytes", [90_000, 70_000])  # enough for the plain tensors of 81,920 bytes, but not for blocks; for neither
def test_tensors_that_a_kernel_cant_reach_are_not_its_business(session_of, gpu: str, nbytes: int, monkeypatch) -> None:
    model = onnx.parser.parse_model(CONVOLUTIONS)
    w = np.random.default_rng(1).standard_normal((5, 5, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    x = np.random.default_rng(2).standard_normal((1, 5, 64, 64)).astype(np.float32)
    wanted = session_of(model).run({"x": x})["y"]
    backend = create_backend(gpu, mnnx.ScheduleConfig(), SharedWeights())
    monkeypatch.setattr(backend.device, "largest", nbytes)
    session = session_of(model, backend=gpu)
    np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
    reasons = {row.reason for row in session.placement() if row.backend == "cpu"}
    assert (nbytes == 70_000) == any("one argument of a kernel" in reason for reason in reasons)
