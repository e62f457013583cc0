"""Importers of ONNX Runtime's fused layers (com.microsoft): built from ONNX's ops, which our own passes fuse again."""

from __future__ import annotations

import numpy as np

from mnnx.converter.frontends.onnx.contrib_quantization import channels_first, channels_last, dequantized
from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import activation
from mnnx.schema.ops.arithmetic import Add, Clip, Mul, Sqrt, Sub, Tanh
from mnnx.schema.ops.cast import Cast, CastLike
from mnnx.schema.ops.contrib import CropAndResize, DynamicTimeWarping, Inverse, UnfoldTensor
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.fused import FusedMatMul
from mnnx.schema.ops.generation import Range
from mnnx.schema.ops.image import GridSample
from mnnx.schema.ops.indexing import GatherND, Unique
from mnnx.schema.ops.matmul import Gemm, MatMul
from mnnx.schema.ops.normalization import GroupNormalization, LayerNormalization, RMSNormalization
from mnnx.schema.ops.pooling import MaxPool
from mnnx.schema.ops.reduction import ReduceSum
from mnnx.schema.ops.shape import Concat, Expand, Flatten, Identity, Reshape, Shape, Split, Transpose, Unsqueeze
from mnnx.schema.ops.skip_normalization import EmbedLayerNormalization
from mnnx.schema.ops.slicing import Pad, Trilu

DOMAIN = "com.microsoft"

direct(CropAndResize, DynamicTimeWarping, GatherND, Inverse, Trilu, UnfoldTensor, domain=DOMAIN)

#: Activations of the Fused… ops, and what their parameters are, in order.
_ACTIVATIONS = {
    "Elu": (activation.Elu, "alpha"),
    "HardSigmoid": (activation.HardSigmoid, "alpha", "beta"),
    "HardSwish": (activation.HardSwish,),
    "LeakyRelu": (activation.LeakyRelu, "alpha"),
    "Relu": (activation.Relu,),
    "Selu": (activation.Selu, "alpha", "gamma"),
    "Sigmoid": (activation.Sigmoid,),
    "Softplus": (activation.Softplus,),
    "Softsign": (activation.Softsign,),
    "Tanh": (Tanh,),
}


def _activated(node: OnnxNode, x: Value, parameters: tuple[float, ...]) -> Value:
    """x after the activation that the node's attribute `activation` names; none where it is absent."""
    name = node.attribute("activation", str, "")
    if not name:
        return x
    if name == "Clip" and len(parameters) == 2:
        bounds = [node.add(CastLike(), node.constant(bound, np.float32), x) for bound in parameters]
        return node.add(Clip(), x, *bounds)
    if name not in _ACTIVATIONS:
        node.fail(f"its activation {name!r} with {len(parameters)} parameters isn't supported")
    op_class, *names = _ACTIVATIONS[name]
    return node.add(op_class(**dict(zip(names, parameters, strict=False))), x)


def _parameters(node: OnnxNode) -> tuple[float, ...]:
    """activation_alpha, _beta and _gamma, as far as they are given."""
    given = (node.attribute(f"activation_{name}", float, None) for name in ("alpha", "beta", "gamma"))
    return tuple(value for value in given if value is not None)


@importer("FusedConv", "NhwcConv", "NhwcFusedConv", domain=DOMAIN)
def fused_conv(node: OnnxNode, x: Value, w: Value, bias: Value | None = None, residual: Value | None = None):
    rank = x.rank if w.rank is None else w.rank
    nhwc = node.op_type.startswith("Nhwc")
    y = node.add(node.op(Conv), channels_first(node, x, rank) if nhwc else x, w, bias)
    y = channels_last(node, y, rank) if nhwc else y
    if residual is not None:
        y = node.add(Add(), y, residual)
    return _activated(node, y, node.attribute("activation_params", tuple[float, ...], ()))


