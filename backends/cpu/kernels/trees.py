"""Tree ensembles: the leaf that each row reaches in each tree, then what the leaves vote for.

A node is four int32 words, in memory (`NODE_BYTES`): the index of its feature times 16 and the outcomes that lead to its first child, the
threshold's bits, the first child, the other one. Outcomes are bits: below, equal, above, unordered (NaN). A leaf is its own child, so
that several walks go on in step until none moves.
"""

import numpy as np

from mnnx.backends.cpu.kernels.intrinsics import (
    absolute,
    inlined,
    load_f32,
    load_i32,
    load_i64,
    load_u8,
    maximum,
    minimum,
    select,
    share,
    square_root,
    store_f32,
    store_i32,
    store_i64,
    store_u8,
)
from mnnx.backends.cpu.kernels.math import exp_f32, log_f32
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.trees_words import TreeScores, TreeWalk
from mnnx.backends.cpu.kernels.vectors import load_words

F = np.float32
_walk_words, _score_words = load_words(len(TreeWalk._fields)), load_words(len(TreeScores._fields))
#: Rows and trees of a task; so many rows go down one tree while its nodes are in the cache.
_ROWS, _TREES = 64, 32


def _make_walk(mode: str, missing: bool):
    """walk(nodes, x0 … x3, n0 … n3): where four walks from the nodes n end, each in a row x of features."""

    @inlined
    def step(nodes, x, node):
        place = nodes + 16 * node
        packed, threshold = np.int64(load_i32(place)), load_f32(place + 4)
        value = load_f32(x + 4 * (packed >> 4))
        if mode == "mixed":
            outcome = select(value < threshold, 1, select(value == threshold, 2, select(value > threshold, 4, 8)))
            holds = (packed & outcome) != 0
        elif mode == "LEQ":
            holds = value <= threshold
        else:
            holds = value < threshold
        if missing and mode != "mixed":
            holds |= (value != value) & ((packed & 8) != 0)
        return np.int64(load_i32(place + select(holds, 8, 12)))

    @inlined
    def walk(nodes, x0, x1, x2, x3, n0, n1, n2, n3):
        moved = True
        while moved:
            m0, m1, m2, m3 = step(nodes, x0, n0), step(nodes, x1, n1), step(nodes, x2, n2), step(nodes, x3, n3)
            moved = ((m0 ^ n0) | (m1 ^ n1) | (m2 ^ n2) | (m3 ^ n3)) != 0
            n0, n1, n2, n3 = m0, m1, m2, m3
        return n0, n1, n2, n3

    return walk


@kernel_factory("trees.leaves")
def make_leaves(mode, missing):
    """Argument block: TreeWalk. `mode`: LEQ or LT where all nodes compare so, else mixed; `missing`: whether NaN may lead to first
    children."""
    walk = _make_walk(mode, missing)

    def leaves(args, part, parts):
        nodes, roots, x, target, rows, trees, row_bytes = _walk_words(args)
        row_blocks, tree_blocks = (rows + _ROWS - 1) // _ROWS, (trees + _TREES - 1) // _TREES
        first, last = share(row_blocks * tree_blocks, part, parts, 1)
        for task in range(first, last):
            first_row, first_tree = task // tree_blocks * _ROWS, task % tree_blocks * _TREES
            last_row, last_tree = min(rows, first_row + _ROWS) - 1, min(trees, first_tree + _TREES) - 1
            if last_row - first_row < 3:  # four trees in step, else four rows; what is left over is done twice
                for row in range(first_row, last_row + 1):
                    here, place = x + row * row_bytes, target + 4 * row * trees
                    for t0 in range(first_tree, last_tree + 1, 4):
                        t1, t2, t3 = min(t0 + 1, last_tree), min(t0 + 2, last_tree), min(t0 + 3, last_tree)
                        n0, n1 = np.int64(load_i32(roots + 4 * t0)), np.int64(load_i32(roots + 4 * t1))
                        n2, n3 = np.int64(load_i32(roots + 4 * t2)), np.int64(load_i32(roots + 4 * t3))
                        n0, n1, n2, n3 = walk(nodes, here, here, here, here, n0, n1, n2, n3)
                        store_i32(place + 4 * t0, n0)
                        store_i32(place + 4 * t1, n1)
                        store_i32(place + 4 * t2, n2)
                        store_i32(place + 4 * t3, n3)
                continue
            for tree in range(first_tree, last_tree + 1):
                root = np.int64(load_i32(roots + 4 * tree))
                for r0 in range(first_row, last_row + 1, 4):
                    r1, r2, r3 = min(r0 + 1, last_row), min(r0 + 2, last_row), min(r0 + 3, last_row)
                    x0, x1, x2, x3 = x + r0 * row_bytes, x + r1 * row_bytes, x + r2 * row_bytes, x + r3 * row_bytes
                    n0, n1, n2, n3 = walk(nodes, x0, x1, x2, x3, root, root, root, root)
                    store_i32(target + 4 * (r0 * trees + tree), n0)
                    store_i32(target + 4 * (r1 * trees + tree), n1)
                    store_i32(target + 4 * (r2 * trees + tree), n2)
                    store_i32(target + 4 * (r3 * trees + tree), n3)

    return leaves


