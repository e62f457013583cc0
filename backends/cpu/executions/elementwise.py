"""Elementwise ops on the CPU: one kernel per expression, dtypes and broadcast pattern of the innermost dim."""

from __future__ import annotations

import ast
import functools
import re

import numpy as np

from mnnx.backends import elementwise
from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, float64_bits
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.elementwise import Expression
from mnnx.schema.ops.arithmetic import Pow
from mnnx.schema.ops.base import Op

_NATIVE = frozenset(map(np.dtype, ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")))
#: a ** b for constant exponents that need no call of pow.
_POWERS = {1.0: "a", 2.0: "a * a", 3.0: "a * a * a", 4.0: "(a * a) * (a * a)", 0.5: "sqrt(a)", -1.0: "1 / a", -2.0: "1 / (a * a)"}


def expression_of(op: Op, inputs: Specs) -> Expression | None:
    """The op's expression, simplified where an input's value is known."""
    found = elementwise.expression(op, inputs)
    if isinstance(op, Pow) and inputs[1].value is not None and inputs[1].size == 1 and inputs[0].dtype.kind == "f":
        text = _POWERS.get(float(inputs[1].value.reshape(())))
        if text is not None and inputs[1].dtype == inputs[0].dtype:
            return Expression(text, "ab", found.compute)
    return found


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

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        given, out = [tensor for tensor in inputs if tensor is not None], outputs[0]
        total = out.spec.size
        if total == 0:
            return
        sizes, strides = collapse(out.shape, [tensor.shape for tensor in given])
        names, calls = _parsed(self.expression.text)
        attributes = tuple(sorted(name for name in names if name in self.op.fields and name not in self.expression.inputs))
        block = [address_of(out), total, sizes[-1], sizes[-2] if len(sizes) > 1 else 1, max(0, len(sizes) - 2)]
        for tensor, steps in zip(given, strides, strict=True):
            block += [address_of(tensor), steps[-2] if len(sizes) > 1 else 0]
        block += [float64_bits(getattr(self.op, name)) for name in attributes]
        for axis in range(len(sizes) - 2):
            block += [sizes[axis], *(steps[axis] for steps in strides)]
        function = kernel(
            "elementwise",
            text=self.expression.text,
            letters=self.expression.inputs,
            attributes=attributes,
            compute=self.compute.name,
            inputs=tuple(tensor.dtype.name for tensor in given),
            steps="".join("c" if steps[-1] else "s" for steps in strides),
            result=out.dtype.name,
        )
        work = total * (1 + len(given) + 10 * calls) / 8
        self.backend.commands.record(function, np.array(block, np.int64), self.backend.chunks(work))


def collapse(shape: tuple[int, ...], inputs: list[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """The fewest dims in which inputs of these shapes broadcast to `shape`: their sizes, and per input the elements from one index of
    each dim to the next (0: broadcast). At least one dim."""
    steps = [[0] * len(shape) for _ in inputs]
    for mine, dims in zip(steps, inputs, strict=True):
        stride = 1
        for axis in range(-1, -len(dims) - 1, -1):
            mine[axis] = stride if dims[axis] > 1 else 0
            stride *= dims[axis]
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in inputs]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(done[-1] == mine[axis] * size for done, mine in zip(merged, steps, strict=True)):
            sizes[-1] *= size
            for done, mine in zip(merged, steps, strict=True):
                done[-1] = mine[axis]
        else:
            sizes.append(size)
            for done, mine in zip(merged, steps, strict=True):
                done.append(mine[axis])
    return (sizes, merged) if sizes else ([1], [[1] for _ in inputs])


@functools.cache
def _parsed(text: str) -> tuple[frozenset[str], int]:
    """The names in an expression, and how many calls of functions that cost more than an addition."""
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    calls = sum(isinstance(node, ast.Call) and not re.fullmatch("where|min|max|abs|sqrt|floor|ceil|round", node.func.id) for node in nodes)
    return names, calls
