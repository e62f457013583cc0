"""Elementwise ops on GPUs: one kernel per expression and storage."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from mnnx.backends import elementwise
from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import block, blocked_shape
from mnnx.backends.broadcasting import blocked_ways, collapse, expression_of
from mnnx.backends.gpu.constants import BROADCAST_DIMS, MOST_INPUTS
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.expressions import COMPUTES
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops import arithmetic
from mnnx.schema.ops.base import Op

_BOOL, _FLOAT32, _INT32 = np.dtype("bool"), np.dtype("float32"), np.dtype("int32")
#: Dtypes that lie in memory as kernels of other families don't know them.
_WIDE = {np.dtype("int64"): "long", np.dtype("uint64"): "ulong", np.dtype(ml_dtypes.bfloat16): "bfloat"}
#: Integers that are computed as int32, and wrap when they are stored.
_NARROW = frozenset(np.dtype(name) for name in ("int8", "uint8", "int16", "uint16"))
_STORED = {_BOOL, _FLOAT32, _INT32, np.dtype("float16"), np.dtype("uint32")} | _NARROW | _WIDE.keys()
#: Those for which kernels without strides exist as well.
_COMMON = {_BOOL, _FLOAT32, np.dtype("float16"), _INT32}


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    found = elementwise.expression(op, inputs)
    if found is None:
        return "no expression for these inputs"
    compute, given = compute_dtype(op, inputs), [spec for spec in inputs if spec is not None]
    if compute.name not in COMPUTES:
        return f"no kernels that compute in {compute}"
    if foreign := {spec.dtype for spec in (*given, outputs[0])} - _STORED:
        return f"no kernels for {', '.join(sorted(map(str, foreign)))}"
    if len(collapse(outputs[0].shape, [spec.shape for spec in given])[0]) > BROADCAST_DIMS:
        return f"its inputs broadcast in more than {BROADCAST_DIMS} groups of dims"
    return None


def compute_dtype(op: Op, inputs: Specs) -> np.dtype:
    """What kernels compute in."""
    compute = elementwise.compute_dtype(expression_of(op, inputs), inputs)
    return _INT32 if compute in _NARROW else compute


def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    kind = ChainExecution if len(inputs) > MOST_INPUTS else ElementwiseExecution
    return kind(op, backend, inputs, outputs)


class ElementwiseExecution(GpuExecution):
    """A work item per element of the result."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.expression = expression_of(op, inputs)
        self.compute = compute_dtype(op, inputs)
        out = outputs[0]
        size = backend.stored(out.dtype.itemsize, out.dtype)
        self.in_place = tuple(
            i
            for i, spec in enumerate(inputs)
            if spec is not None and spec.shape == out.shape and backend.stored(spec.dtype.itemsize, spec.dtype) == size
        )

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        dtypes, result = [spec.dtype for spec in inputs if spec is not None], outputs[0].dtype
        return [self.kernel_for(dtypes, result, strided)[0] for strided in self._strides(dtypes, result)]

    def _strides(self, dtypes: Sequence[np.dtype], result: np.dtype) -> Sequence[bool]:
        """Whether kernels with strides are needed for some shapes, and whether those without exist."""
        if {*dtypes, result} <= _COMMON:
            return (False, True) if len(dtypes) > 1 else (False,)
        return (True,)

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return _ways(self.op, self.compute, inputs, outputs, lanes)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        self.record(inputs, outputs[0])

    def record(self, inputs: Tensors, out: DeviceTensor) -> None:
        given = [tensor for tensor in inputs if tensor is not None]
        if out.spec.size == 0:
            return
        shape, operands = out.shape, [(tensor, tensor.shape) for tensor in given]
        if out.layout:
            shape, operands = blocked_shape(shape, out.layout), [_blocked_operand(tensor, out) for tensor in given]
        sizes, strides = collapse(shape, [dims for _, dims in operands])
        dtypes, total = [tensor.dtype for tensor in given], math.prod(shape)
        strided = len(sizes) > 1 or False not in self._strides(dtypes, out.dtype)
        found, attributes = self.kernel_for(dtypes, out.dtype, strided)
        if strided:
            padding = BROADCAST_DIMS - len(sizes)
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
            inputs=tuple(map(self._storage, dtypes)),
            result=self._storage(result),
            strided=strided,
        )
        return found, [float(getattr(self.op, name)) for name in names]

    def _storage(self, dtype: np.dtype) -> str:
        return _WIDE.get(dtype) or self.backend.storage(dtype)


