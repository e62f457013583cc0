"""Importers of the quantization ops: ONNX writes them alike in every opset."""

from __future__ import annotations

from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops.quantization import (
    ConvInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatMulInteger,
    QLinearConv,
    QLinearMatMul,
    QuantizeLinear,
)

direct(ConvInteger, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, QLinearConv, QLinearMatMul, QuantizeLinear)
