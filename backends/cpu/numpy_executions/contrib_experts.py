"""NumPy executions of mixtures of experts."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.contrib_experts import MoE


@numpy_execution(MoE)
def mixture_of_experts(op: MoE, x, router, w1, b1, w2, b2=None, w3=None, b3=None, router_weights=None) -> np.ndarray:
    tokens = widened(x).reshape(-1, x.shape[-1])
    result = np.zeros_like(tokens)
    chosen, weights = _routes(op, widened(router), None if router_weights is None else widened(router_weights))

    def layer(w: np.ndarray, b: np.ndarray | None, expert: int, rows: np.ndarray) -> np.ndarray:
        y = rows @ widened(w[expert]).T
        return y if b is None else y + widened(b[expert])

    with np.errstate(all="ignore"):
        for expert in np.unique(chosen).tolist():
            row, place = np.nonzero(chosen == expert)
            rows = tokens[row]
            inner = layer(w1, b1, expert, rows)
            linear = None if w3 is None else layer(w3, b3, expert, rows)
            result[row] += weights[row, place][:, None] * layer(w2, b2, expert, _activated(op, inner, linear))
    return result.reshape(x.shape).astype(x.dtype)


def _routes(op: MoE, scores: np.ndarray, given: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The k best experts of each token, and their weights."""
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, : op.k]
    if given is None:
        given = np.exp(scores - scores.max(-1, keepdims=True))
        given /= given.sum(-1, keepdims=True)
    weights = np.take_along_axis(given, chosen, -1)
    return chosen, weights / weights.sum(-1, keepdims=True) if op.normalize_routing_weights else weights


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _activated(op: MoE, inner: np.ndarray, linear: np.ndarray | None) -> np.ndarray:
    if op.activation_type == "swiglu":
        if op.swiglu_fusion == 1:
            gate, linear = inner[:, 0::2], inner[:, 1::2]
        elif op.swiglu_fusion == 2:
            gate, linear = np.split(inner, 2, -1)
        else:
            gate = inner
        limit = np.float32(op.swiglu_limit)
        gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
        return gate * _sigmoid(np.float32(op.activation_alpha) * gate) * (linear + np.float32(op.activation_beta))
    if op.activation_type == "relu":
        inner = np.maximum(inner, 0)
    elif op.activation_type == "gelu":
        inner = inner / 2 * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (inner + np.float32(0.044715) * inner**3)))
    elif op.activation_type == "silu":
        inner = inner * _sigmoid(inner)
    return inner if linear is None else inner * linear
