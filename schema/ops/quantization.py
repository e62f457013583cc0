"""Linear quantization: real = (quantized - zero point) * scale."""

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.axes import normalize_axis
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.convolution import Conv, Convolution
from mnnx.schema.ops.elementwise import FLOATS, require_dtype
from mnnx.schema.ops.matmul import matmul_shape
from mnnx.schema.records import Row

#: Element types that QuantizeLinear makes: integers, and floats of 8 bits and less.
INTEGERS = tuple(np.dtype(t) for t in ("int8", "uint8", "int16", "uint16", "int32"))
SMALL_INTEGERS = tuple(np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2))
FLOATS8 = tuple(np.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz))
FLOATS6 = tuple(np.dtype(t) for t in (ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn))
FLOAT4 = np.dtype(ml_dtypes.float4_e2m1fn)
QUANTIZED = (*INTEGERS, *SMALL_INTEGERS, *FLOATS8, *FLOATS6, FLOAT4)
BYTES = (np.dtype("int8"), np.dtype("uint8"))

_SCALE_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_INT32 = np.dtype("int32")


def check_granularity(x: Spec, scale: Spec, zero_point: Spec | None, axis: int, block_size: int) -> None:
    """Raises RuleError unless `scale` is one value, one per index of `axis`, or one per block of `axis`, and `zero_point` is alike."""
    require(block_size >= 0, f"block_size must not be negative; it is {block_size}")
    if zero_point is not None:
        same = zero_point.shape == scale.shape or zero_point.size == scale.size == 1
        require(same, f"scale and zero point must have the same shape; they are {scale} and {zero_point}")
    if scale.size == 1 and scale.rank <= 1:
        return
    axis = normalize_axis(axis, x.rank)
    if scale.rank == 1 and not block_size:
        require(scale.shape[0] == x.shape[axis], f"scale must have one value per index of axis {axis} of {x}; it is {scale}")
        return
    require(block_size > 0, f"scale {scale} must be a scalar or a vector where block_size isn't given")
    blocks = math.ceil(x.shape[axis] / block_size)
    expected = (*x.shape[:axis], blocks, *x.shape[axis + 1 :])
    require(scale.shape == expected, f"scale for blocks of {block_size} on axis {axis} of {x} must have shape {expected}; it is {scale}")


@op("QuantizeLinear")
class QuantizeLinear(Op):
    """(x, scale, zero_point?) → saturate(round_to_even(x / scale) + zero_point), of x's shape. ONNX QuantizeLinear-28.

    scale: a scalar, a vector along `axis`, or, where `block_size` is set, one value per block of that many elements along `axis`.
    The result has the dtype of zero_point, else `output_dtype`, else uint8. The division is done in `precision`, else in scale's
    dtype. `saturate`: whether values out of a float8 type's range become its largest one, or NaN or infinity.
    """

    axis: int = 1
    block_size: int = 0
    output_dtype: np.dtype | None = None
    precision: np.dtype | None = None
    saturate: bool = True

    def check(self):
        require(self.output_dtype is None or self.output_dtype in QUANTIZED, f"output_dtype can't be {self.output_dtype}")
        require(self.precision is None or self.precision in FLOATS, f"precision can't be {self.precision}")

    def infer(self, x: Spec, scale: Spec, zero_point: Spec | None = None) -> Spec:
        require_dtype(x, FLOATS | {_INT32}, "the input")
        require_dtype(scale, FLOATS | {_INT32, _SCALE_E8M0}, "scale")
        check_granularity(x, scale, zero_point, self.axis, self.block_size)
        dtype = self.output_dtype
        if zero_point is not None:
            require_dtype(zero_point, QUANTIZED, "zero point")
            require(dtype in (None, zero_point.dtype), f"output_dtype {dtype} must be the zero point's dtype {zero_point.dtype}")
            dtype = zero_point.dtype
        return Spec(np.dtype("uint8") if dtype is None else dtype, x.shape)


@op("DequantizeLinear")
class DequantizeLinear(Op):
    """(x, scale, zero_point?) → (x - zero_point) * scale, of x's shape. ONNX DequantizeLinear-28.

    scale and zero_point as for QuantizeLinear. The result has `output_dtype`, else scale's dtype.
    """

    axis: int = 1
    block_size: int = 0
    output_dtype: np.dtype | None = None

    def check(self):
        require(self.output_dtype is None or self.output_dtype in FLOATS, f"output_dtype can't be {self.output_dtype}")

    def infer(self, x: Spec, scale: Spec, zero_point: Spec | None = None) -> Spec:
        require_dtype(x, QUANTIZED, "the input")
        require_dtype(scale, FLOATS | {_SCALE_E8M0}, "scale")
        check_granularity(x, scale, zero_point, self.axis, self.block_size)
        if zero_point is not None:
            require(zero_point.dtype == x.dtype, f"the zero point must have the input's dtype {x.dtype}; it is {zero_point.dtype}")
        dtype = scale.dtype if self.output_dtype is None else self.output_dtype
        require(dtype in FLOATS, f"output_dtype must be given where scale is {dtypes.name(scale.dtype)}")
        return Spec(dtype, x.shape)


