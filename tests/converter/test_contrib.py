"""ONNX Runtime's own ops (com.microsoft) give what ONNX Runtime gives."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import mnnx
from mnnx.errors import ConversionError

RNG = np.random.default_rng(3)
N, S, H, D = 2, 3, 2, 16  # batch, new tokens, heads, head size
HIDDEN = H * D


def f(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def u8(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


def i8(*shape):
    return RNG.integers(-128, 128, shape).astype(np.int8)


def i32(*values):
    return np.array(values, np.int32)


def number(value, dtype=np.float32):
    return np.array(value, dtype)


def bits(*shape):
    return RNG.integers(0, 2, shape).astype(np.int32)


def model_of(op_type, inputs, outputs, constants, attributes):
    """(the model, what is fed to it). Outputs: for each one whether it is asked for; inputs from position `constants` on are constants."""
    names = ["" if x is None else f"x{index}" for index, x in enumerate(inputs)]
    fed = {name: x for index, (name, x) in enumerate(zip(names, inputs, strict=True)) if name and index < constants}
    fixed = [numpy_helper.from_array(x, f"x{index}") for index, x in enumerate(inputs) if x is not None and index >= constants]
    results = [f"y{index}" if asked else "" for index, asked in enumerate(outputs)]
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name, x in fed.items()]
    node = helper.make_node(op_type, names, results, domain="com.microsoft", **attributes)
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in results if name], fixed)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), fed


def heads(**more):
    return {"num_heads": H} | more


def grouped(**more):
    return {"num_heads": H, "kv_num_heads": 1} | more


def new_keys(batch=N, length=S):
    return f(batch, length, HIDDEN), f(batch, length, D), f(batch, length, D)


def cache(length, batch=N):
    return f(batch, 1, length, D), f(batch, 1, length, D)


ATTENTION = f(N, S, 10), f(10, 3 * HIDDEN), f(3 * HIDDEN)
QKV = f(N, S, HIDDEN), f(N, 5, HIDDEN), f(N, 5, HIDDEN)
PAST = f(2, N, H, 4, D)
COS_SIN = f(32, D // 2), f(32, D // 2)
GAMMA, BETA = f(HIDDEN), f(HIDDEN)
IDS, TABLES = bits(N, S), (f(7, HIDDEN), f(9, HIDDEN))
ONE = (1,)
U8 = lambda value: number(value, np.uint8)  # noqa: E731

# (op, inputs, outputs asked for, attributes), and for quantized ops the position of the first constant input.
ROWS = [
    ("Attention", ATTENTION, ONE, heads()),
    ("Attention", (*ATTENTION, i32(3, 2)), ONE, heads(unidirectional=1)),
    ("Attention", (*ATTENTION, i32(3, 2, 0, 1)), ONE, heads()),
    ("Attention", (*ATTENTION, bits(N, S)), ONE, heads()),
    ("Attention", (*ATTENTION, bits(N, S, S + 4), PAST), (1, 1), heads(unidirectional=1)),
    ("Attention", (*ATTENTION, None, None, f(1, H, S, S)), ONE, heads(scale=0.5)),
    ("Attention", (f(N, S, 10), f(10, 2 * HIDDEN + 6), f(2 * HIDDEN + 6)), ONE, heads(qkv_hidden_sizes=[HIDDEN, HIDDEN, 6])),
    ("MultiHeadAttention", QKV, (1, 1, 1), heads()),
    ("MultiHeadAttention", (*QKV[:2], f(N, 5, 6), f(2 * HIDDEN + 6)), ONE, heads()),
    ("MultiHeadAttention", (*QKV, f(3 * HIDDEN), bits(N, 5)), ONE, heads()),
    ("MultiHeadAttention", (*QKV, None, i32(3, 5), f(1, H, S, 5)), ONE, heads(scale=0.3)),
    ("MultiHeadAttention", (QKV[0], f(N, H, 5, D), f(N, H, 5, D), f(3 * HIDDEN)), ONE, heads()),
    ("MultiHeadAttention", (*QKV[:1] * 3, f(3 * HIDDEN), None, None, PAST[0], PAST[1]), (1, 1, 1), heads(unidirectional=1)),
    ("GroupQueryAttention", (*new_keys(), None, None, i32(2, 2), number(3, np.int32), *COS_SIN), (1, 1, 1), grouped(do_rotary=1)),
    ("GroupQueryAttention", (*new_keys(N, 1), *cache(6), i32(6, 6), number(7, np.int32)), (1, 1, 1), grouped(local_window_size=2)),
    ("GroupQueryAttention", (*new_keys(1), *cache(6, 1), i32(8), number(9, np.int32)), (1, 1, 1), grouped(softcap=2.0)),
    (
        "GroupQueryAttention",
        (f(1, S, HIDDEN + 2 * D), None, None, *cache(6, 1), i32(8), number(9, np.int32), *COS_SIN),
        (1, 1, 1),
        grouped(do_rotary=1, rotary_interleaved=1),
    ),
    ("GroupQueryAttention", (*new_keys(N, 1), *cache(6), i32(6, 6), number(7, np.int32)), (1, 1, 1), grouped(smooth_softmax=1, scale=0.4)),
    ("RotaryEmbedding", (f(N, S, HIDDEN), RNG.integers(0, 32, (N, S)), *COS_SIN), ONE, {}),
    ("RotaryEmbedding", (f(N, S, HIDDEN), np.array([4]), *COS_SIN), ONE, {"interleaved": 1}),
    ("RotaryEmbedding", (f(N, H, S, D), RNG.integers(0, 32, (N, S)), *COS_SIN), ONE, {}),
    ("RotaryEmbedding", (f(N, S, HIDDEN), RNG.integers(0, 32, (N, S)), f(32, 2), f(32, 2)), ONE, heads(rotary_embedding_dim=4)),
    ("SkipLayerNormalization", (f(N, S, HIDDEN), f(S, HIDDEN), GAMMA, BETA, f(HIDDEN)), (1, 0, 0, 1), {}),
    ("SkipSimplifiedLayerNormalization", (f(N, S, HIDDEN), f(N, S, HIDDEN), GAMMA, f(HIDDEN)), (1, 0, 0, 1), {}),
    ("EmbedLayerNormalization", (IDS, IDS, *TABLES, f(2, HIDDEN), GAMMA, BETA, i32(1, 1, 1, 1, 1, 0).reshape(N, S)), (1, 1, 1), {}),
    ("EmbedLayerNormalization", (IDS, None, *TABLES, None, GAMMA, BETA, None, IDS), (1, 1), {}),
    ("FusedConv", (f(1, 4, 6, 6), f(8, 4, 3, 3), f(8), f(1, 8, 6, 6)), ONE, {"pads": [1, 1, 1, 1], "activation": "Relu"}),
    ("FusedConv", (f(1, 4, 6, 6), f(8, 4, 3, 3)), ONE, {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
    ("FusedGemm", (f(3, 4), f(5, 4), f(5)), ONE, {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3}),
    ("FusedMatMul", (f(2, 4, 3), f(2, 4, 5)), ONE, {"transA": 1, "alpha": 0.5}),
    ("FusedMatMul", (f(3, 2, 4), f(2, 4, 5)), ONE, {"transBatchA": 1}),
    ("CDist", (f(5, 4), f(3, 4)), ONE, {"metric": "euclidean"}),
    ("Pad", (f(2, 3), np.array([[1, 0, 0, 2]]), f(1)), ONE, {"mode": "constant"}),
    ("Range", (i32(1), i32(9), i32(3)), ONE, {}),
    ("Range", (number(1.5), number(7)), ONE, {}),
    ("ExpandDims", (f(2, 3), number(-1, np.int32)), ONE, {}),
    ("Unique", (np.array([2, 1, 1, 3, 4, 3], np.float32),), (1, 1, 1), {}),
    ("GridSample", (f(1, 2, 4, 4), f(1, 3, 3, 2).clip(-1, 1)), ONE, {"mode": "bicubic"}),
    ("Trilu", (f(3, 4), np.array(1)), ONE, {"upper": 0}),
    ("Inverse", (f(3, 3),), ONE, {}),
    ("QuickGelu", (f(3, 8),), ONE, {}),
    ("DynamicQuantizeMatMul", (f(3, 4), i8(4, 5), number(0.1), number(3, np.int8), f(5)), ONE, {}),
]
QUANTIZED = [
    ("QLinearAdd", (u8(3, 4), number(0.1), U8(3), u8(4), number(0.05), U8(5), number(0.2), U8(1)), {}, 8),
    ("QLinearMul", (u8(3, 4), number(0.1), U8(3), u8(4), number(0.05), U8(5), number(0.2), U8(1)), {}, 8),
    ("QLinearSigmoid", (u8(3, 4), number(0.1), U8(3), number(0.004), U8(0)), {}, 1),
    ("QLinearLeakyRelu", (u8(3, 4), number(0.1), U8(90), number(0.1), U8(4)), {"alpha": 0.2}, 1),
    ("QLinearSoftmax", (u8(2, 3, 4), number(0.1), U8(3), number(1 / 256), U8(0)), {"opset": 13, "axis": 1}, 1),
    ("QLinearSoftmax", (u8(2, 3, 4), number(0.1), U8(3), number(1 / 256), U8(0)), {"opset": 11, "axis": 1}, 1),
    ("QLinearConcat", (number(0.1), U8(3), u8(2, 3), number(0.2), U8(1), u8(2, 4), number(0.05), U8(0)), {"axis": 1}, 8),
    ("QLinearGlobalAveragePool", (u8(1, 4, 4, 3), number(0.1), U8(3), number(0.05), U8(0)), {"channels_last": 1}, 1),
    ("QLinearAveragePool", (u8(1, 3, 6, 6), number(0.1), U8(3), number(0.05), U8(0)), {"kernel_shape": [3, 3], "strides": [2, 2]}, 1),
    (
        "QLinearConv",
        (u8(1, 6, 6, 4), number(0.1), U8(3), i8(8, 4, 3, 3), number(0.02), number(0, np.int8), number(0.5), U8(0)),
        {"channels_last": 1, "pads": [1, 1, 1, 1]},
        1,
    ),
    ("QGemm", (u8(3, 4), number(0.1), U8(7), u8(4, 5), number(0.02), U8(3), i32(1, 2, -3, 4, 9), number(0.1), U8(9)), {"alpha": 0.5}, 1),
    ("MatMulIntegerToFloat", (u8(3, 4), u8(4, 5), number(0.1), f(5) ** 2, U8(7), u8(5), f(5)), {}, 1),
    ("MatMulNBits", (f(2, 3, 40), u8(6, 3, 8), f(6, 3), u8(6, 2), None, f(6)), {"K": 40, "N": 6, "bits": 4, "block_size": 16}, 1),
    ("QuantizeLinear", (f(3, 4) * 9, f(4) ** 2, u8(4)), {"axis": 1}, 1),
    (
        "DynamicQuantizeLSTM",
        (f(5, 2, 4), i8(2, 4, 24), i8(2, 6, 24), f(2, 48), None, None, None, None, *(number([0.01, 0.02]), i8(2) * 0) * 2),
        {"hidden_size": 6, "direction": "bidirectional"},
        1,
    ),
]


def agrees(tmp_path, op_type, inputs, outputs, constants, attributes, rtol, step):
    """Compares floats within rtol of their largest magnitude, integers within `step`."""
    model, fed = model_of(op_type, inputs, outputs, constants, attributes)
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, fed)
    mnnx.convert(model, tmp_path / "one.mnnx")
    with mnnx.Interpreter.from_file(tmp_path / "one.mnnx") as interpreter:
        got = list(interpreter.create_session(mnnx.ScheduleConfig(num_threads=1)).run(fed).values())
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if other.dtype.kind == "f":
            np.testing.assert_allclose(one, other, 0, rtol * max(1.0, np.abs(other).max(initial=0)))
        else:
            assert np.abs(one.astype(int) - other.astype(int)).max(initial=0) <= step


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{index}" for index, row in enumerate(ROWS)])
def test_agrees_with_onnxruntime(tmp_path, row):
    op_type, inputs, outputs, attributes = row
    agrees(tmp_path, op_type, inputs, outputs, len(inputs), attributes, 1e-4, 0)


@pytest.mark.parametrize("row", QUANTIZED, ids=[f"{row[0]}-{index}" for index, row in enumerate(QUANTIZED)])
def test_quantized_ops_agree_with_onnxruntime_within_a_step(tmp_path, row):
    op_type, inputs, attributes, constants = row
    outputs = (1, 1, 1) if op_type == "DynamicQuantizeLSTM" else ONE
    agrees(tmp_path, op_type, inputs, outputs, constants, attributes, 2e-2 if len(outputs) > 1 else 1e-3, 1)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "why"),
    [
        ("Attention", ATTENTION, heads(do_rotary=1), "do_rotary isn't supported"),
        ("MultiHeadAttention", (*QKV, *[None] * 5, i32(1)), heads(), "past_sequence_length isn't supported"),
        ("CDist", (f(5, 4), f(3, 4)), {"metric": "cosine"}, "the metric 'cosine' isn't supported"),
        ("FusedConv", (f(1, 4, 6, 6), f(8, 4, 3, 3)), {"activation": "Odd"}, "activation 'Odd'"),
        ("MatMulNBits", (f(3, 16), u8(6, 1, 8), f(6, 1), None, i32(1)), {"K": 16, "N": 6, "block_size": 16}, "g_idx"),
    ],
)
def test_what_has_no_counterpart_is_refused(tmp_path, op_type, inputs, attributes, why):
    model, _ = model_of(op_type, inputs, ONE, len(inputs), attributes)
    with pytest.raises(ConversionError, match=why):
        mnnx.convert(model, tmp_path / "one.mnnx")
