"""Runs one op with blocked tensors on a GPU backend."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Layouts, SharedWeights, create_backend
from mnnx.backends.blocked import block, blocked_shape
from mnnx.backends.gpu.backend import GpuBackend
from mnnx.backends.tensor import DeviceTensor
from mnnx.interpreter.config import BackendConfig, ScheduleConfig
from mnnx.schema.ops.base import Op, Spec

#: What stands in lanes past the last channel, and (NaN) in memory beside the tensors.
GARBAGE = 777.0


def run_blocked(
    gpu: str, op: Op, *inputs: np.ndarray | None, constants: tuple[int, ...] = (1, 2), precision: str = "high"
) -> list[tuple[Layouts, np.ndarray]]:
    """Each way that the execution of `op` offers, the plain one first, with the output of a run.

    Tensors lie amid NaNs, lanes past the last channel hold large numbers before the run; they must hold finite ones afterwards.
    """
    backend = create_backend(gpu, ScheduleConfig(backend=gpu, backend_config=BackendConfig(precision=precision)), SharedWeights())
    specs = [None if a is None else Spec(a.dtype, a.shape, a if i in constants else None) for i, a in enumerate(inputs)]
    result = op.infer(*specs)
    assert backend.supports(op, specs, [result]) is None
    plain = Layouts((0,) * len(inputs), (0,))
    runs = []
    for way in (plain, *backend.create(op, specs, [result]).layouts(specs, [result], backend.block_width)):
        execution = backend.create(op, specs, [result])
        execution.way = way if way.outputs[0] else None
        commands = backend.new_commands()
        tensors = [_filled(backend, array, i in constants, way.inputs[i]) for i, array in enumerate(inputs)]
        output = _tensor(backend, result, way.outputs[0])
        nbytes = execution.scratch_bytes(specs, [result])
        scratch = _tensor(backend, Spec(np.dtype("uint8"), (nbytes,)), 0) if nbytes else None
        execution.on_resize(tensors, [output], scratch)
        commands.submit(0, len(commands))
        raw = np.empty(_shape(output), _stored(backend, result))
        backend.read(output.memory, output.offset, raw)
        assert np.isfinite(raw).all()
        runs.append((way, backend.download(output)))
    backend.release()
    return runs


def _stored(backend: GpuBackend, spec: Spec) -> np.dtype:
    return np.dtype(np.float16) if backend.storage(spec.dtype) == "half" else spec.dtype


def _shape(tensor: DeviceTensor) -> tuple[int, ...]:
    return blocked_shape(tensor.shape, tensor.layout) if tensor.layout else tensor.shape


def _tensor(backend: GpuBackend, spec: Spec, layout: int) -> DeviceTensor:
    """In the middle of its memory, all of which is NaN in any float format."""
    margin = 4 * backend.alignment
    nbytes = math.prod(blocked_shape(spec.shape, layout) if layout else spec.shape) * spec.dtype.itemsize
    memory = backend.allocate(nbytes + 2 * margin)
    backend.write(memory, 0, np.full(nbytes + 2 * margin, 255, np.uint8))
    return DeviceTensor("", spec, backend, memory, margin, layout=layout)


def _filled(backend: GpuBackend, array: np.ndarray | None, constant: bool, layout: int) -> DeviceTensor | None:
    if array is None or constant:
        return None if array is None else backend.constant("", array)
    tensor = _tensor(backend, Spec(array.dtype, array.shape), layout)
    values = array
    if layout:
        values = np.where(block(np.ones(array.shape, np.float32), layout) != 0, block(array, layout), np.float32(GARBAGE))
    backend.write(tensor.memory, tensor.offset, np.ascontiguousarray(values.astype(_stored(backend, tensor.spec))))
    return tensor
