"""Conv, ConvTranspose, MatMul and Gemm with constant weights, and what becomes of these when a scale and a shift are folded into them.

Arithmetic is done in float64 and rounded once.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from mnnx.converter.graph import Node, Value
from mnnx.converter.passes.affine_values import Affine, unpadded
from mnnx.schema.ops.arithmetic import Add
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.matmul import Gemm, MatMul

PRODUCTS = (Conv, ConvTranspose, MatMul, Gemm)
_FLOATS = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


class Product:
    """A node of PRODUCTS that `obstacle` found nothing against.

    rank: of its input and result. in_axis, out_axis: where their channels are, counted from the end; ins, outs: how many there are.
    """

    def __init__(self, node: Node, rank: int):
        self.node = node
        self.rank = rank
        self.in_axis = self.out_axis = -1
        shape, op = node.inputs[1].constant.shape, node.op
        match op:
            case Conv():
                self.in_axis = self.out_axis = 1 - rank
                self.ins, self.outs = shape[1] * op.group, shape[0]
            case ConvTranspose():
                self.in_axis = self.out_axis = 1 - rank
                self.ins, self.outs = shape[0], shape[1] * op.group
            case Gemm():
                self.in_axis = -2 if op.transA else -1
                self.ins, self.outs = shape[::-1] if op.transB else shape
            case _:
                self.ins, self.outs = shape

    @property
    def bias(self) -> np.ndarray | None:
        bias = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        return None if bias is None else bias.constant.astype(np.float64)

    def refuses_after(self, affine: Affine) -> str | None:
        """Why the product can't do what `affine` does to its result."""
        if affine.per_channel(self.out_axis, self.outs) is None:
            return "not per channel"
        if isinstance(self.node.op, MatMul) and (affine.scale == 1).all():
            return "a shift alone"
        bias = 0.0 if self.bias is None else _largest(self.bias)
        return self._refuses_sizes(affine, bias * _largest(affine.scale) + _largest(affine.shift))

    def after(self, affine: Affine, result: Value) -> list[Node]:
        """The nodes that make `result` of the product's input and do what `affine` does behind it."""
        scale, shift = affine.per_channel(self.out_axis, self.outs)
        weights = self._scaled(scale, outs=True)
        if isinstance(self.node.op, MatMul):
            return self._with_sum(weights, shift, result) if affine.shifts else [self._made(weights, None, result)]
        bias = self.bias
        bias = (shift if affine.shifts else None) if bias is None else bias * scale + shift
        return [self._made(weights, bias, result)]

    def refuses_before(self, affine: Affine) -> str | None:
        """Why the product can't do what `affine` does to its input."""
        if affine.per_channel(self.in_axis, self.ins) is None:
            return "not per channel"
        padded = isinstance(self.node.op, ConvTranspose) or (isinstance(self.node.op, Conv) and not unpadded(self.node.op))
        if affine.shifts and padded:
            return "a shift of what is padded"
        bias = 0.0 if self.bias is None else _largest(self.bias)
        if affine.shifts:
            weights = self.node.inputs[1].constant
            terms = abs(getattr(self.node.op, "alpha", 1.0)) * weights.size / max(1, self.outs)
            bias += terms * _largest(weights) * _largest(affine.shift)
        return self._refuses_sizes(affine, bias)

    def _refuses_sizes(self, affine: Affine, bias: float) -> str | None:
        """Why the dtype of the weights doesn't hold scaled ones, or a bias that is no larger than this."""
        weights = self.node.inputs[1].constant
        if not holds_scaled(weights, _largest(affine.scale)):
            return f"the weights would be too large or too small for {weights.dtype.name}"
        return None if bias <= float(ml_dtypes.finfo(weights.dtype).max) else f"the bias would be too large for {weights.dtype.name}"

    def before(self, affine: Affine, x: Value) -> list[Node]:
        """The nodes that make the product's result of x, on which they do what `affine` does."""
        scale, shift = affine.per_channel(self.in_axis, self.ins)
        weights, result, bias = self._scaled(scale, outs=False), self.node.outputs[0], self.bias
        if not affine.shifts:
            return [self._made(weights, bias, result, x)]
        added = self._sums(shift)
        if isinstance(self.node.op, MatMul):
            return self._with_sum(weights, added, result, x)
        return [self._made(weights, added if bias is None else bias + added, result, x)]

    def _scaled(self, vector: np.ndarray, outs: bool) -> Value:
        """The weights with each output (else input) channel times its number."""
        old = self.node.inputs[1]
        if (vector == 1).all():
            return old
        narrow = self._times(old.constant, vector, outs).astype(old.constant.dtype)
        return old if np.array_equal(narrow, old.constant) else Value(f"{old.name}/scaled", constant=narrow)

    def _times(self, w: np.ndarray, vector: np.ndarray, outs: bool) -> np.ndarray:
        op = self.node.op
        if isinstance(op, (Conv, ConvTranspose)):
            if outs == isinstance(op, Conv):  # the channels of the first dim
                return w * vector.reshape(-1, *(1 for _ in w.shape[1:]))
            grouped = w.reshape(op.group, -1, *w.shape[1:]) * vector.reshape(op.group, 1, -1, *(1 for _ in w.shape[2:]))
            return grouped.reshape(w.shape)
        columns = outs != getattr(op, "transB", False)
        return w * (vector if columns else vector[:, None])

    def _sums(self, shift: np.ndarray) -> np.ndarray:
        """The product of a vector of input channels: what is added to each output channel."""
        op, w = self.node.op, self.node.inputs[1].constant.astype(np.float64)
        if isinstance(op, Conv):
            taps = w.reshape(op.group, w.shape[0] // op.group, w.shape[1], -1).sum(-1)
            return (taps @ shift.reshape(op.group, -1, 1)).reshape(-1)
        if isinstance(op, Gemm):
            return op.alpha * ((w @ shift) if op.transB else (shift @ w))
        return shift @ w

    def _made(self, weights: Value, bias: np.ndarray | None, result: Value, x: Value | None = None) -> Node:
        first, _, *rest = self.node.inputs
        if bias is not None:
            rest = [Value(f"{result.name}/bias", constant=bias.astype(weights.dtype))]
        op = self.node.op
        if isinstance(op, Gemm) and bias is not None:
            op = op.replace(beta=1.0)  # it may be another one where there was no third input
        return Node(op, [first if x is None else x, weights, *rest], [result], self.node.name)

    def _with_sum(self, weights: Value, shift: np.ndarray, result: Value, x: Value | None = None) -> list[Node]:
        """A MatMul and the sum with a vector, which epilogue fusion makes its bias."""
        product = Value(f"{result.name}/product", result.dtype, result.shape)
        bias = Value(f"{result.name}/bias", constant=shift.astype(weights.dtype))
        return [self._made(weights, None, product, x), Node(Add(), [product, bias], [result], f"{self.node.name}/bias")]


def holds_scaled(weights: np.ndarray, scale: float) -> bool:
    """Whether the dtype of floats holds them times a number: the largest one is neither beyond it nor below its normal numbers."""
    info, largest = ml_dtypes.finfo(weights.dtype), _largest(weights) * abs(scale)
    return scale == 1 or largest == 0 or float(info.tiny) <= largest <= float(info.max)


def _largest(array: np.ndarray) -> float:
    """The largest absolute value, 0 where there is none."""
    return float(max(array.max(initial=0), -array.min(initial=0)))


def obstacle(node: Node, x: Value) -> str | None:
    """Why nothing can be folded into the weights of one of PRODUCTS, whose input is x; None where something may be."""
    if type(node.op) not in PRODUCTS or node.inputs[0] is not x:
        return "not the operand of a product"
    weights = node.inputs[1] if len(node.inputs) > 1 else None
    if weights is None or weights is x or weights.constant is None:
        return "the weights are not constant"
    if weights.constant.dtype not in _FLOATS:
        return "the weights are no floats"
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and bias.constant is None:
        return "the bias is not constant"
    if isinstance(node.op, (MatMul, Gemm)):
        if weights.constant.ndim != 2:
            return "the weights are no matrix"
        if len(weights.users) > 1 and weights.constant.nbytes > 4096:
            return "the weights are used elsewhere, too"
    if isinstance(node.op, Gemm) and bias is not None:
        columns = weights.constant.shape[0 if node.op.transB else 1]
        if node.op.beta != 1 or bias.constant.size not in (1, columns) or bias.constant.shape[-1:] not in ((), (bias.constant.size,)):
            return "the third input is no bias per column"
    return None
