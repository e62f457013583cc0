"""Importers of ai.onnx.ml's tree ensembles: all versions become one form, with nodes numbered so that children follow their parents."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.ml_trees import LEAF, MODES, POST_TRANSFORMS, TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor

DOMAIN = "ai.onnx.ml"
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_MEMBER = 6  # TreeEnsemble-5's mode "the feature is in a set"

Ints = tuple[int, ...]
Floats = tuple[float, ...]
Strings = tuple[str, ...]


@dataclass
class Forest:
    """Nodes in any order; children are positions in these lists. A leaf has a list of votes (target, weight)."""

    features: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    children: list[tuple[int, int]] = field(default_factory=list)
    missing_true: list[bool] = field(default_factory=list)
    votes: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    roots: list[int] = field(default_factory=list)

    def add(self, feature: int, threshold: float, mode: int, children: tuple[int, int], missing_true: bool) -> int:
        self.features.append(feature)
        self.thresholds.append(threshold)
        self.modes.append(mode)
        self.children.append(children)
        self.missing_true.append(missing_true)
        return len(self.modes) - 1

    def add_leaf(self) -> int:
        return self.add(0, 0.0, LEAF, (0, 0), False)

    def order(self, node: OnnxNode) -> list[int]:
        """The positions of all nodes that are reached, parents first; fails where a node is its own ancestor."""
        parents = dict.fromkeys(self.roots, 0)
        stack = list(parents)
        while stack:
            position = stack.pop()
            for child in self._successors(position):
                if child not in parents:
                    parents[child] = 0
                    stack.append(child)
                parents[child] += 1
        order = [position for position in dict.fromkeys(self.roots) if not parents[position]]
        for position in order:
            for child in self._successors(position):
                parents[child] -= 1
                if not parents[child]:
                    order.append(child)
        if len(order) != len(parents):
            node.fail("its trees have a node that is its own ancestor; the model is broken")
        return order

    def _successors(self, position: int) -> tuple[int, ...]:
        return () if self.modes[position] == LEAF else self.children[position]

    def arrays(self, node: OnnxNode, wide: bool) -> dict[str, np.ndarray]:
        """The arrays that a TreeEnsemble takes; `wide` for thresholds and weights in float64."""
        order = self.order(node)
        number = {position: index for index, position in enumerate(order)}
        children = np.array(
            [
                (index, index) if self.modes[position] == LEAF else [number[child] for child in self.children[position]]
                for index, position in enumerate(order)
            ],
            np.int32,
        )
        votes = [self.votes.get(position, []) if self.modes[position] == LEAF else [] for position in order]
        flat = [vote for votes_of_node in votes for vote in votes_of_node]
        real = np.float64 if wide else np.float32
        return {
            "roots": np.array([number[root] for root in self.roots], np.int32),
            "features": np.array([self.features[p] for p in order], np.int32),
            "thresholds": np.array([self.thresholds[p] for p in order], real),
            "modes": np.array([self.modes[p] for p in order], np.uint8),
            "true_nodes": np.ascontiguousarray(children[:, 0]),
            "false_nodes": np.ascontiguousarray(children[:, 1]),
            "missing_true": np.array([self.missing_true[p] for p in order], bool),
            "vote_starts": np.cumsum([0, *map(len, votes)]).astype(np.int32),
            "vote_targets": np.array([target for target, _ in flat], np.int32),
            "vote_weights": np.array([weight for _, weight in flat], real),
        }


def _numbers(node: OnnxNode, name: str) -> np.ndarray | None:
    """A list of floats, or its `_as_tensor` form (float64); None where neither is there."""
    tensor = node.attribute(f"{name}_as_tensor", np.ndarray, None)
    if tensor is not None:
        return tensor.reshape(-1)
    floats = node.attribute(name, Floats, None)
    return None if floats is None else np.array(floats, np.float32)


def _read_forest(node: OnnxNode, prefix: str) -> tuple[Forest, bool]:
    """The trees of TreeEnsembleClassifier and -Regressor 1 … 5, and whether their numbers are float64; votes are named `prefix`_*."""
    trees, ids = node.attribute("nodes_treeids", Ints), node.attribute("nodes_nodeids", Ints)
    names = node.attribute("nodes_modes", Strings)
    features = node.attribute("nodes_featureids", Ints)
    children = list(zip(node.attribute("nodes_truenodeids", Ints), node.attribute("nodes_falsenodeids", Ints), strict=False))
    thresholds = _numbers(node, "nodes_values")
    count = len(ids)
    if thresholds is None or {len(trees), len(names), len(features), len(children), len(thresholds)} != {count}:
        node.fail("the attributes nodes_* must all have the same length")
    missing = node.attribute("nodes_missing_value_tracks_true", Ints, ()) or (0,) * count
    if len(missing) != count:
        node.fail(f"nodes_missing_value_tracks_true must have {count} entries; it has {len(missing)}")
    modes = {name if name == "LEAF" else f"BRANCH_{name}": index for index, name in enumerate(MODES)}
    if unknown := set(names) - modes.keys():
        node.fail(f"unknown nodes_modes: {', '.join(sorted(unknown))}")
    position = {key: index for index, key in enumerate(zip(trees, ids, strict=True))}
    if len(position) != count:
        node.fail("a node id occurs twice in a tree")
    forest = Forest()
    for index in range(count):
        mode = modes[names[index]]
        if mode == LEAF:  # what the other lists have for it means nothing
            forest.add_leaf()
            continue
        following = tuple(position.get((trees[index], child), -1) for child in children[index])
        if -1 in following:
            node.fail(f"node {ids[index]} of tree {trees[index]} has a child that doesn't exist: {children[index]}")
        forest.add(features[index], thresholds[index], mode, following, missing[index] == 1)
    forest.roots = list({tree: index for index, tree in reversed(list(enumerate(trees)))}.values())[::-1]
    _read_votes(node, prefix, forest, position)
    weights = node.attribute(f"{prefix}_weights_as_tensor", np.ndarray, None)
    return forest, np.float64 in (thresholds.dtype, weights if weights is None else weights.dtype)


def _read_votes(node: OnnxNode, prefix: str, forest: Forest, position: dict[tuple[int, int], int]) -> None:
    targets = node.attribute("class_ids" if prefix == "class" else "target_ids", Ints)
    voters = list(zip(node.attribute(f"{prefix}_treeids", Ints), node.attribute(f"{prefix}_nodeids", Ints), strict=False))
    weights = _numbers(node, f"{prefix}_weights")
    if weights is None or not len(targets) == len(voters) == len(weights):
        node.fail(f"the attributes {prefix}_* must all have the same length")
    for voter, target, weight in zip(voters, targets, weights, strict=True):
        if voter not in position:
            node.fail(f"a vote is for node {voter[1]} of tree {voter[0]}, which doesn't exist")
        forest.votes.setdefault(position[voter], []).append((target, weight))


def _build(node: OnnxNode, op_class: type[TreeEnsemble], forest: Forest, wide: bool, **attributes) -> Op:
    return node.op(op_class, **forest.arrays(node, wide), **attributes)


@importer("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(node: OnnxNode, x: Value) -> Op:
    forest, wide = _read_forest(node, "target")
    return _build(
        node,
        TreeEnsembleRegressor,
        forest,
        wide,
        n_targets=node.attribute("n_targets", int),
        aggregate=node.attribute("aggregate_function", str, "SUM"),
        base_values=_numbers(node, "base_values"),
    )


@importer("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(node: OnnxNode, x: Value) -> Op:
    forest, wide = _read_forest(node, "class")
    labels = node.attribute("classlabels_strings", Strings, ()) or node.attribute("classlabels_int64s", Ints, ())
    base_values = _numbers(node, "base_values")
    return _build(node, TreeEnsembleClassifier, forest, wide, n_targets=len(labels), base_values=base_values, aggregate="SUM")


@importer("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(node: OnnxNode, x: Value) -> Op:
    thresholds, weights = node.attribute("nodes_splits", np.ndarray), node.attribute("leaf_weights", np.ndarray)
    forest = _read_forest5(node, thresholds.reshape(-1), weights.reshape(-1))
    aggregate, post_transform = node.attribute("aggregate_function", int, 1), node.attribute("post_transform", int, 0)
    if not (0 <= aggregate < len(_AGGREGATES) and 0 <= post_transform < len(POST_TRANSFORMS)):
        node.fail(f"aggregate_function {aggregate} or post_transform {post_transform} is unknown")
    return _build(
        node,
        TreeEnsemble,
        forest,
        np.float64 in (thresholds.dtype, weights.dtype),
        n_targets=node.attribute("n_targets", int),
        aggregate=_AGGREGATES[aggregate],
        post_transform=POST_TRANSFORMS[post_transform],
        base_values=None,
    )


def _read_forest5(node: OnnxNode, thresholds: np.ndarray, weights: np.ndarray) -> Forest:
    """The trees of TreeEnsemble-5, where leaves have numbers of their own, and a node may test membership in a set."""
    modes = node.attribute("nodes_modes", np.ndarray).reshape(-1)
    features = node.attribute("nodes_featureids", Ints)
    missing = node.attribute("nodes_missing_value_tracks_true", Ints, ()) or (0,) * len(modes)
    sides = []
    for side in ("true", "false"):
        sides.append((node.attribute(f"nodes_{side}nodeids", Ints), node.attribute(f"nodes_{side}leafs", Ints)))
    lists = [thresholds, features, missing, *sides[0], *sides[1]]
    if any(len(values) != len(modes) for values in lists):
        node.fail("the attributes nodes_* must all have the same length")
    targets, roots = node.attribute("leaf_targetids", Ints), node.attribute("tree_roots", Ints)
    if len(targets) != len(weights):
        node.fail("leaf_targetids and leaf_weights must have the same length")
    sets = _member_sets(node, int((modes == _MEMBER).sum()))

    forest = Forest()
    # Branches come first, at their own positions, then the leaves, then what sets add.
    for index, mode in enumerate(modes):
        following = []
        for ids, leaves in sides:
            limit = len(targets) if leaves[index] else len(modes)
            if not 0 <= ids[index] < limit:
                node.fail(f"node {index} has a child {ids[index]} that doesn't exist")
            following.append(ids[index] + len(modes) if leaves[index] else ids[index])
        if mode > _MEMBER:
            node.fail(f"the mode {mode} of node {index} is unknown")
        forest.add(features[index], float(thresholds[index]), int(mode), tuple(following), missing[index] == 1)
    for target, weight in zip(targets, weights, strict=True):
        forest.votes[forest.add_leaf()] = [(target, float(weight))]
    if any(not 0 <= root < len(modes) for root in roots):
        node.fail("tree_roots must be indices of nodes")
    forest.roots = list(roots)
    for index in np.flatnonzero(modes == _MEMBER):
        _expand_set(forest, int(index), next(sets))
    return forest


def _member_sets(node: OnnxNode, count: int):
    """The sets that nodes test membership in, in the order of the nodes; NaN ends a set."""
    values = node.attribute("membership_values", np.ndarray, np.zeros(0, np.float32)).reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends)]
    if len(sets) < count:
        node.fail(f"membership_values has {len(sets)} sets for {count} nodes")
    return iter(sets)


def _expand_set(forest: Forest, index: int, members: np.ndarray) -> None:
    """Makes a membership test a chain of equality tests, from the node at `index` on."""
    equal = MODES.index("EQ")
    feature, (holds, fails), missing = forest.features[index], forest.children[index], forest.missing_true[index]
    following = fails
    for member in members[:0:-1]:
        following = forest.add(feature, float(member), equal, (holds, following), missing)
    forest.modes[index] = equal
    forest.thresholds[index] = float(members[0]) if members.size else float("nan")
    forest.children[index] = (holds, following)