@inlined
def _logistic(x):
    positive = F(1) / (F(1) + exp_f32(-absolute(x)))
    return select(x < F(0), F(1) - positive, positive)


@inlined
def _probit(x):
    """As `numpy_executions/ml_scores.py` has it."""
    x = F(2) * x - F(1)
    log = log_f32((F(1) - x) * (F(1) + x))
    v = F(2 / (3.14159 * 0.147)) + F(0.5) * log
    size = F(np.sqrt(2)) * square_root(square_root(v * v - log / F(0.147)) - v)
    return select(x < F(0), -size, size)


def _make_transform(name: str):
    """transform(scores, count), in place: a post transform of `schema.ops.ml_trees`."""
    if name == "NONE":

        @inlined
        def transform(scores, count):
            pass

    elif name in ("LOGISTIC", "PROBIT"):
        function = _logistic if name == "LOGISTIC" else _probit

        @inlined
        def transform(scores, count):
            for i in range(count):
                store_f32(scores + 4 * i, function(load_f32(scores + 4 * i)))

    else:
        keeps_zeros = name == "SOFTMAX_ZERO"

        @inlined
        def transform(scores, count):
            top, total = load_f32(scores), F(0)
            for i in range(1, count):
                top = maximum(top, load_f32(scores + 4 * i))
            for i in range(count):
                value = load_f32(scores + 4 * i)
                power = exp_f32(value - top)
                if keeps_zeros:
                    power = select(absolute(value) <= F(1e-7), F(0), power)
                total += power
                store_f32(scores + 4 * i, power)
            for i in range(count):
                store_f32(scores + 4 * i, load_f32(scores + 4 * i) / total)

    return transform


