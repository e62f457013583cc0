"""Elementwise ops on the CPU: one kernel per expression, dtypes and broadcast pattern of the innermost dim."""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Sequence

import numpy as np

from mnnx.backends import elementwise
from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import block, blocked_shape
from mnnx.backends.broadcasting import blocked_ways, collapse, expression_of
from mnnx.backends.cpu.arguments import address_of, float64_bits
from mnnx.backends.cpu.chaining import Elements, Operand
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op

_NATIVE = frozenset(map(np.dtype, ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")))


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    found = elementwise.expression(op, inputs)
    if found is None:
        return "no expression for these inputs"
    used = {spec.dtype for spec in inputs if spec is not None} | {outputs[0].dtype, elementwise.compute_dtype(found, inputs)}
    if foreign := used - _NATIVE:
        return f"no kernels for {', '.join(sorted(map(str, foreign)))}"
    return None


def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ElementwiseExecution(op, backend, inputs, outputs)


class ElementwiseExecution(Execution):
    """One pass over the result, for any op that has an expression."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.expression = expression_of(op, inputs)
        self.compute = elementwise.compute_dtype(self.expression, inputs)
        out = outputs[0]
        self.in_place = tuple(
            i for i, spec in enumerate(inputs) if spec is not None and spec.shape == out.shape and spec.dtype.itemsize == out.dtype.itemsize
        )

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return blocked_ways(self.op, self.compute, inputs, outputs, lanes)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        given, out = [tensor for tensor in inputs if tensor is not None], outputs[0]
        if out.spec.size == 0:
            return
        shape, operands = out.shape, [(tensor, tensor.shape) for tensor in given]
        if out.layout:
            shape, operands = blocked_shape(shape, out.layout), [_blocked_operand(tensor, out) for tensor in given]
        total = math.prod(shape)
        sizes, strides = collapse(shape, [dims for _, dims in operands])
        names, calls = _parsed(self.expression.text)
        attributes = tuple(sorted(name for name in names if name in self.op.fields and name not in self.expression.inputs))
        words = [address_of(out), total, sizes[-1], sizes[-2] if len(sizes) > 1 else 1, max(0, len(sizes) - 2)]
        for (memory, _), steps in zip(operands, strides, strict=True):
            words += [address_of(memory), steps[-2] if len(sizes) > 1 else 0]
        words += [float64_bits(getattr(self.op, name)) for name in attributes]
        for axis in range(len(sizes) - 2):
            words += [sizes[axis], *(steps[axis] for steps in strides)]
        function = kernel(
            "elementwise",
            text=self.expression.text,
            letters=self.expression.inputs,
            attributes=attributes,
            compute=self.compute.name,
            inputs=tuple(tensor.dtype.name for tensor in given),
            steps="".join("c" if steps[-1] else "s" for steps in strides),
            result=out.dtype.name,
            **({"columns": out.layout} if out.layout and len(sizes) > 1 and sizes[-1] == out.layout else {}),
        )
        work = total * (1 + len(given) + 10 * calls) / 8
        elements = Elements(total, Operand.of(out, shape, total), tuple(Operand.of(*read, total) for read in operands), work)
        self.backend.commands.record(function, np.array(words, np.int64), self.backend.chunks(work), operands, elements)


def _blocked_operand(tensor: DeviceTensor, out: DeviceTensor) -> tuple[DeviceTensor | np.ndarray, tuple[int, ...]]:
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


@functools.cache
def _parsed(text: str) -> tuple[frozenset[str], int]:
    """The names in an expression, and how many calls of functions that cost more than an addition."""
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    calls = sum(isinstance(node, ast.Call) and not re.fullmatch("where|min|max|abs|sqrt|floor|ceil|round", node.func.id) for node in nodes)
    return names, calls
