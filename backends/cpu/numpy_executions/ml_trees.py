"""NumPy executions of tree ensembles: all rows walk down all trees together, one level per step."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions.ml_scores import labels_array, logistic, post_transform, probit
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.ml_trees import LEAF, TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor

_COMPARISONS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_WALKERS = 1 << 18  # rows * trees that walk at a time, to bound the working memory


def _leaves(op: TreeEnsemble, x: np.ndarray) -> np.ndarray:
    """The leaf [rows, trees] that each row reaches in each tree."""
    thresholds = op.thresholds.astype(x.dtype, copy=False)
    modes = [m for m in np.unique(op.modes) if m != LEAF]
    row = np.arange(len(x))[:, None]
    node = np.broadcast_to(op.roots, (len(x), op.roots.size))
    while True:
        value, threshold = x[row, op.features[node]], thresholds[node]
        if len(modes) == 1:
            holds = _COMPARISONS[modes[0]](value, threshold)
        else:
            mode = op.modes[node]
            holds = np.zeros(node.shape, bool)
            for m in modes:
                holds |= (mode == m) & _COMPARISONS[m](value, threshold)
        holds |= np.isnan(value) & op.missing_true[node]
        following = np.where(holds, op.true_nodes[node], op.false_nodes[node])
        if (following == node).all():
            return node
        node = following


def _votes(op: TreeEnsemble, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scores, whether there was a vote), both [rows, targets]; trees vote in their order, as float sums depend on it."""
    scores = np.zeros((len(x), op.n_targets), x.dtype)
    voted = np.zeros(scores.shape, bool)
    step = max(1, _WALKERS // op.roots.size)
    for start in range(0, len(x), step):
        leaf = _leaves(op, x[start : start + step]).reshape(-1)
        first, count = op.vote_starts[leaf], np.diff(op.vote_starts)[leaf]
        vote = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        at = np.repeat(start + np.arange(leaf.size) // op.roots.size, count), op.vote_targets[vote]
        weights = op.vote_weights[vote].astype(x.dtype, copy=False)
        if op.aggregate in ("SUM", "AVERAGE"):
            np.add.at(scores, at, weights)
        else:
            reduce, worst = (np.minimum, np.inf) if op.aggregate == "MIN" else (np.maximum, -np.inf)
            scores[start : start + step] = worst
            reduce.at(scores, at, weights)
        voted[at] = True
    scores[~voted] = 0
    if op.aggregate == "AVERAGE":
        scores /= op.roots.size
    return scores, voted


def _comparable(op: TreeEnsemble, x: np.ndarray) -> np.ndarray:
    """x as [rows, features] in the float type that thresholds and sums have."""
    wide = np.float64 if np.float64 in (x.dtype, op.thresholds.dtype) else np.float32
    return np.atleast_2d(x).astype(wide, copy=False)


def _regress(op: TreeEnsemble, x: np.ndarray) -> np.ndarray:
    scores, voted = _votes(op, _comparable(op, x))
    if op.base_values is not None and op.base_values.size == op.n_targets:
        scores = scores + op.base_values.astype(scores.dtype)
    if op.n_targets > 1:  # a target without votes stays 0, as in ONNX Runtime
        return post_transform(op.post_transform, np.where(voted, scores, 0))
    with np.errstate(all="ignore"):  # one target: ONNX Runtime applies no other transform
        return probit(scores) if op.post_transform == "PROBIT" else scores


@numpy_execution(TreeEnsemble)
def tree_ensemble(op: TreeEnsemble, x: np.ndarray) -> np.ndarray:
    return _regress(op, x).astype(x.dtype, copy=False)


@numpy_execution(TreeEnsembleRegressor)
def tree_ensemble_regressor(op: TreeEnsembleRegressor, x: np.ndarray) -> np.ndarray:
    return _regress(op, x).astype(np.float32, copy=False)


@numpy_execution(TreeEnsembleClassifier)
def tree_ensemble_classifier(op: TreeEnsembleClassifier, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores, voted = _votes(op, _comparable(op, x))
    base = np.zeros(0) if op.base_values is None else op.base_values.astype(scores.dtype)
    labels = labels_array(op.classlabels_strings, op.classlabels_int64s)
    if op.n_targets <= 2:
        return _binary(op, scores, voted, base)
    if base.size == op.n_targets:
        scores, voted = scores + base, np.ones_like(voted)
    winner = np.where(voted, scores, -np.inf).argmax(-1)
    return labels[winner], post_transform(op.post_transform, scores).astype(np.float32, copy=False)


def _binary(op: TreeEnsembleClassifier, scores: np.ndarray, voted: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(labels, scores) for one or two labels, by the rules of ONNX Runtime: the specification leaves them open."""
    labels = labels_array(op.classlabels_strings, op.classlabels_int64s)
    one_target = op.n_targets == 2 and np.unique(op.vote_targets).size == 1
    probabilities = one_target and (op.vote_weights >= 0).all()
    second = voted[:, 1] if op.n_targets == 2 else np.zeros(len(scores), bool)
    first, last = scores[:, 0].copy(), scores[:, -1].copy()
    single = ~second
    if base.size == 2:
        last = np.where(second, base[1] + first, 0)
        first = np.where(second, -last, first + base[0])
        single = np.zeros_like(second)
    elif base.size == 1:
        first += base[0]
    first[~voted[:, 0] & ~single] = 0
    weight = np.where(second, last, np.where(voted[:, 0], first, 0))
    winner = (weight > (0.5 if probabilities else 0)).astype(np.int64)
    if one_target or op.classlabels_strings:
        winner = labels[np.minimum(winner, len(labels) - 1)]
    with np.errstate(all="ignore"):
        pair = post_transform(op.post_transform, np.stack([first, last], -1))
        if op.post_transform == "PROBIT":
            alone = np.stack([probit(first), np.zeros_like(first)], -1)
        elif not one_target and base.size:
            alone = np.stack([first, np.zeros_like(first)], -1)
        elif op.post_transform == "LOGISTIC":
            alone = logistic(np.stack([-first, first], -1))
        else:
            alone = np.stack([1 - first if probabilities else -first, first], -1)
        if op.n_targets == 1:
            return winner, (alone[:, :1] if op.post_transform == "PROBIT" else first[:, None]).astype(np.float32)
        return winner, np.where(single[:, None], alone, pair).astype(np.float32)
