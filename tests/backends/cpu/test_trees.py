"""Native tree ensembles against a walk that follows the definition node by node, and the packing of large and odd forests."""

import numpy as np
import pytest

from mnnx.backends.cpu.executions.ml_trees import pack
from mnnx.backends.cpu.numpy_executions import registry
from mnnx.schema.ops.ml_trees import LEAF, MODES, TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor
from tests.backends.cpu.native import Native
from tests.cases.ml_trees import walk

RNG = np.random.default_rng(21)


def grown(trees, depth, modes, targets, missing=False, features=5, thresholds=(-2, 3), positive=False):
    """Attributes of random trees, level by level over all trees; every leaf has a vote or two, some leaves none."""
    nodes = [(0, 0.0, LEAF, 0, False) for _ in range(trees)]
    children = [None] * trees
    frontier = list(range(trees))
    for level in range(depth):
        following = []
        for index in frontier:
            if level and RNG.random() < 0.2:
                continue
            mode = MODES.index(modes[RNG.integers(len(modes))])
            nodes[index] = (int(RNG.integers(features)), float(RNG.integers(*thresholds)), mode, 0, missing and RNG.random() < 0.5)
            children[index] = (len(nodes), len(nodes) + 1)
            following += children[index]
            nodes += [(0, 0.0, LEAF, 0, False)] * 2
            children += [None] * 2
        frontier = following
    own = np.arange(len(nodes), dtype=np.int32)
    votes = [0 if child is not None or RNG.random() < 0.1 else int(RNG.integers(1, 3)) for child in children]
    weights = RNG.standard_normal(sum(votes)).astype(np.float32)
    return {
        "roots": np.arange(trees, dtype=np.int32),
        "features": np.array([n[0] for n in nodes], np.int32),
        "thresholds": np.array([n[1] for n in nodes], np.float32),
        "modes": np.array([n[2] for n in nodes], np.uint8),
        "true_nodes": np.array([own[i] if c is None else c[0] for i, c in enumerate(children)], np.int32),
        "false_nodes": np.array([own[i] if c is None else c[1] for i, c in enumerate(children)], np.int32),
        "missing_true": np.array([n[4] for n in nodes]),
        "vote_starts": np.cumsum([0, *votes]).astype(np.int32),
        "vote_targets": RNG.integers(0, targets, sum(votes)).astype(np.int32),
        "vote_weights": np.abs(weights) if positive else weights,
        "n_targets": targets,
    }


def rows(count, features=5):
    x = RNG.integers(-3, 4, (count, features)).astype(np.float32)
    x[RNG.random(x.shape) < 0.2] = np.nan
    return x


def assert_as_numpy(op, x, outputs=1, threads=2):
    wanted = registry.run(op, [x])
    for got, array in zip(Native(op, x, outputs=outputs, threads=threads).run(), wanted, strict=False):
        if array.dtype == object:
            assert got.tolist() == array.tolist()
        else:
            rtol = 1e-2 if op.post_transform == "PROBIT" else 1e-5  # which takes a difference of numbers that are nearly equal
            np.testing.assert_allclose(got, array, rtol, 1e-4 if rtol > 1e-5 else 1e-6)


@pytest.mark.parametrize("count", [1, 3, 4, 150])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("modes", [("LEQ",), ("LT",), ("LEQ", "LT"), ("GTE",), MODES[:-1]])
def test_votes_are_those_of_the_definition(modes, missing, count):
    op = TreeEnsemble(**grown(40, 5, modes, 3, missing))
    x = rows(count)
    wanted = [[sum(v) for v in row] for row in walk(op, x)]
    for threads in (1, 3):
        np.testing.assert_allclose(Native(op, x, threads=threads).run()[0], np.array(wanted), 1e-5, 1e-5)


@pytest.mark.parametrize("post_transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 4])
def test_regression(targets, aggregate, post_transform):
    for base in (None, np.linspace(0.1, 0.9, targets, dtype=np.float32)):
        op = TreeEnsembleRegressor(**grown(9, 3, ("LT",), targets), aggregate=aggregate, post_transform=post_transform, base_values=base)
        assert_as_numpy(op, rows(20))


@pytest.mark.parametrize("post_transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_classification(count, text, post_transform):
    labels = {"classlabels_strings": tuple("abcde"[:count])} if text else {"classlabels_int64s": (7, 3, -1, 0, 9)[:count]}
    for bases in {0, 1, count}:
        for targets, positive in ((count, False), (1, False), (count, True)):
            attributes = grown(5, 3, ("LEQ",), targets, positive=positive)
            if targets < count:
                attributes["vote_targets"] += count - 1
            base = np.linspace(-0.5, 0.5, bases, dtype=np.float32) if bases else None
            op = TreeEnsembleClassifier(**(attributes | {"n_targets": count}), **labels, post_transform=post_transform, base_values=base)
            assert_as_numpy(op, rows(30), outputs=2)


def test_a_threshold_that_is_nan_holds_for_no_number():
    for mode in MODES[:-1]:
        attributes = grown(6, 3, (mode,), 2, missing=True)
        attributes["thresholds"][::3] = np.nan
        assert_as_numpy(TreeEnsemble(**attributes), rows(40))


def test_only_wanted_outputs_are_written():
    op = TreeEnsembleClassifier(**grown(5, 3, ("LEQ",), 3), classlabels_strings=("a", "b", "c"))
    assert_as_numpy(op, rows(9), outputs=1)


def test_a_chain_deeper_than_trees_are_sorted_by():
    depth = 200
    own = np.arange(2 * depth + 1, dtype=np.int32)
    branch = own % 2 == 0
    branch[-1] = False
    op = TreeEnsemble(
        roots=np.array([0, 0], np.int32),
        features=np.zeros(own.size, np.int32),
        thresholds=own.astype(np.float32),
        modes=np.where(branch, MODES.index("EQ"), LEAF).astype(np.uint8),
        true_nodes=np.where(branch, own + 1, own).astype(np.int32),
        false_nodes=np.where(branch, own + 2, own).astype(np.int32),
        missing_true=np.zeros(own.size, bool),
        vote_starts=np.concatenate([[0], np.cumsum(~branch)]).astype(np.int32),
        vote_targets=np.zeros((~branch).sum(), np.int32),
        vote_weights=own[~branch].astype(np.float32),
        n_targets=1,
    )
    assert pack(op).mode == "mixed"
    x = np.array([[0], [2], [2 * depth - 2], [-1]], np.float32)
    np.testing.assert_array_equal(Native(op, x).run()[0], 2 * np.array([[1], [3], [2 * depth - 1], [2 * depth]]))
