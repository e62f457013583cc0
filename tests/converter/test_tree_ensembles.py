"""Tree ensembles of all versions come to one form; damaged ones are refused; ONNX Runtime agrees."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import mnnx
from mnnx.errors import ConversionError

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def grow(rng, trees, features, depth, modes, vote):
    """Attributes nodes_* of random trees, and the votes of their leaves: (tree, node, target, weight), by `vote(rng)`."""
    nodes, votes = [], []

    def add(tree, first, level):
        index = len(nodes) - first
        nodes.append(None)
        if level == 0 or rng.random() < 0.2:
            nodes[first + index] = (tree, index, 0, 0.0, "LEAF", 0, 0, 0)
            votes.extend((tree, index, target, weight) for target, weight in vote(rng))
        else:
            split = (int(rng.integers(features)), float(rng.integers(-2, 3)), modes[rng.integers(len(modes))])
            children = add(tree, first, level - 1), add(tree, first, level - 1)
            nodes[first + index] = (tree, index, *split, *children, int(rng.random() < 0.5))
        return index

    for tree in range(trees):
        add(tree, len(nodes), depth)
    keys = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    return {f"nodes_{key}": list(column) for key, column in zip(keys, zip(*nodes, strict=True), strict=True)}, list(
        zip(*votes, strict=True)
    )


def model_of(op_type, outputs, version, **attributes):
    node = helper.make_node(op_type, ["x"], [name for name, _ in outputs], domain="ai.onnx.ml", **attributes)
    infos = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs]
    graph = helper.make_graph([node], "trees", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])], infos)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model, x, path):
    mnnx.convert(model, path)
    with mnnx.Interpreter.from_file(path) as interpreter:
        return list(interpreter.create_session(mnnx.ScheduleConfig(num_threads=1)).run({"x": x}).values())


def rows(rng):
    x = rng.integers(-3, 4, (40, 4)).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = np.nan
    return x


def assert_as_onnxruntime(model, x, path):
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for one, other in zip(run(model, x, path), wanted, strict=True):
        if other.dtype.kind in "OU":
            assert one.tolist() == other.tolist()
        else:
            np.testing.assert_allclose(one, other, 1e-4, 1e-5)


@pytest.mark.parametrize("post_transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regressors_agree_with_onnxruntime(tmp_path, aggregate, post_transform):
    rng = np.random.default_rng(3)
    nodes, (trees, ids, targets, weights) = grow(rng, 6, 4, 4, MODES, lambda rng: [(t, float(rng.normal())) for t in range(3)])
    votes = {"target_treeids": trees, "target_nodeids": ids, "target_ids": targets, "target_weights": weights}
    model = model_of(
        "TreeEnsembleRegressor",
        [("y", 1)],
        3,
        n_targets=3,
        aggregate_function=aggregate,
        post_transform=post_transform,
        base_values=[0.5, -1.0, 2.0],
        **nodes,
        **votes,
    )
    assert_as_onnxruntime(model, rows(rng), tmp_path / "trees.mnnx")


@pytest.mark.parametrize("labels", [{"classlabels_strings": ["a", "b", "c"]}, {"classlabels_int64s": [5, -1, 3]}])
@pytest.mark.parametrize("mode", MODES)
def test_classifiers_agree_with_onnxruntime(tmp_path, mode, labels):
    rng = np.random.default_rng(4)
    nodes, votes = grow(rng, 7, 4, 5, [mode], lambda rng: [(int(rng.integers(3)), float(rng.random()))])
    named = dict(zip(("class_treeids", "class_nodeids", "class_ids", "class_weights"), votes, strict=True))
    outputs = [("label", 8 if "classlabels_strings" in labels else 7), ("scores", 1)]
    assert_as_onnxruntime(model_of("TreeEnsembleClassifier", outputs, 3, **nodes, **named, **labels), rows(rng), tmp_path / "trees.mnnx")


@pytest.mark.parametrize("least", [0.0, -1.0])
@pytest.mark.parametrize("post_transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("base", [[], [0.25], [0.5, -0.25]])
@pytest.mark.parametrize("target", [0, 1])
def test_binary_classifiers_agree_with_onnxruntime(tmp_path, target, base, post_transform, least):
    rng = np.random.default_rng(5)
    nodes, votes = grow(rng, 3, 4, 3, MODES, lambda rng: [(target, float(rng.uniform(least, 1)) / 3)])
    named = dict(zip(("class_treeids", "class_nodeids", "class_ids", "class_weights"), votes, strict=True))
    if base:
        named["base_values"] = base
    model = model_of(
        "TreeEnsembleClassifier",
        [("label", 7), ("scores", 1)],
        1,
        classlabels_int64s=[0, 1],
        post_transform=post_transform,
        **nodes,
        **named,
    )
    assert_as_onnxruntime(model, rows(rng), tmp_path / "trees.mnnx")


def chain(**changes):
    """A regressor with one branch and two leaves, some attributes changed."""
    attributes = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    return model_of("TreeEnsembleRegressor", [("y", 1)], 1, **(attributes | changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "own ancestor"),
        ({"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], "nodes_falsenodeids": [2, 2, 0]}, "own ancestor"),
        ({"nodes_truenodeids": [7, 0, 0]}, "doesn't exist"),
        ({"nodes_nodeids": [0, 1, 1]}, "occurs twice"),
        ({"nodes_modes": ["BRANCH_ODD", "LEAF", "LEAF"]}, "unknown nodes_modes"),
        ({"nodes_values": [0.5, 0.0]}, "same length"),
        ({"target_ids": [0, 3]}, "votes must be for targets"),
        ({"target_nodeids": [1, 9]}, "doesn't exist"),
        ({"nodes_featureids": [-1, 0, 0]}, "feature indices"),
    ],
)
def test_damaged_trees_are_refused(tmp_path, changes, why):
    with pytest.raises(ConversionError, match=why):
        mnnx.convert(chain(**changes), tmp_path / "trees.mnnx")


def test_votes_at_branches_and_what_stands_beside_leaves_is_ignored(tmp_path):
    model = chain(
        nodes_featureids=[0, -2, -2],
        target_treeids=[0, 0, 0],
        target_nodeids=[0, 1, 2],
        target_ids=[0, 0, 0],
        target_weights=[99.0, 1.0, 2.0],
    )
    (y,) = run(model, np.array([[0, 0, 0, 0], [1, 0, 0, 0]], np.float32), tmp_path / "trees.mnnx")
    assert y.tolist() == [[1.0], [2.0]]
