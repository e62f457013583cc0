"""Tree ensembles in float32. Nodes are packed once per model, each tree's together, so that a walk stays in few cache lines."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments, array_of, round_up
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.trees_words import TreeScores, TreeWalk
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.ml_trees import LEAF, MODES, TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor, rows_of
from mnnx.schema.records import Row

_FLOAT32 = np.dtype("float32")
#: By mode, which outcomes of a comparison let it hold: below 1, equal 2, above 4, unordered 8.
_OUTCOMES = np.array([{"LEQ": 3, "LT": 1, "GTE": 6, "GT": 4, "EQ": 2, "NEQ": 13, "LEAF": 0}[mode] for mode in MODES], np.int32)
_UNORDERED = 8
#: Feature indices stay below this: they share a word with the outcomes.
_FEATURES = 1 << 27
#: How deep trees are followed to tell which tree a node belongs to; what lies deeper is packed behind all trees.
_DEPTH = 64


class Forest(Row):
    """nodes [n, 4] and spans [n, 2] int32, as kernels/trees.py reads them; what the votes are; the one mode of all nodes, or mixed."""

    nodes: np.ndarray
    roots: np.ndarray
    spans: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    mode: str
    missing: bool


def supports(op: TreeEnsemble, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype != _FLOAT32 or op.thresholds.dtype != _FLOAT32:
        return "only float32 is native"
    return None if op.features.max() < _FEATURES else f"only features below {_FEATURES} are native"


@creator(TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier, supports=supports)
def create(op: TreeEnsemble, backend, inputs: Specs, outputs: Specs) -> Execution:
    return TreeExecution(op, backend, inputs)


class TreeExecution(Execution):
    """One unit finds all leaves, one adds up the votes; text labels are put in by Python."""

    def __init__(self, op: TreeEnsemble, backend, inputs: Specs):
        super().__init__(op, backend)
        self.rows, self.features = rows_of(inputs[0])
        self.trees, self.count = op.roots.size, op.n_targets
        self.classifies = isinstance(op, TreeEnsembleClassifier)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        """Leaves, which scores were voted for, scores and labels that nobody wants or that are indices of text."""
        return sum(map(round_up, (4 * self.rows * self.trees, self.rows * self.count, 4 * self.rows * self.count, 8 * self.rows)))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if not self.rows:
            return
        op, backend, rows, trees, count = self.op, self.backend, self.rows, self.trees, self.count
        forest = backend.packed(("forest", *map(_identity, _arrays(op))), op.thresholds, lambda _: pack(op))
        leaves = address_of(scratch)
        voted = leaves + round_up(4 * rows * trees)
        spare_scores = voted + round_up(rows * count)
        spare_labels = spare_scores + round_up(4 * rows * count)
        labels, scores = (*outputs, None)[:2] if self.classifies else (None, outputs[0])
        names = np.array(op.classlabels_int64s if self.classifies else (), np.int64)
        text = np.array(op.classlabels_strings if self.classifies else (), object)
        bases = np.zeros(0, _FLOAT32) if op.base_values is None else op.base_values.astype(_FLOAT32)
        one_target = count == 2 and np.unique(op.vote_targets).size == 1
        walk = TreeWalk(address_of(forest.nodes), address_of(forest.roots), address_of(inputs[0]), leaves, rows, trees, 4 * self.features)
        block = TreeScores(
            leaves=leaves,
            spans=address_of(forest.spans),
            targets=address_of(forest.targets),
            weights=address_of(forest.weights),
            scores=spare_scores if scores is None else address_of(scores),
            voted=voted,
            rows=rows,
            trees=trees,
            count=count,
            bases=address_of(bases),
            base_count=bases.size,
            names=address_of(names),
            labels=spare_labels if labels is None or text.size else address_of(labels),
            one_target=one_target,
            probabilities=one_target and bool((op.vote_weights >= 0).all()),
            has_names=text.size > 0,
        )
        commands, work = backend.commands, rows * trees
        leaves_kernel = kernel("trees.leaves", mode=forest.mode, missing=forest.missing)
        commands.record(leaves_kernel, arguments(*walk), backend.chunks(20 * work), forest)
        form = "regression" if not self.classifies else "binary" if count <= 2 else "classes"
        scores_kernel = kernel("trees.scores", form=form, aggregate=op.aggregate, post_transform=op.post_transform)
        commands.record(scores_kernel, arguments(*block), min(rows, backend.chunks(5 * work)), (bases, names))
        if text.size and labels is not None:
            start = spare_labels - leaves + scratch.offset
            winners, target = np.ndarray((rows,), np.int64, buffer=scratch.memory, offset=start), array_of(labels)
            most = text.size - 1

            def name_labels() -> None:
                target[...] = text[np.minimum(winners, most)]

            commands.record_host(name_labels)


def _arrays(op: TreeEnsemble) -> tuple[np.ndarray, ...]:
    """All that `pack` reads."""
    return (
        op.roots, op.features, op.modes, op.true_nodes, op.false_nodes, op.missing_true, op.vote_starts, op.vote_targets, op.vote_weights,
    )  # fmt: skip


def _identity(array: np.ndarray) -> tuple:
    return address_of(array), array.shape, array.strides, array.dtype


def pack(op: TreeEnsemble) -> Forest:
    """The trees of an op, whose nodes come one tree after the other, within each level by level."""
    count, leaf = len(op.features), op.modes == LEAF
    order = np.argsort(_trees_of(op), kind="stable")
    number = np.empty(count, np.int32)
    number[order] = np.arange(count, dtype=np.int32)
    outcomes = _OUTCOMES[op.modes] | np.where(op.missing_true, _UNORDERED, 0)
    thresholds = np.array(op.thresholds, _FLOAT32)
    undefined = np.isnan(thresholds) & ~leaf
    # No number stands in any order to NaN: what does not want NEQ fails for all of them, and only NaN itself is missing.
    thresholds[undefined] = 0
    outcomes[undefined] = np.where(op.modes[undefined] == MODES.index("NEQ"), 15, outcomes[undefined] & _UNORDERED)
    nodes = np.empty((count, 4), np.int32)
    nodes[number, 0] = np.where(leaf, 0, op.features.astype(np.int64) << 4 | outcomes)
    nodes[number, 1] = thresholds.view(np.int32)
    nodes[number, 2] = number[op.true_nodes]
    nodes[number, 3] = number[op.false_nodes]
    spans = np.stack([op.vote_starts[:-1], op.vote_starts[1:]], axis=1)[order].astype(np.int32)
    modes = {MODES[mode] for mode in np.unique(op.modes[~leaf])}
    alone = modes <= {"LEQ"} or modes <= {"LT"}
    return Forest(
        nodes,
        number[op.roots],
        np.ascontiguousarray(spans),
        np.array(op.vote_targets, np.int32),
        np.array(op.vote_weights, _FLOAT32),
        "mixed" if not alone or undefined.any() else "LT" if modes == {"LT"} else "LEQ",
        bool(op.missing_true[~leaf].any()),
    )


def _trees_of(op: TreeEnsemble) -> np.ndarray:
    """Which tree each node belongs to (of a shared node, any); their number for nodes that lie deeper than is looked."""
    trees = np.full(len(op.features), op.roots.size)
    trees[op.roots] = np.arange(op.roots.size)
    level = np.unique(op.roots)
    for _ in range(_DEPTH):
        level = level[op.modes[level] != LEAF]
        if not level.size:
            break
        children = np.concatenate([op.true_nodes[level], op.false_nodes[level]])
        trees[children] = np.tile(trees[level], 2)
        level = np.unique(children)
    return trees