class ChainExecution(GpuExecution):
    """Max, Min, Sum or Mean of many inputs: of the first ones, then of that and the next ones, in the result's memory."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        out, summing = outputs[0], isinstance(op, (arithmetic.Sum, arithmetic.Mean))
        one = arithmetic.Sum() if summing else op
        self.compute = compute_dtype(one, inputs[:MOST_INPUTS])
        self.parts = [(ElementwiseExecution(one, backend, inputs[:MOST_INPUTS], outputs), 0, MOST_INPUTS)]
        for first in range(MOST_INPUTS, len(inputs), MOST_INPUTS - 1):
            last = min(first + MOST_INPUTS - 1, len(inputs))
            self.parts.append((ElementwiseExecution(one, backend, [out, *inputs[first:last]], outputs), first, last))
        self.divisor = self.division = None
        if isinstance(op, arithmetic.Mean):
            self.divisor = backend.constant("", np.full((), len(inputs), out.dtype))
            self.division = ElementwiseExecution(arithmetic.Div(), backend, [out, self.divisor.spec], outputs)

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        out = outputs[0]
        needed = [
            found for part, first, last in self.parts for found in part.kernels([*([out] if first else []), *inputs[first:last]], outputs)
        ]
        return needed if self.division is None else [*needed, *self.division.kernels([out, self.divisor.spec], outputs)]

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return _ways(self.op, self.compute, inputs, outputs, lanes)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        out = outputs[0]
        for part, first, last in self.parts:
            part.record([*([out] if first else []), *inputs[first:last]], out)
        if self.division is not None:
            self.division.record([out, self.divisor], out)


def _ways(op: Op, compute: np.dtype, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
    """Those of `blocked_ways` in which the operands don't broadcast in too many groups of dims."""
    out, given = outputs[0], [(i, spec) for i, spec in enumerate(inputs) if spec is not None]

    def fits(way: Layouts) -> bool:
        shapes = [_blocked_dims(spec.shape, way.inputs[i], out.shape, lanes) for i, spec in given]
        return len(collapse(blocked_shape(out.shape, lanes), shapes)[0]) <= BROADCAST_DIMS

    return [way for way in blocked_ways(op, compute, inputs, outputs, lanes) if fits(way)]


def _blocked_dims(shape: tuple[int, ...], layout: int, out: tuple[int, ...], lanes: int) -> tuple[int, ...]:
    """The shape of an operand's memory that broadcasts to that of a blocked result; plain ones with channels are packed."""
    whole = (1,) * (len(out) - len(shape)) + shape
    return blocked_shape(whole, lanes) if layout or whole[1] > 1 else (*whole, 1)


def _blocked_operand(tensor: DeviceTensor, out: DeviceTensor) -> tuple[DeviceTensor | Memory, tuple[int, ...]]:
    """Memory of an input of the blocked `out`, and its shape there, which broadcasts to that of `out`."""
    lanes = out.layout
    dims = _blocked_dims(tensor.shape, tensor.layout, out.shape, lanes)
    shape = (1,) * (out.spec.rank - tensor.spec.rank) + tensor.shape
    if tensor.layout or shape[1] == 1:
        return tensor, dims
    return out.backend.packed(("blocked", shape, lanes), tensor.constant, functools.partial(_pack, shape=shape, lanes=lanes)), dims


def _pack(array: np.ndarray, shape: tuple[int, ...], lanes: int) -> np.ndarray:
    return block(array.reshape(shape), lanes)
