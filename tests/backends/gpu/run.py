"""Runs one op on a GPU backend, in each way that its execution offers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mnnx.backends.backend import Layouts, SharedWeights, create_backend
from mnnx.backends.blocked import block, unblock
from mnnx.backends.gpu.backend import GpuBackend
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from tests.devices import missing


def gpu(name: str, precision: str = "high") -> GpuBackend:
    """A backend; skips the test where this machine has none. At precision "low" it stores halves, also where that is slower."""
    if reason := missing(name):
        pytest.skip(reason)
    hints = SimpleNamespace(precision=precision, memory="low" if precision == "low" else "normal", power="normal")
    return create_backend(name, SimpleNamespace(device=None, num_threads=1, backend_config=hints), SharedWeights())


def run(
    backend: GpuBackend, op: Op, *inputs: np.ndarray | None, constants: tuple[int, ...] = (), in_place: bool = False
) -> list[tuple[Layouts, list[np.ndarray]]]:
    """Each way, plain tensors first, with all outputs of a run. Lanes past the last channel hold large numbers before, and must hold finite
    ones afterwards. in_place: output 0 lies in the memory of the first input that the execution allows."""
    specs = [None if a is None else Spec(a.dtype, a.shape, a if i in constants else None) for i, a in enumerate(inputs)]
    results = op.infer_all(*specs)
    assert backend.supports(op, specs, results) is None
    ways = [Layouts((0,) * len(inputs), (0,) * len(results))]
    if backend.block_width:
        ways += backend.create(op, specs, results).layouts(specs, results, backend.block_width)
    return [(way, _run(backend, op, specs, results, inputs, constants, way, in_place)) for way in ways]


def _run(backend, op, specs, results, inputs, constants, way, in_place) -> list[np.ndarray]:
    execution = backend.create(op, specs, results)
    execution.way = way if any((*way.inputs, *way.outputs)) else None
    tensors = [_placed(backend, array, i in constants, way.inputs[i]) for i, array in enumerate(inputs)]
    outputs = [_allocated(backend, spec, layout) for spec, layout in zip(results, way.outputs, strict=True)]
    if in_place:
        outputs[0].memory = tensors[execution.in_place[0]].memory
    nbytes = execution.scratch_bytes(specs, results)
    scratch = _allocated(backend, Spec(np.dtype(np.uint8), (nbytes,)), 0) if nbytes else None
    commands = backend.new_commands()
    execution.on_resize(tensors, outputs, scratch)
    commands.submit(0, len(commands))
    return [_plain(backend, tensor) for tensor in outputs]


def _allocated(backend: GpuBackend, spec: Spec, layout: int) -> DeviceTensor:
    return DeviceTensor("", spec, backend, backend.allocate(backend.stored_bytes(spec, layout)), layout=layout)


def _placed(backend: GpuBackend, array: np.ndarray | None, constant: bool, layout: int) -> DeviceTensor | None:
    if array is None or constant:
        return None if array is None else backend.constant("", array)
    tensor = _allocated(backend, Spec(array.dtype, array.shape), layout)
    if not layout:
        tensor.copy_from_host(array)
    elif array.size:
        filled = np.where(_used(array.shape, layout), block(array, layout), np.float32(777))
        backend.write(tensor.memory, 0, backend.to_storage(filled))
    return tensor


def _plain(backend: GpuBackend, tensor: DeviceTensor) -> np.ndarray:
    if not tensor.layout or not tensor.spec.size:
        return tensor.copy_to_host()
    used = _used(tensor.shape, tensor.layout)
    stored = np.empty(used.shape, np.float16 if backend.half else np.float32)
    backend.read(tensor.memory, 0, stored)
    assert np.isfinite(stored[~used]).all()
    return unblock(stored.astype(np.float32), tensor.shape[1])


def _used(shape: tuple[int, ...], layout: int) -> np.ndarray:
    """Which elements of a blocked tensor stand for channels."""
    return block(np.ones(shape, np.float32), layout) != 0
