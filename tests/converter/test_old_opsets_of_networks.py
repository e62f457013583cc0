"""Normalizations, poolings and matrix products as old opsets wrote them give what those opsets say."""

import numpy as np
import onnx
import pytest
from onnx import helper

import mnnx
from tests.one_node import run

IMAGE = np.random.default_rng(3).uniform(-2, 2, (2, 4, 3, 5)).astype(np.float32)
CHANNELS = [np.array(values, np.float32) for values in ([1, 2, -1, 3], [0.5, 0, 1, -1], [0.1, 0.2, 0.3, 0.4], [1, 2, 0.5, 4])]
PER_GROUP = [values[:2] for values in CHANNELS[:2]]
ELEMENTS = [np.abs(IMAGE[0] * factor) for factor in (1, 0.5, 2, 3)]
A, B = IMAGE[0, 0], IMAGE[0, 1].T.copy()


def normalized(x, scale, bias, mean, variance):
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias


def per_channel(parameters):
    return [p.reshape(4, 1, 1) for p in parameters]


def group_normalized(x, groups, scale, bias):
    parts = x.reshape(len(x), groups, -1)
    parts = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)
    return (parts * scale.reshape(groups, 1) + bias.reshape(groups, 1)).reshape(x.shape)


ROWS = [
    (1, "BatchNormalization", (IMAGE, *CHANNELS), {"is_test": 1, "consumed_inputs": [0] * 5}, normalized(IMAGE, *per_channel(CHANNELS))),
    (6, "BatchNormalization", (IMAGE, *CHANNELS), {"is_test": 1}, normalized(IMAGE, *per_channel(CHANNELS))),
    (7, "BatchNormalization", (IMAGE, *CHANNELS), {}, normalized(IMAGE, *per_channel(CHANNELS))),
    (7, "BatchNormalization", (IMAGE, *ELEMENTS), {"spatial": 0}, normalized(IMAGE, *ELEMENTS)),
    (18, "GroupNormalization", (IMAGE, *PER_GROUP), {"num_groups": 2}, group_normalized(IMAGE, 2, *PER_GROUP)),
    (1, "InstanceNormalization", (IMAGE, *CHANNELS[:2]), {"consumed_inputs": [0]}, group_normalized(IMAGE, 4, *CHANNELS[:2])),
    (1, "LpPool", (IMAGE,), {"kernel_shape": [3, 5], "p": 2.0}, np.sqrt((IMAGE**2).sum((2, 3), keepdims=True))),
    (1, "GlobalLpPool", (IMAGE,), {"p": 1.0}, np.abs(IMAGE).sum((2, 3), keepdims=True)),
    (1, "AveragePool", (IMAGE,), {"kernel_shape": [3, 5]}, IMAGE.mean((2, 3), keepdims=True)),
    (6, "Gemm", (A, B, CHANNELS[0][:3]), {"broadcast": 1, "beta": 2.0}, A @ B + 2 * CHANNELS[0][:3]),
    (16, "SimplifiedLayerNormalization", (A, IMAGE[0, 1, 0]), {}, A / np.sqrt((A**2).mean(1, keepdims=True) + 1e-5) * IMAGE[0, 1, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "op_type", "inputs", "attributes", "expected"), ROWS, ids=[f"{row[1]}-{row[0]}" for row in ROWS])
def test_old_form_gives_what_its_opset_says(tmp_path, opset, op_type, inputs, attributes, expected):
    (result,) = run(tmp_path, opset, op_type, *inputs, **attributes)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_statistics_for_training_only_are_refused_by_name(tmp_path):
    names = ["y", "mean", "var", "saved_mean", "saved_var"]
    infos = [helper.make_tensor_value_info(f"x{i}", 1, x.shape) for i, x in enumerate((IMAGE, *CHANNELS))]
    node = helper.make_node("BatchNormalization", [i.name for i in infos], names)
    graph = helper.make_graph([node], "training", infos, [onnx.ValueInfoProto(name=name) for name in names])
    with pytest.raises(mnnx.ConversionError, match="saved_mean"):
        mnnx.convert(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)]), tmp_path / "training.mnnx")
