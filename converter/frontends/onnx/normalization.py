"""Normalizations; the old forms of BatchNormalization and GroupNormalization become today's."""

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from mnnx.schema.ops.shape import Reshape, Shape

direct(InstanceNormalization, LayerNormalization, RMSNormalization, LpNormalization, LRN, MeanVarianceNormalization)


@importer("BatchNormalization")
def batch_normalization(node: OnnxNode, x: Value, scale: Value, bias: Value, mean: Value, variance: Value):
    """Before opset 14 the outputs asked for tell training from inference, before 9 `spatial` = 0 normalized every element by itself."""
    asked = [name for name in node.output_names if name]
    if node.opset >= 14:
        training = node.attribute("training_mode", bool, False)
    else:
        training = len(asked) > 1 and not node.attribute("is_test", bool, False)
        if any(node.output_names[3:]):
            node.fail("the outputs saved_mean and saved_var serve training only; remove them")
    op = node.op(BatchNormalization, training_mode=training)
    if node.opset < 9 and not node.attribute("spatial", bool, True):
        if training:
            node.fail("training with spatial = 0 isn't supported; export the model for inference")
        flat = node.add(Reshape(), x, node.constant([0, -1], np.int64))
        parameters = [node.add(Reshape(), value, node.constant([-1], np.int64)) for value in (scale, bias, mean, variance)]
        return node.add(Reshape(), node.add(op, flat, *parameters), node.add(Shape(), x))
    return op


@importer("GroupNormalization")
def group_normalization(node: OnnxNode, x: Value, scale: Value, bias: Value):
    """In opset 18 scale and bias were given per group: InstanceNormalization with groups for channels."""
    if node.opset >= 21:
        return node.op(GroupNormalization)
    groups = node.attribute("num_groups", int)
    grouped = node.add(Reshape(), x, node.constant([0, groups, -1], np.int64))
    y = node.add(node.op(InstanceNormalization), grouped, scale, bias)
    return node.add(Reshape(), y, node.add(Shape(), x))


@importer("SimplifiedLayerNormalization")
def simplified_layer_normalization(node: OnnxNode, x: Value, scale: Value) -> RMSNormalization:
    """What ONNX Runtime's tools wrote, in ONNX's own domain, before RMSNormalization was there."""
    return node.op(RMSNormalization)
