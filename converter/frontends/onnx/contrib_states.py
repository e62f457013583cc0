"""Importers of ONNX Runtime's ops of recurrent language models (com.microsoft): linear attention, its convolution, gates and norms."""

from __future__ import annotations

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.activation import Sigmoid, Softplus, Swish
from mnnx.schema.ops.arithmetic import Add, Mul
from mnnx.schema.ops.attention import LinearAttention
from mnnx.schema.ops.cast import Cast, CastLike
from mnnx.schema.ops.convolution import CausalConvWithState
from mnnx.schema.ops.normalization import RMSNormalization
from mnnx.schema.ops.shape import Concat, Reshape, Shape, Transpose

DOMAIN = "com.microsoft"

_FLOAT = np.dtype(np.float32)


def _wide(node: OnnxNode, x: Value) -> Value:
    """x in float32, in which these ops compute."""
    return x if x.dtype == _FLOAT else node.add(Cast(to=_FLOAT), x)


def _narrow(node: OnnxNode, y: Value, like: Value) -> Value:
    return y if like.dtype == _FLOAT else node.add(CastLike(), y, like)


def _grouped(node: OnnxNode, x: Value, size: Value) -> Value:
    """[..., C * H] → [..., C, H]; size: [H]."""
    shape = node.add(Concat(axis=0), node.add(Shape(end=-1), x), node.constant([-1], np.int64), size)
    return node.add(Reshape(allowzero=True), x, shape)


def _root_mean_square(node: OnnxNode, x: Value, scale: Value, axis: int = -1) -> Value:
    return node.add(RMSNormalization(axis=axis, epsilon=node.attribute("epsilon", float, 1e-5)), _wide(node, x), _wide(node, scale))


@importer("LinearAttention", domain=DOMAIN)
def linear_attention(node: OnnxNode, *_inputs: Value | None):
    if node.attribute("state_window", int, 0):
        node.fail("state_window isn't supported")
    return node.op(LinearAttention)


@importer("CausalConvWithState", domain=DOMAIN)
def causal_conv_with_state(node: OnnxNode, x: Value, w: Value, bias: Value | None = None, past: Value | None = None, *_: Value | None):
    """ONNX's op of the name has one dim, and a kernel without gaps: those of `dilation` are filled with zeros."""
    for name, default in {"ndim": 1, "state_window": 0, "state_update_capacity": 0, "input_channels": 0, "state_length": 0}.items():
        if node.attribute(name, int, default) != default:
            node.fail(f"{name} other than {default} isn't supported")
    if (dilation := node.attribute("dilation", int, 1)) > 1:
        taps = node.value_of(w, "the kernel of a dilated convolution")
        w = node.constant(np.zeros((*taps.shape[:-1], (taps.shape[-1] - 1) * dilation + 1), taps.dtype))
        w.constant[..., ::dilation] = taps
    last = node.attribute("channels_last", bool, False)
    if last:
        if x.rank != 3:
            node.fail("needs an input of rank 3 where channels come last")
        x, past = (None if value is None else node.add(Transpose(perm=(0, 2, 1)), value) for value in (x, past))
    results = node.add(node.op(CausalConvWithState), x, w, bias, past, outputs=2)
    return tuple(node.add(Transpose(perm=(0, 2, 1)), value) for value in results) if last else results


@importer("LinearAttentionGate", domain=DOMAIN)
def linear_attention_gate(node: OnnxNode, a: Value, bias: Value, scale: Value, b: Value | None = None):
    decay = node.add(Mul(), node.add(Softplus(), node.add(Add(), _wide(node, a), bias)), scale)
    return _narrow(node, decay, a), None if b is None else _narrow(node, node.add(Sigmoid(), _wide(node, b)), b)


@importer("GatedRMSNorm", domain=DOMAIN)
def gated_rms_norm(node: OnnxNode, x: Value, scale: Value, gate: Value):
    """The groups of the last dim that are as long as the scale, each normalized, times silu or sigmoid of the gate."""
    activation = node.attribute("activation", str, "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        node.fail(f"its activation {activation!r} isn't supported")
    normal = _root_mean_square(node, _grouped(node, x, node.add(Shape(), scale)), scale)
    normal = node.add(Reshape(allowzero=True), normal, node.add(Shape(), x))
    gated = node.add(Sigmoid() if activation == "sigmoid" else Swish(), _wide(node, gate))
    return _narrow(node, node.add(Mul(), normal, gated), x)


@importer("BranchwiseRMSNorm", domain=DOMAIN)
def branchwise_rms_norm(node: OnnxNode, x: Value, scale: Value | None = None):
    """Each of the branches in the last dim, or of the last dim itself, normalized; the scale is of one branch, or of all."""
    branches = node.attribute("num_branches", int, 0)
    grouped = x
    if branches:
        shape = node.add(Concat(axis=0), node.add(Shape(end=-1), x), node.constant([branches, -1], np.int64))
        grouped = node.add(Reshape(allowzero=True), x, shape)
    y = _root_mean_square(node, grouped, node.constant(1, np.float32))
    if scale is not None:
        size = node.add(Shape(start=-1), grouped)
        y = node.add(Mul(), y, node.add(Reshape(), _wide(node, scale), node.add(Concat(axis=0), node.constant([-1], np.int64), size)))
    y = _narrow(node, y, x)
    return node.add(Reshape(allowzero=True), y, node.add(Shape(), x)) if branches else y


@importer("GatedAdd", domain=DOMAIN)
def gated_add(node: OnnxNode, x: Value, y: Value, gate: Value, gate_weight: Value | None = None):
    if gate_weight is not None:
        node.fail("gate_weight isn't supported")
    return node.add(Add(), x, node.add(Mul(), y, gate))


@importer("ScaledSiLU", domain=DOMAIN)
def scaled_silu(node: OnnxNode, x: Value, scale: Value | None = None):
    factor = node.constant(node.attribute("alpha", float, 1.0), np.float32) if scale is None else _wide(node, scale)
    scaled = _narrow(node, node.add(Mul(), _wide(node, x), factor), x)
    return node.add(Mul(), scaled, node.add(Sigmoid(), scaled))
