"""What ends or blocks a process ends only the child."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx
from mnnx.converter import isolation
from mnnx.converter.isolation import Lost, run_apart

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


MODEL = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> agraph (float[2] x) => (float[2] z) { y = Exp(x) z = Neg(y) }')


def _fail() -> bytes:
    raise ValueError("no such shape")


def test_result_comes_back_whole() -> None:
    data = bytes(range(256)) * 40_000
    assert run_apart(lambda: data, 30, 1 << 30) == data


@pytest.mark.parametrize(
    ("function", "message", "died"),
    [
        (_fail, "no such shape", False),
        (os.abort, r"ended the process \(SIGABRT\)", True),
        (lambda: os._exit(0), r"ended the process \(no answer\)", True),
        (lambda: bytes(8 << 30), "MemoryError", False),
    ],
    ids=["raises", "aborts", "exits", "takes too much memory"],
)
def test_what_became_of_the_child_is_told(function, message: str, died: bool) -> None:
    with pytest.raises(Lost, match=message) as lost:
        run_apart(function, 30, 1 << 30)
    assert lost.value.died is died


def test_child_that_never_answers_is_ended() -> None:
    with pytest.raises(Lost, match=r"more than 0\.2 s"):
        run_apart(lambda: time.sleep(3600), 0.2, 1 << 30)


def test_model_that_aborts_the_inference_of_onnx_does_not_end_the_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = """<ir_version: 9, opset_import: ["" : 18]>
    agraph (float[1,1,2,2] x) => (float[a,b,c,d] z)
    <int64[1] start = {5}, int64[1] end = {-9}, int64[1] axis = {2}, int64[1] step = {-1}>
    { y = Conv(x, w) z = Slice(y, start, end, axis, step) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 1, 5, 5), np.float32), "w"))
    with pytest.raises(mnnx.ConversionError, match="a window of 5 must fit"):
        mnnx.convert(model, tmp_path / "m.mnnx")
    assert "can't infer the shapes of this model: it ended the process" in caplog.text


def test_model_of_the_caller_stays_as_it_is(tmp_path: Path) -> None:
    before = MODEL.SerializeToString()
    mnnx.convert(MODEL, tmp_path / "m.mnnx")
    assert MODEL.SerializeToString() == before


def test_program_that_takes_the_status_of_its_children_itself() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_apart(lambda: b"done", 30, 1 << 30) == b"done"
        with pytest.raises(Lost, match="ended the process"):
            run_apart(os.abort, 30, 1 << 30)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_models_are_converted_without_hints_where_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    files = len(os.listdir("/dev/fd"))
    mnnx.convert(MODEL, tmp_path / "m.mnnx")
    assert "this process can't start another one (no more processes)" in caplog.text
    assert len(os.listdir("/dev/fd")) == files


def test_child_answers_a_parent_with_many_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("few files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1500)]  # select() knows numbers below 1024
    try:
        assert run_apart(lambda: b"done", 30, 1 << 30) == b"done"
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_child_has_no_file_or_handler_of_the_parent() -> None:
    def inherited() -> bytes:
        return repr([signal.getsignal(signal.SIGUSR1), signal.pthread_sigmask(signal.SIG_BLOCK, []), *_open(reader)]).encode()

    reader, writer = os.pipe()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    try:
        found = run_apart(inherited, 30, 1 << 30)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.signal(signal.SIGUSR1, before)
        os.close(reader)
        os.close(writer)
    assert found == repr([signal.SIG_DFL, set()]).encode()


def _open(file: int) -> list[int]:
    try:
        os.fstat(file)
    except OSError:
        return []
    return [file]


@pytest.mark.parametrize("streams", ["0", "1", "2", "0, 1", "1, 2", "0, 1, 2"])
def test_parent_may_have_closed_its_standard_streams(streams: str) -> None:
    script = f"""import os, sys
from mnnx.converter.isolation import run_apart
for stream in [{streams}]: os.close(stream)
os._exit(run_apart(lambda: b"done", 30, 1 << 30) != b"done")"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_child_ends_with_its_parent(tmp_path: Path) -> None:
    script = """import os, sys, time
from mnnx.converter.isolation import run_apart
def work():
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(60)
run_apart(work, 60, 1 << 30)"""
    path = tmp_path / "child"
    with subprocess.Popen([sys.executable, "-c", script, str(path)]) as parent:
        _await(path.exists)
        parent.kill()
    status = Path(f"/proc/{path.read_text()}/stat")
    _await(lambda: not status.exists() or ") Z " in status.read_text())


def _await(done: Callable[[], bool]) -> None:
    for _ in range(2000):
        if done():
            return
        time.sleep(0.01)
    raise TimeoutError


def test_fork_in_another_thread_leaves_no_lock_behind() -> None:
    with isolation._forking:
        child = os.fork()
        if child == 0:  # pragma: no cover - it ends without the rest of the tests
            signal.alarm(20)
            os._exit(run_apart(lambda: b"done", 10, 1 << 30) != b"done")
    assert os.waitpid(child, 0)[1] == 0
