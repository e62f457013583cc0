"""Mixtures of experts, against their definition written out."""

import math

import numpy as np

from mnnx.schema.ops.contrib_experts import MoE
from tests.cases import case, f16, f32


def layer(w, b, x):
    return w.astype(float) @ x + (0 if b is None else b)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def swiglu(op, gate, linear):
    gate, linear = np.minimum(gate, op.swiglu_limit), np.clip(linear, -op.swiglu_limit, op.swiglu_limit)
    return gate * sigmoid(op.activation_alpha * gate) * (linear + op.activation_beta)


def one(op, x, expert, w1, b1, w2, b2, w3, b3):
    """What an expert gives for a token."""
    first, *more = (None if w is None else layer(w[expert], None if b is None else b[expert], x) for w, b in ((w1, b1), (w3, b3)))
    if op.activation_type == "swiglu":
        half = len(first) // 2
        pairs = {0: (first, more[0]), 1: (first[::2], first[1::2]), 2: (first[:half], first[half:])}
        inner = swiglu(op, *pairs[op.swiglu_fusion])
    else:
        function = {"relu": lambda v: np.maximum(v, 0), "gelu": gelu, "silu": lambda v: v * sigmoid(v), "identity": lambda v: v}
        inner = function[op.activation_type](first) * (1 if more[0] is None else more[0])
    return layer(w2[expert], None if b2 is None else b2[expert], inner)


def mixed(op):
    def reference(x, router, w1, b1, w2, b2=None, w3=None, b3=None, weights=None):
        result = []
        for token, row in enumerate(x.reshape(-1, x.shape[-1]).astype(float)):
            shares = np.exp(router[token].astype(float))
            shares = shares / shares.sum() if weights is None else weights[token].astype(float)
            best = sorted(range(len(shares)), key=lambda e: -router[token, e])[: op.k]
            total = sum(shares[e] for e in best) if op.normalize_routing_weights else 1
            result.append(sum(shares[e] / total * one(op, row, e, w1, b1, w2, b2, w3, b3) for e in best))
        return np.array(result).reshape(x.shape).astype(x.dtype)

    return reference


def experts(op, *x, inner=5, wide=5, float_=f32, more=()):
    count = math.prod(x[:-1])
    inputs = (float_(*x), float_(count, 4), float_(4, wide, x[-1]), float_(4, wide), float_(4, x[-1], inner), float_(4, x[-1]), *more)
    case(op, *inputs, reference=mixed(op))


for name in ("relu", "gelu", "silu", "identity"):
    experts(MoE(k=2, activation_type=name), 3, 6)
experts(MoE(k=3, normalize_routing_weights=True), 2, 3, 6)
experts(MoE(), 3, 6, float_=f16)
experts(MoE(k=2, activation_type="silu"), 3, 6, more=(f32(4, 5, 6), f32(4, 5)))
experts(MoE(k=2, activation_type="swiglu"), 3, 6, more=(f32(4, 5, 6),))
limited = {"k": 2, "activation_type": "swiglu", "swiglu_limit": 1.5, "activation_alpha": 1.7, "activation_beta": 1.0}
for fusion in (1, 2):
    experts(MoE(swiglu_fusion=fusion, **limited), 3, 6, wide=10)
experts(MoE(k=2), 3, 6, more=(None, None, f32(3, 4, low=0)))
case(MoE(), f32(3, 6), f32(3, 1), f32(1, 5, 6), None, f32(1, 6, 5), reference=mixed(MoE()))