@op("DynamicQuantizeLinear")
class DynamicQuantizeLinear(Op):
    """x (float32) → (y, scale, zero_point): uint8 values of x's shape, a float32 scalar, a uint8 scalar. ONNX DynamicQuantizeLinear-11.

    The range min(x, 0) … max(x, 0) is spread over 0 … 255; scale is 1 where all of x is 0.
    """

    def infer(self, x: Spec) -> tuple[Spec, Spec, Spec]:
        require_dtype(x, (np.dtype("float32"), np.dtype("float16")), "the input")
        return Spec(np.dtype("uint8"), x.shape), Spec(np.dtype("float32"), ()), Spec(np.dtype("uint8"), ())


def check_matrix_parameter(matrix: Spec, parameter: Spec | None, what: str, row: bool) -> None:
    """A zero point or scale of a matrix: one value, or one per row (`row`) or column, as a vector or with the matrix's rank."""
    if parameter is None or parameter.size == 1:
        return
    axis = -2 if row and matrix.rank > 1 else -1
    count = matrix.shape[axis]
    full = list(matrix.shape)
    full[-1 if row else -2] = 1
    whole = parameter.rank == matrix.rank > 1 and all(p in (1, m) for p, m in zip(parameter.shape, full, strict=True))
    require(
        parameter.shape == (count,) or whole,
        f"{what} of {matrix} must be a scalar or have one value per {'row' if row else 'column'}; it is {parameter}",
    )


@op("MatMulInteger")
class MatMulInteger(Op):
    """(a, b, a_zero_point?, b_zero_point?) → (a - a_zero_point) @ (b - b_zero_point) in int32. ONNX MatMulInteger-10.

    a and b are int8 or uint8 (int16 too); zero points are scalars, one per row of a, one per column of b.
    """

    def infer(self, a: Spec, b: Spec, a_zero_point: Spec | None = None, b_zero_point: Spec | None = None) -> Spec:
        allowed = (*BYTES, np.dtype("int16"), np.dtype("uint16"))
        require_dtype(a, allowed, "a")
        require_dtype(b, allowed, "b")
        for matrix, zero_point in ((a, a_zero_point), (b, b_zero_point)):
            if zero_point is not None:
                require(zero_point.dtype == matrix.dtype, f"the zero point of {matrix} must have its dtype; it is {zero_point}")
        check_matrix_parameter(a, a_zero_point, "the zero point", row=True)
        check_matrix_parameter(b, b_zero_point, "the zero point", row=False)
        return Spec(_INT32, matmul_shape(a.shape, b.shape))

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * outputs[0].size * inputs[0].shape[-1]


@op("QLinearMatMul")
class QLinearMatMul(Op):
    """(a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point) → quantized a @ b. ONNX QLinearMatMul-21.

    a's scale and zero point: scalars or one per row; b's: scalars or one per column; y's: scalars. The result has y_zero_point's dtype.
    """

    def infer(
        self,
        a: Spec,
        a_scale: Spec,
        a_zero_point: Spec,
        b: Spec,
        b_scale: Spec,
        b_zero_point: Spec,
        y_scale: Spec,
        y_zero_point: Spec,
    ) -> Spec:
        for matrix, scale, zero_point, row in ((a, a_scale, a_zero_point, True), (b, b_scale, b_zero_point, False)):
            require_dtype(matrix, (*BYTES, *FLOATS8), "a matrix")
            require_dtype(scale, FLOATS, "a scale")
            require(zero_point.dtype == matrix.dtype, f"the zero point of {matrix} must have its dtype; it is {zero_point}")
            check_matrix_parameter(matrix, scale, "the scale", row)
            check_matrix_parameter(matrix, zero_point, "the zero point", row)
        require_dtype(y_scale, FLOATS, "y_scale")
        require_dtype(y_zero_point, (*BYTES, *FLOATS8), "y_zero_point")
        require(y_scale.size == y_zero_point.size == 1, f"y_scale and y_zero_point must be scalars; they are {y_scale}, {y_zero_point}")
        return Spec(y_zero_point.dtype, matmul_shape(a.shape, b.shape))

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * outputs[0].size * inputs[0].shape[-1]


