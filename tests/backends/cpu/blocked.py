"""Runs one op with blocked tensors on the CPU backend."""

import numpy as np

from mnnx.backends.backend import Layouts
from mnnx.backends.blocked import block, tensor_bytes
from mnnx.backends.cpu.arguments import array_of
from mnnx.backends.cpu.backend import CpuBackend
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec


def run_blocked(
    backend: CpuBackend, op: Op, *inputs: np.ndarray | None, constants: tuple[int, ...] = ()
) -> list[tuple[Layouts, np.ndarray]]:
    """Each way that the execution of `op` offers, with the first output of a run. Lanes past the last channel hold large numbers before,
    and must hold finite ones afterwards."""
    specs = [None if a is None else Spec(a.dtype, a.shape, a if i in constants else None) for i, a in enumerate(inputs)]
    inferred = op.infer(*specs)
    result = inferred[0] if isinstance(inferred, tuple) else inferred
    runs = []
    for way in backend.create(op, specs, [result]).layouts(specs, [result], backend.block_width):
        execution = backend.create(op, specs, [result])
        execution.way = way
        tensors = [_filled(backend, array, i in constants, way.inputs[i]) for i, array in enumerate(inputs)]
        runs.append((way, record_and_run(backend, execution, specs, tensors, result, way.outputs[0])))
    return runs


def record_and_run(backend: CpuBackend, execution, specs, tensors, result: Spec, layout: int) -> np.ndarray:
    """The result of one run as a plain array."""
    nbytes = execution.scratch_bytes(specs, [result])
    scratch = DeviceTensor("", Spec(np.dtype(np.uint8), (nbytes,)), backend, backend.allocate(nbytes)) if nbytes else None
    output = DeviceTensor("", result, backend, backend.allocate(tensor_bytes(result, layout)), layout=layout)
    array_of(output)[...] = np.nan
    commands = backend.new_commands()
    execution.on_resize(tensors, [output], scratch)
    commands.submit(0, len(commands))
    if layout:
        assert np.isfinite(array_of(output)[~_used(result.shape, layout)]).all()
    return output.copy_to_host()


def _filled(backend: CpuBackend, array: np.ndarray | None, constant: bool, layout: int) -> DeviceTensor | None:
    if array is None or constant:
        return None if array is None else backend.constant("", array)
    spec = Spec(array.dtype, array.shape)
    tensor = DeviceTensor("", spec, backend, backend.allocate(tensor_bytes(spec, layout)), layout=layout)
    if layout:
        array_of(tensor)[...] = np.where(_used(array.shape, layout), block(array, layout), np.float32(777))
    else:
        tensor.copy_from_host(array)
    return tensor


def _used(shape: tuple[int, ...], layout: int) -> np.ndarray:
    """Which elements of a blocked tensor stand for channels."""
    return block(np.ones(shape, np.float32), layout) != 0
