"""Importers of the ops in schema/ops/loss.py."""

from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops import loss as ops

direct(ops.NegativeLogLikelihoodLoss, ops.SoftmaxCrossEntropyLoss)
