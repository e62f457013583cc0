"""Reductions over axes, indices of extremes, and running sums and products. ONNX ReduceSum-13, ReduceMax-20, ArgMax-13, CumSum-14, … ."""

from typing import ClassVar

import numpy as np

from mnnx.schema.dtypes import DtypeSet
from mnnx.schema.ops.axes import normalize_axes, normalize_axis
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import BOOL, NUMERIC, require_dtype, require_inputs

INT64 = np.dtype("int64")


class Reduction(Op):
    """Inputs (data, axes): `axes`, int64, may be left out or empty, which means all axes, or none where `noop_with_empty_axes`.

    Reduced axes stay as dims of 1 where `keepdims`. The result has the dtype of the data.
    """

    accepts: ClassVar[DtypeSet] = NUMERIC
    keepdims: bool = True
    noop_with_empty_axes: bool = False

    def axes(self, data: Spec, axes: Spec | None = None) -> tuple[int, ...]:
        """The axes to reduce, ascending and not negative. Raises DataDependent where their input isn't known yet."""
        wanted = () if axes is None or axes.size == 0 else axes.ints()
        if not wanted:
            return () if self.noop_with_empty_axes else tuple(range(data.rank))
        return tuple(sorted(normalize_axes(wanted, data.rank)))

    def infer(self, *inputs):
        require_inputs(inputs, 1, 2)
        data, axes = inputs if len(inputs) == 2 else (inputs[0], None)
        require_dtype(data, self.accepts)
        if axes is not None:
            require(axes.dtype == INT64 and axes.rank <= 1, f"axes must be a vector of int64; found {axes}")
        reduced = self.axes(data, axes)
        shape = (1 if axis in reduced else dim for axis, dim in enumerate(data.shape) if self.keepdims or axis not in reduced)
        return Spec(data.dtype, tuple(shape))


@op("ReduceSum")
class ReduceSum(Reduction):
    """The sum; integers wrap."""


@op("ReduceMean")
class ReduceMean(Reduction):
    """The mean; truncated for integers, NaN of nothing."""


@op("ReduceProd")
class ReduceProd(Reduction):
    """The product; integers wrap."""


@op("ReduceMax")
class ReduceMax(Reduction):
    """The largest; NaN where one is; of nothing: the smallest number of the dtype."""

    accepts = NUMERIC | {BOOL}


@op("ReduceMin")
class ReduceMin(Reduction):
    """The smallest; NaN where one is; of nothing: the largest number of the dtype."""

    accepts = NUMERIC | {BOOL}


@op("ReduceL1")
class ReduceL1(Reduction):
    """The sum of absolute values."""


@op("ReduceL2")
class ReduceL2(Reduction):
    """The square root of the sum of squares."""


@op("ReduceSumSquare")
class ReduceSumSquare(Reduction):
    """The sum of squares."""


@op("ReduceLogSum")
class ReduceLogSum(Reduction):
    """The logarithm of the sum."""


@op("ReduceLogSumExp")
class ReduceLogSumExp(Reduction):
    """The logarithm of the sum of exponentials, computed so that it doesn't overflow."""


class ArgReduction(Op):
    """The int64 index, along `axis`, of an extreme element: the first such one, or the last where `select_last_index`."""

    axis: int = 0
    keepdims: bool = True
    select_last_index: bool = False

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        data = inputs[0]
        require_dtype(data, NUMERIC)
        require(data.rank > 0, f"a scalar has no axis to search; found {data}")
        axis = normalize_axis(self.axis, data.rank)
        require(data.shape[axis] > 0, f"the axis searched must not be empty; found axis {axis} of {data}")
        kept = (1,) if self.keepdims else ()
        return Spec(INT64, data.shape[:axis] + kept + data.shape[axis + 1 :])


@op("ArgMax")
class ArgMax(ArgReduction):
    """The index of the largest; a NaN counts as largest."""


@op("ArgMin")
class ArgMin(ArgReduction):
    """The index of the smallest; a NaN counts as smallest."""


class Running(Op):
    """Inputs (x, axis), `axis` one int32 or int64: each element combined with those before it (behind it where `reverse`) along it.

    `exclusive` leaves the element itself out.
    """

    exclusive: bool = False
    reverse: bool = False

    def infer(self, *inputs):
        require_inputs(inputs, 2)
        x, axis = inputs
        require_dtype(x, NUMERIC)
        require(axis.size == 1 and axis.dtype in (INT64, np.dtype("int32")), f"axis must be one int32 or int64; found {axis}")
        if axis.value is not None:
            normalize_axis(axis.ints()[0], x.rank)
        return Spec(x.dtype, x.shape)


@op("CumSum")
class CumSum(Running):
    """Running sums; integers wrap."""


@op("CumProd")
class CumProd(Running):
    """Running products; integers wrap."""
