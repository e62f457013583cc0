"""x * scale + shift with constants: reading it from BatchNormalization, Mul, Div, Add and Sub, and carrying it past other ops.

scale and shift are float64 arrays of x's rank, which broadcast to x.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mnnx.converter.graph import Node, Value
from mnnx.converter.passes.base import scalar
from mnnx.converter.passes.dims import broadcasts_to
from mnnx.schema.ops.activation import LeakyRelu, PRelu, Relu
from mnnx.schema.ops.arithmetic import Add, Clip, Div, Mul, Sub
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.normalization import BatchNormalization
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mnnx.schema.ops.shape import Flatten, Reshape, Squeeze, Transpose, Unsqueeze

#: Ops that a scale, and maybe a shift, may be carried past.
CARRIERS = (
    *(Add, AveragePool, Clip, Flatten, GlobalAveragePool, GlobalMaxPool, LeakyRelu, MaxPool, PRelu, Relu, Reshape, Squeeze, Transpose),
    Unsqueeze,
)
AFFINE = (BatchNormalization, Mul, Div, Add, Sub)
_POOLS = (AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool)


class Affine(NamedTuple):
    """x * scale + shift."""

    scale: np.ndarray
    shift: np.ndarray

    @property
    def uniform(self) -> bool:
        """Whether it is the same for all elements."""
        return _is_uniform(self.scale) and _is_uniform(self.shift)

    @property
    def rising(self) -> bool:
        return bool((self.scale > 0).all())

    @property
    def shifts(self) -> bool:
        return bool(self.shift.any())

    def per_channel(self, axis: int, channels: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Vectors of `channels` elements along an axis; None where it differs along others."""
        vectors = [_vector(array, axis, channels) for array in self]
        return None if vectors[0] is None or vectors[1] is None else (vectors[0], vectors[1])


class Carried(NamedTuple):
    """An op, and its inputs but the first, that stands on the other side of what is carried past it."""

    op: Op
    operands: tuple[Value | None, ...]
    affine: Affine


def _is_uniform(array: np.ndarray) -> bool:
    return array.size > 0 and bool((array == array.reshape(-1)[0]).all())


def _vector(array: np.ndarray, axis: int, channels: int) -> np.ndarray | None:
    if array.shape[axis] not in (1, channels) or array.size != array.shape[axis]:
        return None
    vector = array.reshape(-1)
    return vector if vector.size == channels else vector.repeat(channels)


def argument_of(node: Node) -> Value | None:
    """The one computed operand of arithmetic with constants, or what one of CARRIERS is a function of; None where that is none."""
    if not isinstance(node.op, (Mul, Div, Add, Sub)):
        return node.inputs[0] if node.inputs[0] is not None and node.inputs[0].constant is None else None
    computed = [value for value in node.inputs if value is not None and value.constant is None]
    return computed[0] if len(computed) == 1 else None


def affine_of(node: Node, rank: int) -> Affine | None:
    """What one of AFFINE does to its computed operand of that rank; None where that is no function of this form, or isn't finite.

    That includes constants that aren't known to leave the operand's shape as it is.
    """
    with np.errstate(all="ignore"):
        found = _normalization(node, rank) if isinstance(node.op, BatchNormalization) else _arithmetic(node, rank)
    return found if found is not None and all(array.size and np.isfinite(array).all() for array in found) else None


def _normalization(node: Node, rank: int) -> Affine | None:
    if node.op.training_mode or sum(value is not None for value in node.outputs) > 1 or rank < 2:
        return None
    if any(value.constant is None or value.constant.ndim != 1 for value in node.inputs[1:5]):
        return None
    gamma, beta, mean, variance = (value.constant.astype(np.float64) for value in node.inputs[1:5])
    scale = gamma / np.sqrt(variance + node.op.epsilon)
    shape = (1, -1, *(1 for _ in range(rank - 2)))
    return Affine(scale.reshape(shape), (beta - mean * scale).reshape(shape))


def _arithmetic(node: Node, rank: int) -> Affine | None:
    x = argument_of(node)
    operand = node.inputs[1] if x is node.inputs[0] else node.inputs[0]
    if x is None or operand is x or operand.constant.dtype not in (np.float32, np.float64, np.float16):
        return None
    if operand.constant.ndim > rank or not broadcasts_to(operand.constant.shape, x):
        return None
    array = operand.constant.astype(np.float64).reshape((1,) * (rank - operand.constant.ndim) + operand.constant.shape)
    one, zero = np.ones((1,) * rank), np.zeros((1,) * rank)
    match node.op:
        case Mul():
            return Affine(array, zero)
        case Div():
            return Affine(1 / array, zero) if x is node.inputs[0] else None
        case Add():
            return Affine(one, array)
        case Sub():
            return Affine(one, -array) if x is node.inputs[0] else Affine(-one, array)
    return None


