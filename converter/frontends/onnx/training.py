"""Importers of the ops in schema/ops/training.py."""

from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops import training as ops

direct(ops.Adagrad, ops.Adam, ops.Momentum, domain="ai.onnx.preview.training")
