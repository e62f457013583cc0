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
LINEAR = {"q_num_heads": H, "kv_num_heads": H}
GAMMA, BETA = f(HIDDEN), f(HIDDEN)
IDS, TABLES = bits(N, S), (f(7, HIDDEN), f(9, HIDDEN))
ONE = (1,)
U8 = lambda value: number(value, np.uint8)  # noqa: E731
STEPS = [number(step) for step in (0.01, 0.02, 0.03, 0.02, 0.01)]
ZEROS = [number(3, np.int8), number(0, np.int8), None, number(1, np.int8), number(2, np.int8)]
SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 1.5, "activation_alpha": 1.7, "activation_beta": 1.0}


def expert(rows, columns, blocks=0):
    """Weights of 4 bits, scales and bias of a layer of 4 experts; `blocks`: how many there are in a row, where rows aren't blocks."""
    scales = f(4, rows, blocks) if blocks else f(4, rows)
    return u8(4, rows, columns // 2), np.abs(scales) / 99, f(4, rows)


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
    ("GroupQueryAttention", (*new_keys(N, 1), *cache(6), i32(6, 3), number(7, np.int32)), (1, 1, 1, 1), grouped(qk_output=1)),
    ("GroupQueryAttention", (*new_keys(1), *cache(6, 1), i32(8), number(9, np.int32)), (1, 1, 1, 1), grouped(qk_output=2)),
    (
        "DecoderMaskedMultiHeadAttention",
        (*[f(N, 1, HIDDEN)] * 3, bits(N, 4) | i32(1, 0, 0, 0), None, *f(2, N, H, 9, D), i32(3), i32(1), None, f(3 * HIDDEN)),
        (1, 1, 1),
        heads(past_present_share_buffer=1),
    ),
    ("DecoderMaskedMultiHeadAttention", (f(N, 1, HIDDEN), f(N, H, 5, D), f(N, H, 5, D)), ONE, heads(scale=0.3)),
    ("RotaryEmbedding", (f(N, S, HIDDEN), RNG.integers(0, 32, (N, S)), *COS_SIN), ONE, {}),
    ("RotaryEmbedding", (f(N, S, HIDDEN), np.array([4]), *COS_SIN), ONE, {"interleaved": 1}),
    ("RotaryEmbedding", (f(N, H, S, D), RNG.integers(0, 32, (N, S)), *COS_SIN), ONE, {}),
    ("RotaryEmbedding", (f(N, S, HIDDEN), RNG.integers(0, 32, (N, S)), f(32, 2), f(32, 2)), ONE, heads(rotary_embedding_dim=4)),
    ("MRotaryEmbedding", (f(N, S, HIDDEN), RNG.integers(0, 32, (3, N, S)), *COS_SIN), ONE, heads(mrope_section=[2, 3, 3])),
    ("MRotaryEmbedding", (f(N, H, S, D), RNG.integers(0, 32, (3, N, S)), *COS_SIN), ONE, {"mrope_section": [4, 2, 2], "mrope_layout": 1}),
    ("LinearAttention", (*QKV[:1] * 3, f(N, H, D, D), -u8(N, S, H) / number(99), None), (1, 1), LINEAR | {"update_rule": "gated"}),
    ("CausalConvWithState", (f(N, 4, 6), f(4, 1, 3), f(4), f(N, 4, 2)), (1, 1), {"activation": "silu"}),
    ("CausalConvWithState", (f(N, 6, 4), f(4, 1, 3), None, f(N, 2, 4)), (1, 1), {"channels_last": 1}),
    ("LinearAttentionGate", (f(N, S, 4), f(4), f(4), f(N, S, 4)), (1, 1), {}),
    ("LinearAttentionGate", (f(N, S, 4).astype(np.float16), f(4), f(4)), ONE, {}),
    ("GatedRMSNorm", (f(N, S, HIDDEN), f(D), f(N, S, HIDDEN)), ONE, {}),
    ("GatedRMSNorm", (f(N, S, HIDDEN), f(HIDDEN), f(N, S, HIDDEN)), ONE, {"activation": "sigmoid"}),
    ("BranchwiseRMSNorm", (f(N, 3, 4), f(3, 4)), ONE, {}),
    ("BranchwiseRMSNorm", (f(N, 12), f(4)), ONE, {"num_branches": 3}),
    ("GatedAdd", (f(N, S, 4), f(N, S, 4), f(N, S, 1)), ONE, {}),
    ("ScaledSiLU", (f(N, S), number(1.5)), ONE, {}),
    ("ScaledSiLU", (f(N, S),), ONE, {"alpha": 0.7}),
    ("SampleOp", (f(2, 3),), ONE, {}),
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
    ("MatMulNBits", (f(3, 32), u8(6, 2, 8), f(6, 2), None, bits(32)), {"K": 32, "N": 6, "bits": 4, "block_size": 16}, 1),
    ("MatMulBnb4", (f(2, 3, 32), u8(5 * 16), f(10) ** 2), {"K": 32, "N": 5, "block_size": 16, "quant_type": 0}, 1),
    ("MatMulBnb4", (f(3, 33), u8(83), f(6) ** 2), {"K": 33, "N": 5, "block_size": 32, "quant_type": 1}, 1),
    ("QMoE", (f(3, 16), f(3, 4), *expert(20, 16), *expert(16, 20)), {"k": 2, "activation_type": "silu"}, 2),
    ("QMoE", (f(3, 16), f(3, 4), *expert(64, 16, 1), *expert(16, 32, 2)), SWIGLU | {"block_size": 16}, 2),
    (
        "QMoE",
        (f(3, 16), f(3, 4), *expert(20, 16), *expert(16, 20), *[None] * 3, u8(4, 10), u8(4, 8), None, f(3, 4) ** 2),
        {"activation_type": "gelu"},
        2,
    ),
    ("QEmbedLayerNormalization", (IDS, IDS, *u8(4, 9, 8)[:2], u8(2, 8), *u8(2, 8), None, *STEPS, *[U8(9)] * 5), {}, 2),
    ("QEmbedLayerNormalization", (IDS, None, *i8(2, 9, 8), None, *i8(2, 8), IDS, *STEPS[:2], None, *STEPS[3:], *ZEROS), {}, 2),
    ("ConvTransposeWithDynamicPads", (f(1, 2, 4, 4), f(2, 3, 3, 3), np.array([1, 0, 1, 1]), f(3)), {"strides": [2, 2]}, 1),
    ("CausalConvWithState", (f(N, 4, 6), f(4, 1, 3), f(4), f(N, 4, 4)), {"dilation": 2}, 1),
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
    outputs = {"DynamicQuantizeLSTM": (1, 1, 1), "QEmbedLayerNormalization": (1, 1), "CausalConvWithState": (1, 1)}.get(op_type, ONE)
    agrees(tmp_path, op_type, inputs, outputs, constants, attributes, 2e-2 if len(outputs) > 1 else 1e-3, 1)


def test_qgemm_is_a_product_of_integers(tmp_path):
    scales, bias = number([0.02, 0.03, 0.04, 0.05, 0.06]), i32(1, 2, -3, 4, 9)
    operands = (u8(3, 4), number(0.1), U8(7), i8(5, 4), scales, i8(5) * 0, bias, number(0.1), U8(9))
    model, _ = model_of("QGemm", operands, ONE, 1, {"transB": 1})
    assert dict(mnnx.convert(model, tmp_path / "one.mnnx").ops_after) == {"mnnx::FusedQLinearMatMul": 1}
    agrees(tmp_path, "QGemm", operands, ONE, 1, {"transB": 1}, 1e-3, 1)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "why"),
    [
        ("Attention", ATTENTION, heads(do_rotary=1), "do_rotary isn't supported"),
        ("MultiHeadAttention", (*QKV, *[None] * 5, i32(1)), heads(), "past_sequence_length isn't supported"),
        ("QMoE", (f(3, 16), f(3, 4), *expert(20, 16), *expert(16, 20)), {"quant_type": "fp4"}, "only quant_type 'int'"),
        ("MoE", (f(3, 16), f(3, 4), f(4, 5, 16), None, f(4, 16, 5)), {"use_sparse_mixer": 1}, "use_sparse_mixer isn't supported"),
        ("DecoderMaskedMultiHeadAttention", (f(N, 1, HIDDEN),), heads(output_qk=1), "output_qk isn't supported"),
        ("MRotaryEmbedding", (f(N, S, HIDDEN), *COS_SIN, f(1)), {"mrope_section": [8]}, "needs three sections"),
        ("LinearAttention", QKV, LINEAR | {"state_window": 2}, "state_window isn't supported"),
        ("CausalConvWithState", (f(N, 4, 6, 6), f(4, 1, 3, 3)), {"ndim": 2}, "ndim other than 1"),
        ("GatedAdd", (f(N, 4), f(N, 4), f(N, 3), f(3, 1)), {}, "gate_weight isn't supported"),
        ("CDist", (f(5, 4), f(3, 4)), {"metric": "cosine"}, "the metric 'cosine' isn't supported"),
        ("FusedConv", (f(1, 4, 6, 6), f(8, 4, 3, 3)), {"activation": "Odd"}, "activation 'Odd'"),
        ("MatMulNBits", (f(3, 16), u8(6, 1, 8), f(6, 1)), {"K": 16, "N": 6, "block_size": 16, "weight_prepacked": 1}, "prepacked"),
    ],
)
def test_what_has_no_counterpart_is_refused(tmp_path, op_type, inputs, attributes, why):
    model, _ = model_of(op_type, inputs, ONE, len(inputs), attributes)
    with pytest.raises(ConversionError, match=why):
        mnnx.convert(model, tmp_path / "one.mnnx")
