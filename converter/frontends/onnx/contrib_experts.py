"""Importers of ONNX Runtime's mixtures of experts (com.microsoft)."""

from __future__ import annotations

import math

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.contrib_experts import MoE
from mnnx.schema.ops.contrib_quantization import DequantizeBits
from mnnx.schema.ops.shape import Reshape

DOMAIN = "com.microsoft"


@importer("MoE", domain=DOMAIN)
def mixture_of_experts(node: OnnxNode, *_inputs: Value | None) -> MoE:
    return _op(node)


def _op(node: OnnxNode, **given: bool) -> MoE:
    if node.attribute("use_sparse_mixer", bool, False):
        node.fail("use_sparse_mixer isn't supported")
    if node.attribute("swiglu_limit_after_activation", bool, False):
        node.fail("swiglu_limit_after_activation isn't supported")
    return node.op(MoE, swiglu_limit=node.attribute("swiglu_limit", float, math.inf), **given)


@importer("QMoE", domain=DOMAIN)
def quantized_mixture_of_experts(node: OnnxNode, x: Value, router: Value, *inputs: Value | None):
    """MoE on weights of 2, 4 or 8 bits. ORT's CPU makes the softmax's weights of the chosen experts add up to 1, whatever is asked for."""
    if node.attribute("quant_type", str, "int") != "int":
        node.fail("only quant_type 'int' is supported")
    inputs = (*inputs, *[None] * 13)[:13]
    if any(value is not None for value in node.inputs[15:]):
        node.fail("global and activation scales aren't supported")
    layers: list[Value | None] = []
    for index in range(3):
        packed, scales, bias = inputs[3 * index : 3 * index + 3]
        layers += [None if packed is None else _weights(node, index, packed, scales, inputs[9 + index]), bias]
    normalize = inputs[12] is None or node.attribute("normalize_routing_weights", bool, False)
    return node.add(_op(node, normalize_routing_weights=normalize), x, router, *layers, inputs[12])


def _weights(node: OnnxNode, index: int, packed: Value, scales: Value | None, zero_points: Value | None) -> Value:
    """[E, N, K] in floats of the packed weights [E, N, K * bits / 8] of fc1, fc2 or fc3."""
    bits = node.attribute(f"fc{index + 1}_expert_weight_bits", int, node.attribute("expert_weight_bits", int, 4))
    if scales is None or packed.rank != 3 or not all(isinstance(dim, int) for dim in packed.shape) or bits not in (2, 4, 8):
        node.fail("needs weights of known shape and of 2, 4 or 8 bits, and their scales")
    experts, rows, width = packed.shape
    columns = width * 8 // bits
    block = node.attribute("block_size", int, 0) or columns
    if zero_points is not None and scales.rank == 2:  # one per row, packed over the rows of an expert
        ones, zeros = (node.constant(np.full((experts, 1), value), np.float32) for value in (1, 0))
        unpack = DequantizeBits(bits=bits, block_size=zero_points.shape[-1] * 8 // bits, rows=experts, columns=rows)
        zero_points = node.add(unpack, zero_points, ones, zeros)
    op = DequantizeBits(bits=bits, block_size=block, rows=experts * rows, columns=columns)
    real = node.add(op, packed, scales, zero_points)
    return node.add(Reshape(), real, node.constant([experts, rows, columns], np.int64))
