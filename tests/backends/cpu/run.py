"""Runs one op on the CPU backend."""

from types import SimpleNamespace

import numpy as np

from mnnx.backends.backend import SharedWeights, create_backend
from mnnx.backends.cpu.backend import CpuBackend
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec


def cpu(threads: int = 1) -> CpuBackend:
    hints = SimpleNamespace(precision="high", memory="normal", power="normal")
    return create_backend("cpu", SimpleNamespace(num_threads=threads, cpu_ids=(), team=None, backend_config=hints), SharedWeights())


def run(backend: CpuBackend, op: Op, *inputs: np.ndarray | None, unknown: tuple[int, ...] = ()) -> tuple[str, list[np.ndarray]]:
    """The name of the execution's class and the outputs. `unknown`: inputs whose values aren't known before the op runs."""
    specs = [None if array is None else Spec(array.dtype, array.shape, None if i in unknown else array) for i, array in enumerate(inputs)]
    results = op.infer_all(*specs)
    assert backend.supports(op, specs, results) is None
    execution = backend.create(op, specs, results)
    tensors = [None if array is None else backend.constant("", array) for array in inputs]
    outputs = [DeviceTensor("", spec, backend, backend.allocate(spec.nbytes)) for spec in results]
    nbytes = execution.scratch_bytes(specs, results)
    scratch = DeviceTensor("", Spec(np.dtype(np.uint8), (nbytes,)), backend, backend.allocate(nbytes)) if nbytes else None
    commands = backend.new_commands()
    execution.on_resize(tensors, outputs, scratch)
    commands.submit(0, len(commands))
    return type(execution).__name__, [tensor.copy_to_host() for tensor in outputs]
