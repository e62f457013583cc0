"""Fused convolutions and matrix products, and the activations they end in."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mnnx.backends.cpu.numpy_executions.convolution import convolve, convolve_transposed
from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.backends.elementwise_functions import erf
from mnnx.schema.ops.fused import FusedConv, FusedConvTranspose, FusedMatMul


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[..., np.ndarray]] = {
    "": lambda x: x,
    "Relu": lambda x: np.maximum(x, 0),
    "Clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "LeakyRelu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "ScaledHardSwish": lambda x, scale, shift: x * np.clip(x / 6 + 0.5, 0, 1) * scale + shift,
    "Sigmoid": _sigmoid,
    "Swish": lambda x, alpha: x * _sigmoid(alpha * x),
    "Tanh": np.tanh,
    "Elu": lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "Gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "GeluTanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "Mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
}


def _finish(op: Any, y: np.ndarray, residual: np.ndarray | None, dtype: np.dtype) -> np.ndarray:
    """activation(y + residual), in the dtype asked for."""
    if residual is not None:
        y = y + residual.astype(y.dtype)
    with np.errstate(over="ignore"):
        return np.asarray(ACTIVATIONS[op.activation](y, *op.activation_parameters)).astype(dtype, copy=False)


@numpy_execution(FusedConv)
def fused_conv(
    op: FusedConv, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, residual: np.ndarray | None = None
) -> np.ndarray:
    return _finish(op, convolve(op, x, w, bias), residual, x.dtype)


@numpy_execution(FusedConvTranspose)
def fused_conv_transpose(
    op: FusedConvTranspose, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, residual: np.ndarray | None = None
) -> np.ndarray:
    return _finish(op, convolve_transposed(op, x, w, bias), residual, x.dtype)


@numpy_execution(FusedMatMul)
def fused_matmul(
    op: FusedMatMul, a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None, residual: np.ndarray | None = None
) -> np.ndarray:
    left, right = widened(a), widened(b)
    y = np.matmul(left.swapaxes(-1, -2) if op.transpose_a else left, right.swapaxes(-1, -2) if op.transpose_b else right)
    y = y * np.asarray(op.alpha, left.dtype)
    return _finish(op, y if bias is None else y + widened(bias), residual, a.dtype)
