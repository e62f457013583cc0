"""What the classifiers and regressors of ai.onnx.ml make of raw scores: labels and post transforms."""

from __future__ import annotations

import numpy as np


def logistic(x: np.ndarray) -> np.ndarray:
    positive = 1 / (1 + np.exp(-np.abs(x)))
    return np.where(x < 0, 1 - positive, positive)


def probit(x: np.ndarray) -> np.ndarray:
    """sqrt(2) * erfinv(2x - 1), with erfinv approximated as in S. Winitzki, "A handy approximation for the error function" (2008)."""
    x = 2 * x - 1
    log = np.log((1 - x) * (1 + x))
    v = 2 / (3.14159 * 0.147) + 0.5 * log
    return np.sqrt(2) * np.where(x < 0, -1, 1) * np.sqrt(np.sqrt(v * v - log / 0.147) - v)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_zero(x: np.ndarray) -> np.ndarray:
    """Softmax over the scores that aren't zero; zeros stay zeros."""
    zero = np.abs(x) <= 1e-7
    e = np.where(zero, 0, np.exp(x - x.max(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


def post_transform(name: str, scores: np.ndarray) -> np.ndarray:
    """The transform of scores [N, E], E > 1, along the last axis."""
    functions = {"LOGISTIC": logistic, "PROBIT": probit, "SOFTMAX": softmax, "SOFTMAX_ZERO": softmax_zero}
    if name == "NONE" or not scores.size:
        return scores
    with np.errstate(all="ignore"):
        return functions[name](scores)


def labels_array(strings: tuple[str, ...], integers: tuple[int, ...]) -> np.ndarray:
    return np.array(strings, object) if strings else np.array(integers, np.int64)
