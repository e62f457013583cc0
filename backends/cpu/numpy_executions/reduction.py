"""Reductions, indices of extremes and running sums in NumPy."""

from collections.abc import Callable

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import reduction as ops
from mnnx.schema.ops.axes import normalize_axis
from mnnx.schema.ops.base import specs_of
from mnnx.schema.ops.elementwise import BOOL, INTEGERS


def _fractional(data: np.ndarray) -> np.ndarray:
    """Integers as float64, for results that aren't whole before they are truncated."""
    return data.astype(np.float64) if data.dtype in INTEGERS else widened(data)


def _register(op_class: type[ops.Reduction], prepare: Callable, reduce: Callable) -> None:
    def run(op: ops.Reduction, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        reduced = op.axes(*specs_of(data, axes))
        with np.errstate(all="ignore"):
            return np.asarray(reduce(prepare(data), reduced, op.keepdims)).astype(data.dtype, copy=False)

    numpy_execution(op_class)(run)


def _sum(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


def _mean(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    count = int(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    return np.divide(_sum(x, axes, keepdims), x.dtype.type(count))


def _product(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


def _extreme(function: np.ufunc, sign: int) -> Callable:
    def reduce(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
        if x.dtype == BOOL:
            start = sign < 0
        elif x.dtype in INTEGERS:
            start = np.iinfo(x.dtype).max if sign < 0 else np.iinfo(x.dtype).min
        else:
            start = -np.inf if sign > 0 else np.inf
        return function.reduce(x, axis=axes, keepdims=keepdims, initial=x.dtype.type(start))

    return reduce


def _log_sum_exp(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    peak = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0).astype(x.dtype)
    logs = np.log(_sum(np.exp(x - peak), axes, True)) + peak
    return logs if keepdims else logs.squeeze(axes)


_register(ops.ReduceSum, widened, _sum)
_register(ops.ReduceMean, _fractional, _mean)
_register(ops.ReduceProd, widened, _product)
_register(ops.ReduceMax, widened, _extreme(np.maximum, 1))
_register(ops.ReduceMin, widened, _extreme(np.minimum, -1))
_register(ops.ReduceL1, widened, lambda x, axes, keepdims: _sum(np.abs(x), axes, keepdims))
_register(ops.ReduceL2, _fractional, lambda x, axes, keepdims: np.sqrt(_sum(x * x, axes, keepdims)))
_register(ops.ReduceSumSquare, widened, lambda x, axes, keepdims: _sum(x * x, axes, keepdims))
_register(ops.ReduceLogSum, _fractional, lambda x, axes, keepdims: np.log(_sum(x, axes, keepdims)))
_register(ops.ReduceLogSumExp, _fractional, _log_sum_exp)


@numpy_execution(ops.ArgMax, ops.ArgMin)
def arg_reduction(op: ops.ArgReduction, data: np.ndarray) -> np.ndarray:
    axis = normalize_axis(op.axis, data.ndim)
    search = np.argmax if isinstance(op, ops.ArgMax) else np.argmin
    data = widened(data)
    if op.select_last_index:
        found = data.shape[axis] - 1 - search(np.flip(data, axis), axis=axis, keepdims=op.keepdims)
    else:
        found = search(data, axis=axis, keepdims=op.keepdims)
    return np.asarray(found, np.int64)


@numpy_execution(ops.CumSum, ops.CumProd)
def running(op: ops.Running, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    along = normalize_axis(int(axis.reshape(-1)[0]), x.ndim)
    accumulate, neutral = (np.cumsum, 0) if isinstance(op, ops.CumSum) else (np.cumprod, 1)
    values = np.moveaxis(widened(x), along, 0)
    values = values[::-1] if op.reverse else values
    result = np.full(values.shape, neutral, values.dtype)
    with np.errstate(all="ignore"):
        if op.exclusive:
            accumulate(values[:-1], axis=0, dtype=values.dtype, out=result[1:])
        else:
            accumulate(values, axis=0, dtype=values.dtype, out=result)
    result = result[::-1] if op.reverse else result
    return np.ascontiguousarray(np.moveaxis(result, 0, along)).astype(x.dtype, copy=False)