def carried(node: Node, affine: Affine, rank: int, forward: bool) -> Carried | str:
    """What stands after `node` carried before it: s f(x) + t = f'(s' x + t'), or `forward`, f(s x + t) = s' f'(x) + t'; or why it can't be.

    `rank` is that of the value that it comes out at.
    """
    op, others = node.op, node.inputs[1:]
    match op:
        case Relu() | Clip():
            return _past_bounds(node, affine, forward)
        case LeakyRelu() | PRelu():
            if isinstance(op, PRelu) and others[0].constant is None:
                return "the slope is computed"
            return Carried(op, others, affine) if affine.rising and not affine.shifts else f"a negative factor, or a shift, past {op.name}"
        case Add():
            return _past_sum(node, affine, forward)
        case Transpose():
            if not op.perm or len(op.perm) != affine.scale.ndim:
                return "the perm of the Transpose isn't known"
            perm = op.perm if forward else tuple(int(i) for i in np.argsort(op.perm))
            return Carried(op, others, Affine(affine.scale.transpose(perm), affine.shift.transpose(perm)))
    if isinstance(op, _POOLS):
        return _past_pool(node, affine)
    if not affine.uniform:
        return f"not one number past {op.name}"
    shape = (1,) * rank
    return Carried(op, others, Affine(*(array.reshape(-1)[:1].reshape(shape) for array in affine)))


def _past_bounds(node: Node, affine: Affine, forward: bool) -> Carried | str:
    """min(max(x, low), high), bounds and all: s * min(max(x, low), high) + t = min(max(s * x + t, s * low + t), s * high + t) for s > 0."""
    falling = bool((affine.scale < 0).all())
    if not affine.rising and not falling:
        return f"factors of both signs, or 0, past {node.op.name}"
    bounds = bounds_of(node)
    if bounds is None:
        return "the bounds of the Clip are computed"
    moved = [(b - affine.shift) / affine.scale if forward else b * affine.scale + affine.shift for b in bounds]
    if not all(map(_is_uniform, moved)):
        return f"bounds of {node.op.name} that differ by channel"
    low, high = (float(array.reshape(-1)[0]) for array in (moved[::-1] if falling else moved))
    if (low, high) == (0.0, np.inf):
        return Carried(Relu(), (), affine)
    dtype = node.inputs[1].dtype if len(node.inputs) > 1 and node.inputs[1] is not None else node.inputs[0].dtype
    if dtype is None:
        return "the dtype isn't known"
    name = node.outputs[0].name
    operands = [Value(f"{name}/{which}", constant=np.array(bound, dtype)) for which, bound in (("low", low), ("high", high))]
    return Carried(Clip(), tuple(None if np.isinf(value.constant) else value for value in operands), affine)


def bounds_of(node: Node) -> tuple[float, float] | None:
    """What a Relu or Clip keeps its results between; None where that is computed, or nothing."""
    if isinstance(node.op, Relu):
        return 0.0, np.inf
    given = (*node.inputs[1:3], None, None)[:2]
    low, high = (default if value is None else scalar(value) for value, default in zip(given, (-np.inf, np.inf), strict=True))
    return None if low is None or high is None or not low <= high else (low, high)


def _past_sum(node: Node, affine: Affine, forward: bool) -> Carried | str:
    """A sum with a constant, which takes all but the factor: s * (x + c) + t = s * x + (s * c + t)."""
    own = affine_of(node, affine.scale.ndim)
    if forward or own is None:
        return "a sum is between"
    constant = next(value for value in node.inputs if value.constant is not None)
    shift = own.shift * affine.scale + affine.shift
    if shift.size > max(own.shift.size, affine.scale.size):
        return "the sum's constant would grow"
    operand = Value(f"{constant.name}/scaled", constant=shift.astype(constant.dtype))
    return Carried(Add(), (operand,), Affine(affine.scale, np.zeros_like(affine.shift)))


def _past_pool(node: Node, affine: Affine) -> Carried | str:
    op = node.op
    if sum(value is not None for value in node.outputs) > 1:
        return f"{op.name} gives places, too"
    if any(array.shape[0] != 1 or any(size != 1 for size in array.shape[2:]) for array in affine):
        return f"not per channel, past {op.name}"
    if isinstance(op, (MaxPool, GlobalMaxPool)) and not affine.rising:
        return f"a negative factor past {op.name}"
    if isinstance(op, AveragePool) and affine.shifts and not unpadded(op):
        return "a shift past an average of padding"
    if isinstance(op, MaxPool) and not unpadded(op) and any(dilation > 1 for dilation in op.dilations):
        return "windows that may have nothing but padding"
    return Carried(op, (), affine)


def unpadded(op: Op) -> bool:
    """Whether a convolution or pooling window meets only elements of its input."""
    return op.auto_pad in ("NOTSET", "VALID") and not any(op.pads or ()) and not getattr(op, "ceil_mode", False)
