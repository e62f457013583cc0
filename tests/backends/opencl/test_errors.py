"""What an OpenCL driver says becomes a BackendError."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mnnx
from mnnx.backends.gpu.kernel import kernel
from mnnx.errors import BackendError
from tests.backends.gpu.run import gpu

MODEL = '<ir_version: 10, opset_import: ["": 21]> main (float[4] x) => (float[4] y) { y = Exp(x) }'


def _failing(*arguments: Any, **named: Any) -> None:
    import pyopencl as cl

    raise cl.RuntimeError("failed on purpose", cl.status_code.OUT_OF_RESOURCES)


@pytest.mark.parametrize("function", ["flush", "finish"])
def test_of_queues(function: str) -> None:
    backend = gpu("opencl")
    backend.queue = SimpleNamespace(flush=lambda: None, finish=lambda: None)
    setattr(backend.queue, function, _failing)
    with pytest.raises(BackendError, match="on purpose"):
        {"flush": lambda: backend.commands.submit(0, 0), "finish": backend.release}[function]()


@pytest.mark.parametrize("function", ["CommandQueue", "Kernel", "Buffer", "enqueue_copy"])
def test_of_functions(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = gpu("opencl")
    memory, array, exponential = backend.allocate(64), np.zeros(4, np.float32), kernel("softmax.hard", storage="float")
    backend.device.kernel(exponential)
    real = backend.device.cl
    names = {name: getattr(real, name) for name in ("Error", "mem_flags", "command_queue_properties", "CommandQueue", "Kernel", "Buffer")}
    monkeypatch.setattr(backend.device, "cl", SimpleNamespace(**{**names, function: _failing}))
    use = {
        "CommandQueue": backend.device.queue,
        "Kernel": lambda: backend.device.kernel(exponential),
        "Buffer": lambda: backend.allocate(64),
        "enqueue_copy": lambda: backend.write(memory, 0, array),
    }[function]
    with pytest.raises(BackendError, match="on purpose"):
        use()


@pytest.mark.parametrize("offset", [1, 64])
def test_of_arguments_and_pieces(offset: int) -> None:
    backend = gpu("opencl")
    memory = backend.allocate(64)
    with pytest.raises(BackendError, match="failed"), backend.device.errors("do so"):
        memory.piece(offset, 1 << 20)


def test_of_a_kernel_that_fails_names_the_op(session_of: Callable[..., mnnx.Session], monkeypatch: pytest.MonkeyPatch) -> None:
    from mnnx.backends.opencl.commands import OpenClCommandList

    gpu("opencl")
    session = session_of(MODEL, backend="opencl")
    enqueue = OpenClCommandList._enqueue_to
    monkeypatch.setattr(
        OpenClCommandList, "_enqueue_to", lambda self, *range_: setattr(self, "_enqueue", _failing) or enqueue(self, *range_)
    )
    with pytest.raises(BackendError, match=r"Exp.*on purpose"):
        session.run({"x": np.zeros(4, np.float32)})
