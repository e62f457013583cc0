"""Importers of ONNX Runtime's quantized ops (com.microsoft): dequantize, compute in floats, quantize; products of integers stay such."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.activation import LeakyRelu, Sigmoid, Softmax
from mnnx.schema.ops.arithmetic import Add, Mul
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.cast import Cast, CastLike
from mnnx.schema.ops.comparison import Where
from mnnx.schema.ops.contrib_quantization import DequantizeBits, DequantizeBnb4, DynamicQuantizeLSTM, GatherBlockQuantized
from mnnx.schema.ops.matmul import Gemm, MatMul
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool
from mnnx.schema.ops.quantization import DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, QLinearConv, QuantizeLinear
from mnnx.schema.ops.reduction import ReduceMean
from mnnx.schema.ops.shape import Concat, Flatten, Reshape, Shape, Transpose

DOMAIN = "com.microsoft"

direct(GatherBlockQuantized, domain=DOMAIN)

_FLOAT = np.dtype(np.float32)


def dequantized(node: OnnxNode, x: Value, scale: Value, zero_point: Value | None, axis: int = 1) -> Value:
    """x as floats; scales and zero points that are vectors lie along `axis`."""
    return node.add(DequantizeLinear(axis=axis), x, scale, zero_point)


def quantized(node: OnnxNode, y: Value, scale: Value, zero_point: Value | None, like: Value) -> Value:
    """y in the integer type of its zero point, without one in that of `like`."""
    dtype = like.dtype if zero_point is None else None
    return node.add(QuantizeLinear(output_dtype=dtype), y, scale, zero_point)


def channels_first(node: OnnxNode, x: Value, rank: int | None) -> Value:
    """N, spatial…, C → N, C, spatial…"""
    return node.add(Transpose(perm=(0, _known(node, rank) - 1, *range(1, rank - 1))), x)


def channels_last(node: OnnxNode, x: Value, rank: int | None) -> Value:
    """N, C, spatial… → N, spatial…, C"""
    return node.add(Transpose(perm=(0, *range(2, _known(node, rank)), 1)), x)


def _known(node: OnnxNode, rank: int | None) -> int:
    if rank is None:
        node.fail("needs an input of known rank where channels come last")
    return rank


def _unary(node: OnnxNode, compute: Callable[[Value], Value], x: Value, x_scale: Value, x_zero: Value | None, *y: Value | None) -> Value:
    y_scale, y_zero = (*y, None)[:2]
    return quantized(node, compute(dequantized(node, x, x_scale, x_zero)), y_scale, y_zero, x)


@importer("QuantizeLinear", "DequantizeLinear", domain=DOMAIN)
def quantize_linear(node: OnnxNode, x: Value, scale: Value, zero_point: Value | None = None):
    op_class = {"QuantizeLinear": QuantizeLinear, "DequantizeLinear": DequantizeLinear}[node.op_type]
    return op_class(axis=node.attribute("axis", int, 1))


@importer("QLinearAdd", "QLinearMul", domain=DOMAIN)
def qlinear_binary(node: OnnxNode, a: Value, a_scale: Value, a_zero: Value | None, b: Value, b_scale: Value, b_zero: Value | None, *c):
    c_scale, c_zero = (*c, None)[:2]
    op = Add() if node.op_type == "QLinearAdd" else Mul()
    result = node.add(op, dequantized(node, a, a_scale, a_zero), dequantized(node, b, b_scale, b_zero))
    return quantized(node, result, c_scale, c_zero, a)


@importer("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(node: OnnxNode, *inputs: Value | None):
    return _unary(node, lambda x: node.add(Sigmoid(), x), *inputs)


@importer("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(node: OnnxNode, *inputs: Value | None):
    return _unary(node, lambda x: node.add(node.op(LeakyRelu), x), *inputs)


@importer("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(node: OnnxNode, *inputs: Value | None):
    old = node.attribute("opset", int, 13) < 13
    axis = node.attribute("axis", int, 1 if old else -1)

    def compute(x: Value) -> Value:
        if not old:
            return node.add(Softmax(axis=axis), x)
        rows = node.add(Softmax(axis=-1), node.add(Flatten(axis=axis), x))
        return node.add(Reshape(allowzero=True), rows, node.add(Shape(), x))

    return _unary(node, compute, *inputs)


@importer("QLinearReduceMean", domain=DOMAIN)
def qlinear_reduce_mean(node: OnnxNode, *inputs: Value | None):
    axes = node.attribute("axes", tuple[int, ...], ())
    op = ReduceMean(keepdims=node.attribute("keepdims", bool, True))
    return _unary(node, lambda x: node.add(op, x, *([node.constant(axes, np.int64)] if axes else [])), *inputs)


@importer("QLinearAveragePool", "QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_average_pool(node: OnnxNode, x: Value, *parameters: Value | None):
    pool: Op = GlobalAveragePool() if node.op_type == "QLinearGlobalAveragePool" else node.op(AveragePool, dilations=())
    rank = x.rank if isinstance(pool, GlobalAveragePool) else len(pool.kernel_shape) + 2

    def compute(real: Value) -> Value:
        if not node.attribute("channels_last", bool, False):
            return node.add(pool, real)
        return channels_last(node, node.add(pool, channels_first(node, real, rank)), rank)

    return _unary(node, compute, x, *parameters)


@importer("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: OnnxNode, y_scale: Value, y_zero: Value, *inputs: Value):
    if not inputs or len(inputs) % 3:
        node.fail(f"must have tensors with scale and zero point each; it has {len(inputs)} inputs for them")
    parts = [dequantized(node, *inputs[i : i + 3]) for i in range(0, len(inputs), 3)]
    return quantized(node, node.add(Concat(axis=node.attribute("axis", int)), *parts), y_scale, y_zero, inputs[0])


@importer("QLinearWhere", domain=DOMAIN)
def qlinear_where(node: OnnxNode, condition: Value, x, x_scale, x_zero, y, y_scale, y_zero, z_scale: Value, z_zero: Value):
    chosen = node.add(Where(), condition, dequantized(node, x, x_scale, x_zero), dequantized(node, y, y_scale, y_zero))
    return quantized(node, chosen, z_scale, z_zero, x)


@importer("QLinearConv", domain=DOMAIN)
def qlinear_conv(node: OnnxNode, x: Value, *others: Value | None):
    op, w = node.op(QLinearConv), others[2]
    if not node.attribute("channels_last", bool, False):
        return op
    rank = x.rank if w is None or w.rank is None else w.rank
    return channels_last(node, node.add(op, channels_first(node, x, rank), *others), rank)


def _scaled_product(node: OnnxNode, product: Value, a_scale: Value, b_scale: Value, bias: Value | None) -> Value:
    """int32 sums * a_scale * b_scale + bias, computed in float32, of the dtype of b_scale."""
    half = b_scale.dtype is not None and b_scale.dtype != _FLOAT
    if half:
        a_scale, wide_b_scale = node.add(Cast(to=_FLOAT), a_scale), node.add(Cast(to=_FLOAT), b_scale)
        bias = None if bias is None else node.add(Cast(to=_FLOAT), bias)
    else:
        wide_b_scale = b_scale
    real = node.add(Mul(), node.add(Cast(to=_FLOAT), product), node.add(Mul(), a_scale, wide_b_scale))
    if bias is not None:
        real = node.add(Add(), real, bias)
    return node.add(CastLike(), real, b_scale) if half else real


@importer("MatMulIntegerToFloat", domain=DOMAIN)
def matmul_integer_to_float(
    node: OnnxNode,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero: Value | None = None,
    b_zero: Value | None = None,
    bias: Value | None = None,
):
    return _scaled_product(node, node.add(MatMulInteger(), a, b, a_zero, b_zero), a_scale, b_scale, bias)


@importer("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantize_matmul(node: OnnxNode, a: Value, b: Value, b_scale: Value, b_zero: Value | None = None, bias: Value | None = None):
    quantized_a, a_scale, a_zero = node.add(DynamicQuantizeLinear(), a, outputs=3)
    return _scaled_product(node, node.add(MatMulInteger(), quantized_a, b, a_zero, b_zero), a_scale, b_scale, bias)


@importer("MatMulInteger16", domain=DOMAIN)
def matmul_integer16(node: OnnxNode, a: Value, b: Value):
    return MatMulInteger()


@importer("QGemm", domain=DOMAIN)
def qgemm(
    node: OnnxNode,
    a: Value,
    a_scale: Value,
    a_zero: Value | None,
    b: Value,
    b_scale: Value,
    b_zero: Value | None,
    c: Value | None = None,
    y_scale: Value | None = None,
    y_zero: Value | None = None,
):
    alpha, transposed = node.attribute("alpha", float, 1.0), node.attribute("transB", bool, False)
    op = Gemm(alpha=alpha, beta=alpha, transA=node.attribute("transA", bool, False), transB=transposed)
    real_c = None
    if c is not None:  # in units of alpha * a_scale * b_scale
        real_c = dequantized(node, c, node.add(Mul(), a_scale, b_scale), None, axis=-1)
    y = node.add(op, dequantized(node, a, a_scale, a_zero), dequantized(node, b, b_scale, b_zero, axis=0 if transposed else 1), real_c)
    return y if y_scale is None else quantized(node, y, y_scale, y_zero, a)


@importer("MatMulNBits", domain=DOMAIN)
def matmul_nbits(
    node: OnnxNode,
    a: Value,
    b: Value,
    scales: Value,
    zero_points: Value | None = None,
    g_idx: Value | None = None,
    bias: Value | None = None,
):
    if node.attribute("weight_prepacked", int, 0):
        node.fail("prepacked weights aren't supported; export the model without them")
    rows, columns = node.attribute("N", int), node.attribute("K", int)
    op = node.op(DequantizeBits, rows=rows, columns=columns, bits=node.attribute("bits", int, 4))
    weights = node.add(Transpose(perm=(1, 0)), node.add(op, b, scales, zero_points, g_idx))
    y = node.add(MatMul(), a, weights)
    return y if bias is None else node.add(Add(), y, bias)


@importer("MatMulBnb4", domain=DOMAIN)
def matmul_bnb4(node: OnnxNode, a: Value, b: Value, absmax: Value):
    op = node.op(DequantizeBnb4, nf4=node.attribute("quant_type", bool), rows=node.attribute("N", int), columns=node.attribute("K", int))
    weights = node.add(op, b, absmax)
    return node.add(MatMul(), a, node.add(Transpose(perm=(1, 0)), weights) if node.attribute("transB", bool, True) else weights)


@importer("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_quantize_lstm(node: OnnxNode, *inputs: Value | None):
    return node.op(DynamicQuantizeLSTM, layout=False)
