"""Tree ensembles on small forests, against a walk that follows the definition node by node."""

import math

import numpy as np

from mnnx.schema.ops.ml_trees import LEAF, MODES, TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor
from tests.cases import case, f32, f64, integers

_HOLDS = {
    "LEQ": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
    "GTE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "EQ": lambda a, b: a == b,
    "NEQ": lambda a, b: a != b,
}


def forest(dtype=np.float32, votes_of_leaf=((0, 0.25), (1, -0.5), (2, 0.75), (0, 1.5), (1, 0.125))):
    """Two trees: `x0 ? (x1 ? leaf : leaf) : leaf` and `x2 ? leaf : leaf`, with a vote per leaf; thresholds are ones that rows meet."""
    return {
        "roots": np.array([0, 1], np.int32),
        "features": np.array([0, 2, 1, 0, 0, 0, 0, 0], np.int32),
        "thresholds": np.array([0, 1, -1, 0, 0, 0, 0, 0], dtype),
        "modes": np.array([MODES.index("LEQ"), MODES.index("GT"), MODES.index("EQ"), *[LEAF] * 5], np.uint8),
        "true_nodes": np.array([2, 3, 4, 3, 4, 5, 6, 7], np.int32),
        "false_nodes": np.array([5, 6, 7, 3, 4, 5, 6, 7], np.int32),
        "missing_true": np.array([True, False, True, *[False] * 5]),
        "vote_starts": np.array([0, 0, 0, 0, 1, 2, 3, 4, 5], np.int32),
        "vote_targets": np.array([target for target, _ in votes_of_leaf], np.int32),
        "vote_weights": np.array([weight for _, weight in votes_of_leaf], dtype),
    }


def walk(op, x):
    """Per row, per target: the list of votes."""
    result = []
    for row in np.atleast_2d(x):
        votes = [[] for _ in range(op.n_targets)]
        for node in op.roots:
            while op.modes[node] != LEAF:
                value = row[op.features[node]]
                holds = _HOLDS[MODES[op.modes[node]]](value, op.thresholds[node]) or (math.isnan(value) and op.missing_true[node])
                node = op.true_nodes[node] if holds else op.false_nodes[node]
            for vote in range(op.vote_starts[node], op.vote_starts[node + 1]):
                votes[op.vote_targets[vote]].append(float(op.vote_weights[vote]))
        result.append(votes)
    return result


def regressed(op, aggregate, dtype):
    def reference(x):
        base = np.zeros(op.n_targets) if op.base_values is None else op.base_values
        scores = [[aggregate(v) + b if v else 0.0 for v, b in zip(row, base, strict=True)] for row in walk(op, x)]
        return np.array(scores, dtype).reshape(-1, op.n_targets)

    return reference


def regressor(op_class, *inputs, aggregate="SUM", **attributes):
    functions = {"SUM": sum, "AVERAGE": lambda votes: sum(votes) / 2, "MIN": min, "MAX": max}
    op = op_class(n_targets=3, aggregate=aggregate, **attributes)
    dtype = inputs[0].dtype if op_class is TreeEnsemble else np.float32
    case(op, *inputs, reference=regressed(op, functions[aggregate], dtype))


def numbers(rows):
    return integers("float32", rows, 3, low=-2, high=3)


def with_nan(rows):
    x = numbers(rows)
    x[::2, 0] = np.nan
    x[1::3, 1:] = np.nan
    return x


for name in ("SUM", "AVERAGE", "MIN", "MAX"):
    regressor(TreeEnsembleRegressor, numbers(20), aggregate=name, **forest())
regressor(TreeEnsemble, with_nan(20), **forest())
regressor(TreeEnsemble, f64(9, 3), **forest(np.float64))
regressor(TreeEnsemble, numbers(9).astype(np.float16), **forest())
regressor(TreeEnsembleRegressor, integers("int64", 9, 3, low=-2, high=3), **forest())
regressor(TreeEnsembleRegressor, f32(3), **forest(), base_values=np.array([1, 2, 3], np.float32))
regressor(TreeEnsembleRegressor, f32(0, 3), **forest())


def classified(op, labels):
    def reference(x):
        scores = np.array([[sum(v) for v in row] for row in walk(op, x)], np.float32)
        voted = np.array([[bool(v) for v in row] for row in walk(op, x)])
        winner = np.where(voted, scores, -np.inf).argmax(1)
        e = np.exp(scores - scores.max(1, keepdims=True))
        return np.array([labels[i] for i in winner], object if isinstance(labels[0], str) else np.int64), e / e.sum(1, keepdims=True)

    return reference


for key, labels in (("classlabels_strings", ("cat", "dog", "fox")), ("classlabels_int64s", (7, -1, 3))):
    op = TreeEnsembleClassifier(n_targets=3, post_transform="SOFTMAX", **forest(), **{key: labels})
    case(op, with_nan(20), reference=classified(op, labels), outputs=2)


def binary_reference(op, threshold, scores_of):
    def reference(x):
        sums = np.array([sum(row[1]) for row in walk(op, x)], np.float32)
        return (sums > threshold).astype(np.int64) * 10, np.stack(scores_of(sums), 1)

    return reference


# All votes are for the second of two labels, and this isn't seen before they are added up: without a vote for the first, both have scores.
positive = forest(votes_of_leaf=((1, 0.25), (1, 0.125), (1, 0.5), (1, 0.375), (1, 0.0)))
op = TreeEnsembleClassifier(n_targets=2, classlabels_int64s=(0, 10), **positive)
case(op, numbers(20), reference=binary_reference(op, 0.5, lambda s: (np.zeros_like(s), s)), outputs=2)
mixed = forest(votes_of_leaf=((1, 0.25), (1, -0.125), (1, -0.5), (1, 0.375), (1, 0.1)))
op = TreeEnsembleClassifier(n_targets=2, classlabels_int64s=(0, 10), post_transform="LOGISTIC", **mixed)
case(op, numbers(20), reference=binary_reference(op, 0, lambda s: (np.full_like(s, 0.5), 1 / (1 + np.exp(-s)))), outputs=2)
