"""Elementwise ops on GPUs: one kernel per expression and storage."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends import elementwise
from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import block, blocked_shape
from mnnx.backends.broadcasting import blocked_ways, collapse, expression_of
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.expressions import COMPUTES
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op

#: As in kernels/elementwise.py.
DIMS = 4

_BOOL, _FLOAT16, _FLOAT32 = np.dtype("bool"), np.dtype("float16"), np.dtype("float32")


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    found = elementwise.expression(op, inputs)
    if found is None:
        return "no expression for these inputs"
    compute, given = elementwise.compute_dtype(found, inputs), [spec for spec in inputs if spec is not None]
    if compute.name not in COMPUTES:
        return f"no kernels that compute in {compute}"
    own = {_FLOAT32, _FLOAT16, _BOOL} if compute == _FLOAT32 else {compute, _BOOL}
    if foreign := {spec.dtype for spec in (*given, outputs[0])} - own:
        return f"no kernels for {', '.join(sorted(map(str, foreign)))} computed in {compute}"
    if len(collapse(outputs[0].shape, [spec.shape for spec in given])[0]) > DIMS:
        return f"its inputs broadcast in more than {DIMS} groups of dims"
    return None


def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ElementwiseExecution(op, backend, inputs, outputs)


class ElementwiseExecution(GpuExecution):
    """A work item per element of the result."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.expression = expression_of(op, inputs)
        self.compute = elementwise.compute_dtype(self.expression, inputs)
        out = outputs[0]
        size = backend.stored(out.dtype.itemsize, out.dtype)
        self.in_place = tuple(
            i
            for i, spec in enumerate(inputs)
            if spec is not None and spec.shape == out.shape and backend.stored(spec.dtype.itemsize, spec.dtype) == size
        )

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        dtypes, result = [spec.dtype for spec in inputs if spec is not None], outputs[0].dtype
        return [self.kernel_for(dtypes, result, strided)[0] for strided in ((False, True) if len(dtypes) > 1 else (False,))]

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return blocked_ways(self.op, self.compute, inputs, outputs, lanes)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        given, out = [tensor for tensor in inputs if tensor is not None], outputs[0]
        if out.spec.size == 0:
            return
        shape, operands = out.shape, [(tensor, tensor.shape) for tensor in given]
        if out.layout:
            shape, operands = blocked_shape(shape, out.layout), [_blocked_operand(tensor, out) for tensor in given]
        sizes, strides = collapse(shape, [dims for _, dims in operands])
        found, attributes = self.kernel_for([tensor.dtype for tensor in given], out.dtype, len(sizes) > 1)
        total = math.prod(shape)
        if len(sizes) > 1:
            padding = DIMS - len(sizes)
            params = [total, *([1] * padding + sizes)[1:]]
            for steps in strides:
                params += [0] * padding + steps
        else:
            params = [total, *(steps[0] for steps in strides)]
        buffers = [memory for memory, _ in operands]
        self.backend.commands.record(found, [*buffers, out], [*params, *attributes], (total,))

    def kernel_for(self, dtypes: Sequence[np.dtype], result: np.dtype, strided: bool) -> tuple[Kernel, list[float]]:
        """The kernel for inputs and a result of such dtypes, and the values of the op's attributes that it takes."""
        names = sorted(elementwise.names_of(self.expression.text) & self.op.fields.keys() - set(self.expression.inputs))
        found = kernel(
            "elementwise",
            text=self.expression.text,
            letters=self.expression.inputs,
            attributes=tuple(names),
            compute=self.compute.name,
            inputs=tuple(map(self.backend.storage, dtypes)),
            result=self.backend.storage(result),
            strided=strided,
        )
        return found, [float(getattr(self.op, name)) for name in names]


def _blocked_operand(tensor: DeviceTensor, out: DeviceTensor) -> tuple[DeviceTensor | Memory, tuple[int, ...]]:
    """Memory of an input of the blocked `out`, and its shape there, which broadcasts to that of `out`."""
    lanes = out.layout
    if tensor.layout:
        return tensor, blocked_shape(tensor.shape, lanes)
    shape = (1,) * (out.spec.rank - tensor.spec.rank) + tensor.shape
    if shape[1] == 1:
        return tensor, (*shape, 1)
    pack = functools.partial(_pack, shape=shape, lanes=lanes)
    return out.backend.packed(("blocked", shape, lanes), tensor.constant, pack), blocked_shape(shape, lanes)


def _pack(array: np.ndarray, shape: tuple[int, ...], lanes: int) -> np.ndarray:
    return block(array.reshape(shape), lanes)