@importer("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(node: OnnxNode, x: Value):
    pool = node.op(MaxPool, storage_order=False)
    rank = len(pool.kernel_shape) + 2
    return channels_last(node, node.add(pool, channels_first(node, x, rank)), rank)


@importer("FusedGemm", domain=DOMAIN)
def fused_gemm(node: OnnxNode, a: Value, b: Value, c: Value | None = None):
    return _activated(node, node.add(node.op(Gemm), a, b, c), _parameters(node))


@importer("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=DOMAIN)
def fused_matmul(node: OnnxNode, a: Value, b: Value):
    operands = []
    for value, name in ((a, "A"), (b, "B")):
        if node.attribute(f"transBatch{name}", bool, False):  # dim 0 comes behind the other leading dims
            if value.rank is None:
                node.fail(f"transBatch{name} needs an input of known rank")
            value = node.add(Transpose(perm=(*range(1, value.rank - 1), 0, value.rank - 1)), value)
        operands.append(value)
    op = FusedMatMul(
        transpose_a=node.attribute("transA", bool, False),
        transpose_b=node.attribute("transB", bool, False),
        alpha=node.attribute("alpha", float, 1.0),
    )
    return _activated(node, node.add(op, *operands), _parameters(node))


@importer("GemmFastGelu", domain=DOMAIN)
def gemm_fast_gelu(node: OnnxNode, x: Value, w: Value, bias: Value | None = None):
    y = node.add(MatMul(), x, w)
    return node.add(activation.Gelu(approximate="tanh"), y if bias is None else node.add(Add(), y, bias))


def _sum(node: OnnxNode, *values: Value | None) -> Value:
    """The sum of the values that are there."""
    first, *others = (value for value in values if value is not None)
    for value in others:
        first = node.add(Add(), first, value)
    return first


@importer("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_normalization(node: OnnxNode, x: Value, skip: Value, gamma: Value, beta: Value | None = None, bias: Value | None = None):
    total = _sum(node, x, skip, bias)
    op = LayerNormalization(epsilon=node.attribute("epsilon", float, 1e-12))
    return (*node.add(op, total, gamma, beta, outputs=3), total)


@importer("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_simplified_layer_normalization(node: OnnxNode, x: Value, skip: Value, gamma: Value, bias: Value | None = None):
    total = _sum(node, x, skip, bias)
    y, inverse = node.add(RMSNormalization(epsilon=node.attribute("epsilon", float, 1e-12)), total, gamma, outputs=2)
    return y, None, inverse, total


@importer("SimplifiedLayerNormalization", domain=DOMAIN)
def simplified_layer_normalization(node: OnnxNode, x: Value, scale: Value):
    return node.op(RMSNormalization)


@importer("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(
    node: OnnxNode,
    ids: Value,
    segment_ids: Value | None,
    words: Value,
    positions: Value,
    segments: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    position_ids: Value | None = None,
):
    if segments is None or segment_ids is None:
        segments = segment_ids = None
    op = EmbedLayerNormalization(epsilon=node.attribute("epsilon", float, 1e-12))
    y, total = node.add(op, ids, segment_ids, words, positions, segments, gamma, beta, position_ids, outputs=2)
    if mask is None:
        lengths = node.add(Expand(), node.constant([0], np.int32), node.add(Shape(end=1), ids))
    else:
        lengths = node.add(ReduceSum(keepdims=False), mask, node.constant([1], np.int64))
    return y, lengths, total


@importer("GroupNorm", "SkipGroupNorm", domain=DOMAIN)
def group_norm(node: OnnxNode, x: Value, gamma: Value, beta: Value, skip: Value | None = None, bias: Value | None = None):
    if skip is not None and skip.rank == 2:
        skip = node.add(Unsqueeze(), skip, node.constant([1, 2], np.int64))
    total = _sum(node, x, skip, bias)
    op = GroupNormalization(num_groups=node.attribute("groups", int), epsilon=node.attribute("epsilon", float, 1e-5))
    last = node.attribute("channels_last", bool, True)
    like = channels_first(node, total, 4) if last else total
    y = node.add(op, like, *(node.add(CastLike(), parameter, total) for parameter in (gamma, beta)))
    y = channels_last(node, y, 4) if last else y
    if node.attribute("activation", int, 0):
        y = node.add(activation.Swish(), y)
    return (y, total) if node.op_type == "SkipGroupNorm" else y


@importer("BiasAdd", domain=DOMAIN)
def bias_add(node: OnnxNode, x: Value, bias: Value, skip: Value):
    return _sum(node, x, skip, bias)


@importer("BiasDropout", domain=DOMAIN)
def bias_dropout(node: OnnxNode, x: Value, bias: Value, residual: Value | None = None, *_training: Value | None):
    if len(_training) > 1 and (_training[1] is None or node.value_of(_training[1], "training_mode").any()):
        node.fail("training mode isn't supported; export the model for inference")
    return _sum(node, x, bias, residual)


@importer("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(node: OnnxNode, x: Value, bias: Value):
    left, right = node.add(Split(num_outputs=2, axis=-1), node.add(Add(), x, bias), outputs=2)
    return node.add(Mul(), left, node.add(activation.Gelu(), right))


@importer("BiasSoftmax", domain=DOMAIN)
def bias_softmax(node: OnnxNode, x: Value, bias: Value):
    axis = node.attribute("axis", int, 1)
    total = node.add(Add(), x, bias)
    if axis == -1 or (x.rank is not None and axis == x.rank - 1):
        return node.add(activation.Softmax(axis=-1), total)
    rows = node.add(activation.Softmax(axis=-1), node.add(Flatten(axis=axis), total))
    return node.add(Reshape(allowzero=True), rows, node.add(Shape(), x))


@importer("Unique", domain=DOMAIN)
def unique(node: OnnxNode, x: Value):
    values, _, places, counts = node.add(Unique(sorted=False), x, outputs=4)
    return values, places, counts


@importer("GridSample", domain=DOMAIN)
def grid_sample(node: OnnxNode, x: Value, grid: Value):
    mode = node.attribute("mode", str, "bilinear")
    return node.op(GridSample, mode={"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))


@importer("Pad", domain=DOMAIN)
def pad(node: OnnxNode, x: Value, pads: Value, value: Value | None = None):
    flat = node.constant([-1], np.int64)
    scalar = None if value is None else node.add(Reshape(), value, node.constant([], np.int64))
    return node.add(node.op(Pad), x, node.add(Reshape(), pads, flat), scalar)


@importer("Range", domain=DOMAIN)
def range_(node: OnnxNode, start: Value, limit: Value, delta: Value | None = None):
    if delta is None:
        delta = node.add(CastLike(), node.constant(1, np.int64), start)
    scalar = node.constant([], np.int64)
    return node.add(Range(), *(node.add(Reshape(), value, scalar) for value in (start, limit, delta)))


@importer("ExpandDims", domain=DOMAIN)
def expand_dims(node: OnnxNode, x: Value, axis: Value):
    axes = node.add(Reshape(), node.add(Cast(to=np.dtype(np.int64)), axis), node.constant([1], np.int64))
    return node.add(Unsqueeze(), x, axes)


@importer("CDist", domain=DOMAIN)
def cdist(node: OnnxNode, a: Value, b: Value):
    metric = node.attribute("metric", str, "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        node.fail(f"the metric {metric!r} isn't supported; euclidean and sqeuclidean are")
    rows, columns = (node.add(Unsqueeze(), value, node.constant([axis], np.int64)) for value, axis in ((a, 1), (b, 0)))
    difference = node.add(Sub(), rows, columns)
    square = node.add(ReduceSum(keepdims=False), node.add(Mul(), difference, difference), node.constant([2], np.int64))
    return node.add(Sqrt(), square) if metric == "euclidean" else square


@importer("ComplexMul", "ComplexMulConj", domain=DOMAIN)
def complex_mul(node: OnnxNode, a: Value, b: Value):
    """Pairs (real, imaginary) along the last axis; of b, ComplexMulConj takes the conjugate."""
    (ar, ai), (br, bi) = (node.add(Split(num_outputs=2, axis=-1), value, outputs=2) for value in (a, b))
    times = lambda x, y: node.add(Mul(), x, y)  # noqa: E731
    minus, plus = (Add, Sub) if node.op_type == "ComplexMulConj" else (Sub, Add)
    real = node.add(minus(), times(ar, br), times(ai, bi))
    imaginary = node.add(plus(), times(ai, br), times(ar, bi))
    return node.add(Concat(axis=-1), real, imaginary)


@importer("ConvTransposeWithDynamicPads", domain=DOMAIN)
def conv_transpose_with_dynamic_pads(node: OnnxNode, x: Value, w: Value, pads: Value | None = None, bias: Value | None = None):
    sizes = () if pads is None else tuple(node.value_of(pads, "its pads").reshape(-1).tolist())
    return node.add(node.op(ConvTranspose, pads=sizes, output_shape=()), x, w, bias)


@importer("SampleOp", domain=DOMAIN)
def sample_op(node: OnnxNode, x: Value):
    return Identity()


@importer("QEmbedLayerNormalization", domain=DOMAIN)
def quantized_embed_layer_normalization(
    node: OnnxNode,
    ids: Value,
    segment_ids: Value | None,
    words,
    positions,
    segments: Value | None,
    gamma,
    beta,
    mask: Value | None,
    *parameters,
):
    """Tables, scale and bias are bytes; `parameters` are their scales, then their zero points."""
    tables = []
    for table, scale, zero_point in zip((words, positions, segments, gamma, beta), parameters[:5], parameters[5:], strict=True):
        tables.append(None if table is None else dequantized(node, table, scale, zero_point))
    return embed_layer_normalization(node, ids, segment_ids, *tables, mask)[:2]
