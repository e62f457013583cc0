"""What a signal's handler raises while native code calls Python functions isn't lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from mnnx.backends.cpu import compiler
from mnnx.backends.cpu.signals import held_back
from mnnx.backends.cpu.target import Target


class Interrupted(BaseException):
    pass


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch):
    """The handler of SIGINT, which raises."""

    def handle(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGINT, handle)
    yield handle
    signal.signal(signal.SIGINT, before)


def _compile(notify: Callable[..., None]) -> None:
    """Lets LLVM compile a function, and tell so."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly("define i32 @f() { ret i32 1 }"), machine)
    engine.set_object_cache(notify)
    engine.finalize_object()


def test_a_handler_that_would_be_lost_runs_when_the_block_is_done(handler, capfd) -> None:
    def work() -> None:
        with held_back():
            _compile(lambda module, code: signal.raise_signal(signal.SIGINT))
            done.append("went on")

    done: list[str] = []
    with pytest.raises(Interrupted):
        work()
    assert done
    assert signal.getsignal(signal.SIGINT) is handler
    assert "Exception ignored" not in capfd.readouterr().err


def test_other_handlers_run_at_once(handler) -> None:
    def work() -> None:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            done.append("went on")

    done: list[str] = []
    with pytest.raises(Interrupted):
        work()
    assert not done
    assert signal.getsignal(signal.SIGINT) is handler


def test_nothing_happens_without_a_signal_or_in_other_threads(handler) -> None:
    def work() -> None:
        with held_back():
            found.append(signal.getsignal(signal.SIGINT))

    found: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with held_back():
        assert signal.getsignal(signal.SIGINT) is not handler
    assert [*found, signal.getsignal(signal.SIGINT)] == [handler, handler]


def test_what_ignores_or_ends_stays_as_it_is(handler) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_back():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_kernels_are_compiled_so(handler, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setattr(compiler, "_emit", lambda *arguments: _compile(lambda module, code: signal.raise_signal(signal.SIGINT)))
    with pytest.raises(Interrupted):
        compiler.compile_kernel("selfcheck.count", {}, "k", Target.host())
    assert "Exception ignored" not in capfd.readouterr().err