def _make_votes(aggregate: str):
    """add_votes(leaves, trees, spans, targets, weights, scores, voted, count): a row's scores, and for which targets there were votes."""
    start = F({"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0))

    @inlined
    def add_votes(leaves, trees, spans, targets, weights, scores, voted, count):
        for i in range(count):
            store_f32(scores + 4 * i, start)
            store_u8(voted + i, 0)
        for tree in range(trees):
            leaf = np.int64(load_i32(leaves + 4 * tree))
            for vote in range(load_i32(spans + 8 * leaf), load_i32(spans + 8 * leaf + 4)):
                target, weight = np.int64(load_i32(targets + 4 * vote)), load_f32(weights + 4 * vote)
                value = load_f32(scores + 4 * target)
                if aggregate == "MIN":
                    value = minimum(value, weight)
                elif aggregate == "MAX":
                    value = maximum(value, weight)
                else:
                    value += weight
                store_f32(scores + 4 * target, value)
                store_u8(voted + target, 1)
        for i in range(count):
            if load_u8(voted + i) == 0:
                store_f32(scores + 4 * i, F(0))
            elif aggregate == "AVERAGE":
                store_f32(scores + 4 * i, load_f32(scores + 4 * i) / F(trees))

    return add_votes


def _make_regression(post_transform: str):
    """finish(…) of a row; one target: ONNX Runtime applies no other transform than PROBIT."""
    transform = _make_transform(post_transform)

    @inlined
    def finish(scores, voted, count, bases, base_count, labels, label, one_target, probabilities, has_names):
        for i in range(count):
            based = load_f32(scores + 4 * i) + (load_f32(bases + 4 * i) if base_count == count else F(0))
            store_f32(scores + 4 * i, based if count == 1 or load_u8(voted + i) != 0 else F(0))
        if count > 1 or post_transform == "PROBIT":
            transform(scores, count)

    return finish


def _make_classes(post_transform: str):
    transform = _make_transform(post_transform)

    @inlined
    def finish(scores, voted, count, bases, base_count, labels, label, one_target, probabilities, has_names):
        best, winner = F(-np.inf), 0
        for i in range(count):
            score = load_f32(scores + 4 * i)
            if base_count == count:
                score += load_f32(bases + 4 * i)
                store_f32(scores + 4 * i, score)
            stands = load_u8(voted + i) != 0 or base_count == count
            if stands and (score > best or (score != score and best == best)):
                best, winner = score, i
        store_i64(label, winner if has_names != 0 else load_i64(labels + 8 * winner))
        transform(scores, count)

    return finish


def _make_binary(post_transform: str):
    """One or two labels, by the rules of `numpy_executions/ml_trees.py`."""
    transform = _make_transform(post_transform)

    @inlined
    def finish(scores, voted, count, bases, base_count, labels, label, one_target, probabilities, has_names):
        first, last = load_f32(scores), load_f32(scores + 4 * (count - 1))
        first_voted, second = load_u8(voted) != 0, count == 2 and load_u8(voted + count - 1) != 0
        single = not second
        if base_count == 2:
            last = load_f32(bases + 4) + first if second else F(0)
            first = -last if second else first + load_f32(bases)
            single = False
        elif base_count == 1:
            first += load_f32(bases)
        if not first_voted and not single:
            first = F(0)
        weight = last if second else (first if first_voted else F(0))
        winner = 1 if weight > (F(0.5) if probabilities != 0 else F(0)) else 0
        if has_names == 0 and one_target != 0:
            winner = load_i64(labels + 8 * winner)
        store_i64(label, winner)
        if count == 1:
            store_f32(scores, _probit(first) if post_transform == "PROBIT" else first)
        elif not single:
            store_f32(scores, first)
            store_f32(scores + 4, last)
            transform(scores, 2)
        elif post_transform == "PROBIT":
            store_f32(scores, _probit(first))
            store_f32(scores + 4, F(0))
        elif one_target == 0 and base_count > 0:
            store_f32(scores, first)
            store_f32(scores + 4, F(0))
        elif post_transform == "LOGISTIC":
            store_f32(scores, _logistic(-first))
            store_f32(scores + 4, _logistic(first))
        else:
            store_f32(scores, F(1) - first if probabilities != 0 else -first)
            store_f32(scores + 4, first)

    return finish


_FORMS = {"regression": _make_regression, "classes": _make_classes, "binary": _make_binary}


@kernel_factory("trees.scores")
def make_scores(form, aggregate, post_transform):
    """Argument block: TreeScores. Chunks are ranges of rows. `form`: regression, binary (one or two labels), classes."""
    add_votes, finish = _make_votes(aggregate), _FORMS[form](post_transform)

    def score(args, part, parts):
        (
            leaves, spans, targets, weights, scores_start, voted_start, rows, trees, count, bases, base_count, names, labels_start,
            one_target, probabilities, has_names,
        ) = _score_words(args)  # fmt: skip
        first, last = share(rows, part, parts, 1)
        for row in range(first, last):
            scores, voted, label = scores_start + 4 * row * count, voted_start + row * count, labels_start + 8 * row
            add_votes(leaves + 4 * row * trees, trees, spans, targets, weights, scores, voted, count)
            finish(scores, voted, count, bases, base_count, names, label, one_target, probabilities, has_names)

    return score
