"""Attention, LinearAttention, RotaryEmbedding: later opsets only add attributes and inputs."""

from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops.attention import Attention, LinearAttention, RotaryEmbedding

direct(Attention, LinearAttention, RotaryEmbedding)
