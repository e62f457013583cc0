"""Runs one op on the CPU backend's native execution, without an interpreter."""

import ctypes
import mmap

import numpy as np

from mnnx.backends.backend import SharedWeights
from mnnx.backends.cpu import creators
from mnnx.backends.cpu.backend import CpuBackend
from mnnx.backends.tensor import DeviceTensor
from mnnx.interpreter.config import ScheduleConfig
from mnnx.schema.dtypes import STRING
from mnnx.schema.ops.base import Op, Spec


class Native:
    """`op` on arrays; `constants`: indices of the inputs that are weights.

    Raises ValueError where the op has no native execution for them.
    """

    def __init__(self, op: Op, *inputs: np.ndarray | None, constants: tuple[int, ...] = (1, 2), threads: int = 1, outputs: int = 1):
        self.backend = CpuBackend(ScheduleConfig(num_threads=threads), SharedWeights())
        specs = [None if a is None else Spec(a.dtype, a.shape, a if i in constants else None) for i, a in enumerate(inputs)]
        self.specs = op.infer_all(*specs)[:outputs]
        create, supports = creators.find(type(op))
        if reason := supports(op, specs, self.specs):
            raise ValueError(reason)
        self.execution = execution = create(op, self.backend, specs, self.specs)
        self.inputs = tensors = []
        for i, array in enumerate(inputs):
            if array is None:
                tensors.append(None)
            elif i in constants:
                tensors.append(self.backend.constant(f"input{i}", np.ascontiguousarray(array)))
            else:
                tensors.append(self.tensor(Spec(array.dtype, array.shape)))
                tensors[-1].copy_from_host(array)
        self.outputs = [None if s is None else self.tensor(s) for s in self.specs]
        for output in self.outputs:
            if output is not None and output.dtype.kind == "f":
                output.copy_from_host(np.full(output.shape, np.nan, output.dtype))
        nbytes = execution.scratch_bytes(specs, self.specs)
        self.scratch = self.tensor(Spec(np.dtype("uint8"), (nbytes,))) if nbytes else None
        self.commands = self.backend.new_commands()
        execution.on_resize(tensors, self.outputs, self.scratch)

    def tensor(self, spec: Spec) -> DeviceTensor:
        memory = np.empty(spec.size, object) if spec.dtype == STRING else self.backend.allocate(spec.nbytes)
        return DeviceTensor("", spec, self.backend, memory)

    def run(self) -> list[np.ndarray | None]:
        self.commands.submit(0, len(self.commands))
        return [None if o is None else o.copy_to_host() for o in self.outputs]


class Guarded(Native):
    """The same with tensors that end (but for less than `ALIGNMENT` bytes) where a page begins that the process may not touch."""

    ALIGNMENT = 64

    def tensor(self, spec: Spec) -> DeviceTensor:
        size = -(-spec.nbytes // self.ALIGNMENT) * self.ALIGNMENT
        return DeviceTensor("", spec, self.backend, guarded(size)[: spec.nbytes])


def guarded(nbytes: int) -> np.ndarray:
    """So many bytes that end where a page begins which the process may not touch."""
    whole = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, whole + mmap.PAGESIZE), np.uint8)
    guard = ctypes.c_void_p(memory.__array_interface__["data"][0] + whole)
    assert ctypes.CDLL(None).mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return memory[whole - nbytes : whole]


def native(op: Op, *inputs: np.ndarray | None, constants: tuple[int, ...] = (1, 2), threads: int = 1) -> np.ndarray:
    """The first output of one run."""
    return Native(op, *inputs, constants=constants, threads=threads).run()[0]