_CONV_FLOAT = np.dtype("float32")


def _conv_shape(conv: Convolution, x: Spec, w: Spec) -> tuple[int, ...]:
    """The shape that Conv gives with the window attributes of `conv`."""
    return as_conv(conv).infer(Spec(_CONV_FLOAT, x.shape), Spec(_CONV_FLOAT, w.shape)).shape


def as_conv(conv: Convolution) -> Conv:
    """The Conv with the window attributes of a ConvInteger or QLinearConv."""
    return Conv(**{key: getattr(conv, key) for key in Conv.fields})


def _check_channel_parameter(w: Spec, parameter: Spec | None, what: str) -> None:
    if parameter is not None:
        legal = parameter.size == 1 or parameter.shape == (w.shape[0],)
        require(legal, f"{what} of the weights must be a scalar or have {w.shape[0]} values, one per output channel; it is {parameter}")


@op("ConvInteger")
class ConvInteger(Convolution):
    """(x, w, x_zero_point?, w_zero_point?) → Conv(x - x_zero_point, w - w_zero_point) in int32. ONNX ConvInteger-10.

    x and w are int8 or uint8; x_zero_point is a scalar, w_zero_point a scalar or one value per output channel.
    """

    def infer(self, x: Spec, w: Spec, x_zero_point: Spec | None = None, w_zero_point: Spec | None = None) -> Spec:
        for tensor, zero_point in ((x, x_zero_point), (w, w_zero_point)):
            require_dtype(tensor, BYTES, "an operand")
            if zero_point is not None:
                require(zero_point.dtype == tensor.dtype, f"the zero point of {tensor} must have its dtype; it is {zero_point}")
        require(x_zero_point is None or x_zero_point.size == 1, f"the zero point of x must be a scalar; it is {x_zero_point}")
        shape = _conv_shape(self, x, w)
        _check_channel_parameter(w, w_zero_point, "the zero point")
        return Spec(_INT32, shape)


@op("QLinearConv")
class QLinearConv(Convolution):
    """(x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias?) → quantized convolution. ONNX QLinearConv-10.

    Scales and zero points are scalars; those of w may have one value per output channel. bias is int32 in units of x_scale * w_scale.
    The result has y_zero_point's dtype.
    """

    def infer(
        self,
        x: Spec,
        x_scale: Spec,
        x_zero_point: Spec,
        w: Spec,
        w_scale: Spec,
        w_zero_point: Spec,
        y_scale: Spec,
        y_zero_point: Spec,
        bias: Spec | None = None,
    ) -> Spec:
        for tensor, scale, zero_point in ((x, x_scale, x_zero_point), (w, w_scale, w_zero_point), (y_zero_point, y_scale, y_zero_point)):
            require_dtype(tensor, BYTES, "an operand")
            require_dtype(scale, FLOATS, "a scale")
            require(zero_point.dtype == tensor.dtype, f"the zero point of {tensor} must have its dtype; it is {zero_point}")
        for parameter in (x_scale, x_zero_point, y_scale, y_zero_point):
            require(parameter.size == 1, f"scales and zero points of x and y must be scalars; one is {parameter}")
        shape = _conv_shape(self, x, w)
        _check_channel_parameter(w, w_scale, "the scale")
        _check_channel_parameter(w, w_zero_point, "the zero point")
        if bias is not None:
            require(bias.dtype == _INT32 and bias.shape == (w.shape[0],), f"bias must be int32[{w.shape[0]}]; it is {bias}")
        return Spec(y_zero_point.dtype, shape)

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * outputs[0].size * math.prod(inputs[3].shape[1:])


class Operands(Row):
    """The inputs of a product of quantized tensors, by what they are; None where there is none.

    x and w: the left and the right matrices, or the image and the weights. scales: of x, w and the result, none where the sums are that.
    """

    x: Any
    x_zero: Any
    w: Any
    w_zero: Any
    scales: tuple[Any, ...] = ()
    y_zero: Any = None
    bias: Any = None

    @classmethod
    def of(cls, op: Op, inputs: Sequence[Any]) -> "Operands":
        """Those of a MatMulInteger, ConvInteger, QLinearMatMul or QLinearConv, from its inputs, whatever stands for these."""
        if isinstance(op, QLinearMatMul | QLinearConv):
            x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*inputs, None)[:9]
            return cls(x, x_zero, w, w_zero, (x_scale, w_scale, y_scale), y_zero, bias)
        x, w, x_zero, w_zero = (*inputs, None, None)[:4]
        return cls(x, x_zero, w, w_zero)
