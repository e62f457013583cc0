"""NumPy executions of linear models and support vector machines."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.ml_scores import labels_array, logistic, post_transform, probit
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.ml_linear import LinearClassifier, LinearRegressor, SVMClassifier, SVMRegressor


def _rows(x: np.ndarray) -> np.ndarray:
    return np.atleast_2d(x).astype(np.float32, copy=False)


def _one_score(name: str, scores: np.ndarray) -> np.ndarray:
    """The transform of single scores: none but PROBIT changes them, as in ONNX Runtime."""
    with np.errstate(all="ignore"):
        return probit(scores) if name == "PROBIT" else scores


def _two_scores(name: str, scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[N, 2]: a score that stands for the second of two classes, after what the first one gets; LOGISTIC and PROBIT make it a chance."""
    if name in ("LOGISTIC", "PROBIT"):
        scores = post_transform(name, scores)
        others = 1 - scores
    return np.concatenate([others, scores], -1).astype(np.float32, copy=False)


def _linear(x: np.ndarray, coefficients: np.ndarray, models: int, intercepts: tuple[float, ...]) -> np.ndarray:
    x = _rows(x)
    scores = x @ coefficients.reshape(models, x.shape[1]).T
    return scores + np.array(intercepts, np.float32) if intercepts else scores


@numpy_execution(LinearRegressor)
def linear_regressor(op: LinearRegressor, x: np.ndarray) -> np.ndarray:
    scores = _linear(x, op.coefficients, op.targets, op.intercepts)
    transform = post_transform if op.targets > 1 else _one_score
    return transform(op.post_transform, scores).astype(np.float32, copy=False)


@numpy_execution(LinearClassifier)
def linear_classifier(op: LinearClassifier, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels = labels_array(op.classlabels_strings, op.classlabels_ints)
    scores = _linear(x, op.coefficients, op.models, op.intercepts)
    if op.models > 1:
        return labels[scores.argmax(-1)], post_transform(op.post_transform, scores).astype(np.float32, copy=False)
    positive = (scores[:, 0] > 0).astype(np.int64)
    if len(labels) == 2:
        return labels[positive], _two_scores(op.post_transform, scores, 1 - scores)
    winners = np.array(["0", "1"], object)[positive] if op.classlabels_strings else positive
    return winners, _one_score(op.post_transform, scores).astype(np.float32, copy=False)


def _kernel(op: SVMRegressor | SVMClassifier, x: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The kernel of each row of x with each vector."""
    gamma, coef0, degree = (np.float32(p) for p in op.kernel_params or (0, 0, 0))
    if op.kernel_type == "RBF":
        squares = (x * x).sum(-1)[:, None] + (vectors * vectors).sum(-1) - 2 * (x @ vectors.T)
        return np.exp(-gamma * np.maximum(squares, 0))
    dot = x @ vectors.T
    if op.kernel_type == "POLY":
        return (gamma * dot + coef0) ** degree
    return np.tanh(gamma * dot + coef0) if op.kernel_type == "SIGMOID" else dot


@numpy_execution(SVMRegressor)
def svm_regressor(op: SVMRegressor, x: np.ndarray) -> np.ndarray:
    x = _rows(x)
    with np.errstate(all="ignore"):
        if op.n_supports:
            scores = _kernel(op, x, op.support_vectors.reshape(op.n_supports, x.shape[1])) @ op.coefficients
        else:
            scores = x @ op.coefficients
        scores = scores[:, None] + np.float32(op.rho[0])
    if op.one_class:
        return np.where(scores > 0, np.float32(1), np.float32(-1))
    return scores.astype(np.float32, copy=False)


@numpy_execution(SVMClassifier)
def svm_classifier(op: SVMClassifier, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = _rows(x)
    labels = labels_array(op.classlabels_strings, op.classlabels_ints)
    with np.errstate(all="ignore"):
        if not op.vectors:
            return _linear_svm(op, x, labels)
        scores = _pair_scores(op, x)
    first, second = np.triu_indices(op.classes, 1)
    votes = np.zeros((len(x), op.classes), np.int64)
    np.add.at(votes, (np.arange(len(x))[:, None], np.where(scores > 0, first, second)), 1)
    winners = labels[votes.argmax(-1)]
    if op.prob_a:
        scores = post_transform(op.post_transform, _probabilities(op, scores))
    elif op.classes > 2:
        scores = post_transform(op.post_transform, scores)
    else:
        scores = _two_scores(op.post_transform, scores, -scores if op.post_transform == "NONE" else 1 - scores)
    return winners, scores.astype(np.float32, copy=False)


def _linear_svm(op: SVMClassifier, x: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores = x @ op.coefficients.reshape(op.classes, x.shape[1]).T + np.float32(op.rho[0])
    winner = scores.argmax(-1)
    if op.classes == 2 and not op.prob_a:
        positive = (op.coefficients >= 0).all()
        winner = np.where(scores.max(-1) >= 0.5 if positive else scores.max(-1) > 0, 1, winner)
    transform = post_transform if op.classes > 1 else _one_score
    return labels[winner], transform(op.post_transform, scores).astype(np.float32, copy=False)


def _pair_scores(op: SVMClassifier, x: np.ndarray) -> np.ndarray:
    """The decision value of each pair of classes (0, 1), (0, 2), … (1, 2), …: positive where the first one wins."""
    kernel = _kernel(op, x, op.support_vectors.reshape(op.vectors, x.shape[1])).astype(np.float64)
    coefficients = op.coefficients.reshape(op.classes - 1, op.vectors)
    ends = np.cumsum(op.vectors_per_class)
    # What the vectors of class c add to the pairs that use row r of the coefficients.
    share = [kernel[:, end - n : end] @ coefficients[:, end - n : end].T for n, end in zip(op.vectors_per_class, ends, strict=True)]
    first, second = np.triu_indices(op.classes, 1)
    scores = [share[i][:, j - 1] + share[j][:, i] for i, j in zip(first, second, strict=True)]
    return (np.stack(scores, -1) + np.array(op.rho[: len(first)])).astype(np.float32)


def _probabilities(op: SVMClassifier, scores: np.ndarray) -> np.ndarray:
    """Class probabilities by pairwise coupling: minimises sum of (r_ji p_i - r_ij p_j)^2 by the fixed-point iteration of the paper."""
    classes, rows = op.classes, len(scores)
    first, second = np.triu_indices(classes, 1)
    pair = 1 - logistic(scores * np.array(op.prob_a[: len(first)], np.float32) + np.array(op.prob_b[: len(first)], np.float32))
    pair = np.clip(pair, 1e-7, 1 - 1e-7).astype(np.float64)
    r = np.zeros((rows, classes, classes))
    r[:, first, second], r[:, second, first] = pair, 1 - pair
    q = -r * r.transpose(0, 2, 1)
    diagonal = np.arange(classes)
    q[:, diagonal, diagonal] = (r * r).sum(1)
    p = np.full((rows, classes), 1 / classes)
    for _ in range(100):
        qp = np.einsum("nij,nj->ni", q, p)
        pqp = (p * qp).sum(-1)
        moving = np.abs(qp - pqp[:, None]).max(-1) >= 0.005 / classes
        if not moving.any():
            break
        for i in range(classes):
            step = np.where(moving, (pqp - qp[:, i]) / q[:, i, i], 0)
            p[:, i] += step
            pqp = (pqp + step * (step * q[:, i, i] + 2 * qp[:, i])) / (1 + step) ** 2
            qp = (qp + step[:, None] * q[:, i]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
    return p
