"""What tuning needs of the CPU: the name of the machine, and executions that run on scratch memory to be timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mnnx.backends.backend import Execution, Layouts, SharedWeights, Specs
from mnnx.backends.blocked import tensor_bytes
from mnnx.backends.cpu.arguments import aligned, arguments
from mnnx.backends.cpu.kernel import ABI, kernel, source_hash
from mnnx.backends.tensor import DeviceTensor
from mnnx.backends.tuning_file import Device
from mnnx.errors import BackendError
from mnnx.schema.hashing import blake2b
from mnnx.schema.ops.base import Spec

if TYPE_CHECKING:
    from mnnx.backends.cpu.backend import CpuBackend

#: The modules of the kernels that there are choices among.
_KERNELS = ("blocked_convolution", "blocked_winograd", "convolution", "gemm")
#: What the candidates of a problem may take of memory before no more of them are tried.
_MOST_BYTES = 512 << 20
#: As much as is read between two runs at most: so many times the caches, which hold nothing else then, and so many bytes.
_MOST_CACHES_BETWEEN, _MOST_BYTES_BETWEEN = 4, 128 << 20


def device(backend: CpuBackend) -> Device:
    """The machine with its number of threads, and the state of the kernels."""
    target = backend.target
    kernels = blake2b(repr((ABI, *map(source_hash, _KERNELS))).encode(), digest_size=8).hexdigest()
    return Device(f"cpu {target.identity}, {target.cache_bytes >> 10} KiB of L2, {backend.threads} threads", kernels)


class Bench:
    """Runs executions of one op, for tensors of given Specs, on memory of their own, to be timed.

    A run finds the caches as it would in the model: the weights of all other ops (packed, they are up to four times as large) have
    passed through them, and the op's inputs are there, as something before it has made them.
    """

    def __init__(self, backend: CpuBackend, inputs: Specs, outputs: Specs):
        self.backend, self.inputs, self.outputs = backend, inputs, outputs
        self._taken = 0
        _, level2, level3 = backend.target.caches
        caches = level2 * backend.target.cores + level3
        self._between = aligned(min(2 * backend.tuner.weight_bytes, _MOST_CACHES_BETWEEN * caches, _MOST_BYTES_BETWEEN))
        self._between.fill(1)

    def prepare(self, execution: Execution) -> Callable[[], float]:
        """A function that runs it once and gives the seconds which that took.

        Raises BackendError where a kernel can't be had, or the executions before it have taken all memory that there is for this.
        """
        if self._taken > _MOST_BYTES:
            raise BackendError(f"the candidates before it take more than {_MOST_BYTES >> 20} MiB")
        backend, inputs, outputs = self.backend, self.inputs, self.outputs
        layouts = execution.way or Layouts((0,) * len(inputs), (0,) * len(outputs))
        weights = SharedWeights()
        with backend.apart(weights) as commands:
            given = [_tensor(backend, spec, layout) for spec, layout in zip(inputs, layouts.inputs, strict=True)]
            made = [_tensor(backend, spec, layout) for spec, layout in zip(outputs, layouts.outputs, strict=True)]
            nbytes = execution.scratch_bytes(inputs, outputs)
            scratch = _tensor(backend, Spec(np.dtype(np.uint8), (nbytes,)), 0) if nbytes else None
            for memory in [self._between, *(tensor.memory for tensor in given if tensor is not None and tensor.constant is None)]:
                _record_reading(backend, memory)
            first = len(commands)
            execution.on_resize(given, made, scratch)
        self._taken += nbytes + sum(tensor.memory.nbytes for tensor in (*given, *made) if tensor is not None and tensor.constant is None)
        self._taken += sum(_nbytes(packed) for _, packed in weights.packed.values())

        def run(keep: object = (given, made, scratch, weights)) -> float:
            commands.submit(0, first)
            start = time.perf_counter()
            commands.submit(first, len(commands))
            return time.perf_counter() - start

        run()
        return run


def _nbytes(packed: object) -> int:
    """Of packed weights: an array, or several."""
    return sum(map(_nbytes, packed)) if isinstance(packed, list | tuple) else getattr(packed, "nbytes", 0)


def _tensor(backend: CpuBackend, spec: Spec | None, layout: int) -> DeviceTensor | None:
    """A constant as it is; others full of ones, which no arithmetic is slower with than with usual values."""
    if spec is None:
        return None
    if spec.value is not None:
        return backend.constant("", spec.value)
    memory = backend.allocate(tensor_bytes(spec, layout))
    if spec.dtype == np.float32:
        memory.view(np.float32).fill(1.0)
    return DeviceTensor("", spec, backend, memory, layout=layout)


def _record_reading(backend: CpuBackend, memory: np.ndarray) -> None:
    """A unit that has every thread read its part."""
    sums = aligned(64 * backend.threads)
    read = kernel("peak.read", lanes=backend.target.vector_bytes // 4)
    backend.commands.record(read, arguments(memory, memory.nbytes, sums), backend.threads, (memory, sums))
