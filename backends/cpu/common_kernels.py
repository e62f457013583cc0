"""The kernels that networks commonly need, as ops on tensors of common shapes: what a bundle holds that was made for no model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from mnnx.backends import elementwise
from mnnx.backends.cpu.kernel import Kernel, kernel
from mnnx.backends.cpu.recording import RecordingBackend
from mnnx.schema.ops import (
    activation,
    arithmetic,
    attention,
    cast,
    comparison,
    contrib_quantization,
    convolution,
    dynamic_quantization,
    fused,
    fused_quantization,
    indexing,
    matmul,
    ml_trees,
    normalization,
    pooling,
    quantization,
    quantized_arithmetic,
    quantized_pooling,
    raster,
    recurrent,
    reduction,
    resize,
    skip_normalization,
)
from mnnx.schema.ops.base import Op, RuleError, Spec

_DTYPES = {name: np.dtype(name) for name in ("float32", "int64", "int32", "uint8", "int8", "bool")}

#: Parameters of fused activations, where they take any.
_PARAMETERS = {
    "Clip": (0.0, 6.0),
    "LeakyRelu": (0.1,),
    "HardSigmoid": (1 / 6, 0.5),
    "ScaledHardSwish": (1.0, 0.0),
    "Swish": (1.0,),
    "Elu": (1.0,),
}
#: Activations of convolutions whose kernels are there for many shapes of images; those of the others for a few.
_USUAL = ("Relu", "HardSwish", "Swish", "LeakyRelu")
#: input channels, output channels, groups, kernel, stride, image size
_CONVOLUTIONS = (
    (64, 64, 1, 1, 1, 56),
    (64, 64, 1, 3, 1, 56),
    (96, 96, 96, 3, 1, 56),
    # from here on for the usual activations alone
    (3, 32, 1, 3, 2, 224),
    (3, 64, 1, 7, 2, 224),
    (64, 24, 1, 1, 1, 56),
    (64, 128, 1, 3, 2, 56),
    (512, 1000, 1, 1, 1, 7),
    (64, 32, 1, 5, 1, 28),
    (64, 64, 4, 3, 1, 28),
    (240, 240, 240, 5, 1, 14),
    (240, 240, 240, 5, 2, 14),
    (384, 384, 384, 7, 1, 14),
    *((64, 64, 1, size, 1, image) for image in (7, 14, 28, 112) for size in (1, 3)),
    *((64, 64, 64, 3, stride, image) for image in (7, 14, 28, 56, 112) for stride in (1, 2)),
)
_RARE = 3
_SHAPE = (1, 64, 28, 28)


def record(backend: RecordingBackend) -> None:
    """Adds the kernels to those that the backend has recorded. Ops and dtypes without native kernels are passed over."""
    for op, inputs in _ops():
        try:
            backend.record(op, inputs)
        except RuleError:  # this op takes other dtypes, or another number of inputs
            continue
    backend.kernels.update(dict.fromkeys(_image_kernels()))
    backend.kernels[kernel("peak.read", lanes=backend.block_width)] = None  # for tuning where nothing can be compiled


def _tensor(*shape: int, dtype: str = "float32") -> Spec:
    return Spec(_DTYPES[dtype], shape)


def _weight(*shape: int, dtype: str = "float32", value: float = 0) -> Spec:
    return Spec.of(np.full(shape, value, _DTYPES[dtype]))


def _ops() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    yield from _elementwise()
    yield from _casts()
    yield from _convolutions()
    yield from _products()
    yield from _rows()
    yield from _images()
    yield from _quantized()
    yield from _moves()
    yield from _recurrent()
    yield from _trees()


def _elementwise() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    whole, channel, row, one = _SHAPE, (1, 64, 1, 1), (28,), (1,)
    for op_class in elementwise.TABLE:
        if any(default is ... for _, default in op_class.fields.values()):
            continue
        op = op_class()
        yield op, (_tensor(*whole),)
        for dtype in ("float32", "int64", "int32", "bool"):
            for shapes in ((whole, whole), (whole, channel), (channel, whole), (whole, row), (whole, one), (one, whole)):
                yield op, tuple(_tensor(*shape, dtype=dtype) for shape in shapes)
    for dtype in ("float32", "int64"):
        for a, b in ((whole, whole), (whole, one), (one, whole), (one, one)):
            for condition in (whole, one):
                yield comparison.Where(), (_tensor(*condition, dtype="bool"), _tensor(*a, dtype=dtype), _tensor(*b, dtype=dtype))
    for bounds in ((_weight(), _weight()), (_weight(), None), (None, _weight())):
        yield arithmetic.Clip(), (_tensor(*whole), *bounds)
    for exponent in (0.5, 2.0, 3.0, -1.0):
        yield arithmetic.Pow(), (_tensor(*whole), _weight(value=exponent))
    yield activation.Gelu(approximate="tanh"), (_tensor(*whole),)


def _casts() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    for source in _DTYPES:
        for target in _DTYPES.values():
            yield cast.Cast(to=target), (_tensor(*_SHAPE, dtype=source),)


def _convolutions() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    for name in fused.ACTIVATIONS:
        kind = {"activation": name, "activation_parameters": _PARAMETERS.get(name, ())}
        for inputs, outputs, groups, size, stride, image in _CONVOLUTIONS if name in _USUAL else _CONVOLUTIONS[:_RARE]:
            window = {"kernel_shape": (size, size), "strides": (stride, stride), "pads": (size // 2,) * 4, "group": groups}
            x, w, bias = _tensor(1, inputs, image, image), _weight(outputs, inputs // groups, size, size), _weight(outputs)
            yield fused.FusedConv(**window, **kind), (x, w, bias)
            result = _tensor(1, outputs, -(-image // stride), -(-image // stride))
            yield fused.FusedConv(**window, **kind), (x, w, bias, result)
        x, w = _tensor(1, 32, 40), _weight(64, 32, 5)
        yield fused.FusedConv(kernel_shape=(5,), pads=(2, 2), **kind), (x, w, _weight(64))
        window = {"kernel_shape": (4, 4), "strides": (2, 2), "pads": (1, 1, 1, 1)}
        yield fused.FusedConvTranspose(**window, **kind), (_tensor(1, 64, 14, 14), _weight(64, 32, 4, 4), _weight(32))
    yield convolution.Conv(kernel_shape=(3, 3, 3)), (_tensor(1, 8, 10, 10, 10), _weight(16, 8, 3, 3, 3))


def _products() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    for name in fused.ACTIVATIONS:
        kind = {"activation": name, "activation_parameters": _PARAMETERS.get(name, ())}
        for rows in (1, 4, 128):
            x, w, bias = _tensor(rows, 384), _weight(384, 1000), _weight(1000)
            yield fused.FusedMatMul(**kind), (x, w, bias)
            yield fused.FusedMatMul(**kind), (x, w, bias, _tensor(rows, 1000))
            yield fused.FusedMatMul(transpose_a=True, transpose_b=True, **kind), (_tensor(384, rows), _tensor(1000, 384), bias)
    for rows in (1, 17, 128):
        q, k = _tensor(1, 6, rows, 64), _tensor(1, 6, 64, rows)
        yield matmul.MatMul(), (q, k)
        yield fused.FusedMatMul(alpha=0.125), (q, k)
        yield fused.FusedMatMul(alpha=0.125, transpose_b=True), (q, q)
        yield attention.Attention(), (q, q, _tensor(1, 6, rows, 20))
        yield matmul.Gemm(transB=1), (_tensor(rows, 512), _weight(1000, 512), _weight(1000))
    yield attention.RotaryEmbedding(), (_tensor(1, 6, 17, 64), _tensor(1, 17, 32), _tensor(1, 17, 32))


def _rows() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    x = _tensor(1, 128, 384)
    for op_class in (activation.Softmax, activation.LogSoftmax):
        for axis in (-1, 1):
            yield op_class(axis=axis), (x,)
    for bias in (None, _weight(384)):
        yield normalization.LayerNormalization(), (x, _weight(384), bias)
    yield normalization.RMSNormalization(), (x, _weight(384))
    yield skip_normalization.SkipLayerNormalization(), (x, x, _weight(384), _weight(384))
    yield skip_normalization.SkipSimplifiedLayerNormalization(), (x, x, _weight(384))
    for dtype, segments in itertools.product(("int32", "int64"), (None, _weight(2, 384))):
        ids = _tensor(1, 128, dtype=dtype)
        tables = (_weight(1000, 384), _weight(512, 384), segments)
        yield skip_normalization.EmbedLayerNormalization(), (ids, ids if segments else None, *tables, _weight(384), _weight(384))
    for op_class in (
        *(reduction.ReduceSum, reduction.ReduceMean, reduction.ReduceMax, reduction.ReduceMin, reduction.ReduceProd),
        *(reduction.ReduceL1, reduction.ReduceL2, reduction.ReduceSumSquare, reduction.ReduceLogSumExp, reduction.ReduceLogSum),
    ):
        for axis in (-1, 1):
            yield op_class(), (x, Spec.of(np.array([axis])))
    for op_class in (reduction.ArgMax, reduction.ArgMin):
        yield op_class(axis=-1), (x,)


def _images() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    x, channel = _tensor(*_SHAPE), _weight(64)
    yield normalization.BatchNormalization(), (x, channel, channel, channel, channel)
    yield normalization.InstanceNormalization(), (x, channel, channel)
    yield normalization.GroupNormalization(num_groups=8), (x, channel, channel)
    yield normalization.LRN(size=5), (x,)
    for op_class in (pooling.MaxPool, pooling.AveragePool):
        for size, stride in ((2, 2), (3, 2), (3, 1)):
            yield op_class(kernel_shape=(size, size), strides=(stride, stride), pads=(size // 3,) * 4), (x,)
    for op_class in (pooling.GlobalAveragePool, pooling.GlobalMaxPool):
        yield op_class(), (x,)
    for mode in ("nearest", "linear", "cubic"):
        for coordinates in ("half_pixel", "asymmetric", "align_corners"):
            op = resize.Resize(mode=mode, coordinate_transformation_mode=coordinates)
            yield op, (x, None, None, Spec.of(np.array([1, 64, 56, 56])))
            yield op, (x, None, None, Spec.of(np.array([1, 64, 17, 19])))


def _quantized() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    scale, scales = _weight(value=0.1), _weight(64, value=0.1)
    for dtype in ("uint8", "int8"):
        zero, zeros = _weight(dtype=dtype), _weight(64, dtype=dtype)
        x, codes = _tensor(*_SHAPE), _tensor(*_SHAPE, dtype=dtype)
        for scale_, zero_ in ((scale, zero), (scales, zeros)):
            yield quantization.QuantizeLinear(axis=1), (x, scale_, zero_)
            yield quantization.DequantizeLinear(axis=1), (codes, scale_, zero_)
        yield quantization.DynamicQuantizeLinear(), (x,)
        for weights in ("uint8", "int8"):
            w, w_zero = _weight(64, 64, 3, 3, dtype=weights), _weight(dtype=weights)
            yield quantization.QLinearConv(pads=(1, 1, 1, 1)), (codes, scale, zero, w, scale, w_zero, scale, zero)
            yield quantization.ConvInteger(pads=(1, 1, 1, 1)), (codes, w, zero, w_zero)
            single = _weight(64, 1, 3, 3, dtype=weights)
            yield quantization.QLinearConv(group=64, pads=(1, 1, 1, 1)), (codes, scale, zero, single, scale, w_zero, scale, zero)
            a, b = _tensor(128, 384, dtype=dtype), _weight(384, 64, dtype=weights)
            yield quantization.QLinearMatMul(), (a, scale, zero, b, scale, w_zero, scale, zero)
            yield quantization.MatMulInteger(), (a, b, zero, w_zero)
        for second in (_weight(384, 64, dtype="int8"), _tensor(384, 64, dtype=dtype)):
            operands = (a, scale, zero, second, scale, _weight(dtype=second.dtype.name), scale, zero)
            for activation_ in ("", "Gelu", "Relu", "Sigmoid", "Tanh"):
                op = fused_quantization.FusedQLinearMatMul(dequantizes=True, activation=activation_)
                yield op, (*operands, None, _weight(64))
                yield op, (*operands, None, _weight(64), scale, zero)
        x, b, b_zero = _tensor(128, 384), _weight(384, 64, dtype=dtype), _weight(dtype=dtype)
        for activation_ in ("", "Gelu", "Relu", "Sigmoid", "Tanh"):
            more = (b_zero, scales, _weight(64))
            yield dynamic_quantization.FusedDynamicQuantizeMatMul(activation=activation_), (x, b, *more)
            yield dynamic_quantization.FusedMatMulInteger(activation=activation_), (a, b, zero, b_zero, _tensor(1), scales, _weight(64))
        for op_class in (quantized_arithmetic.QuantizedAdd, quantized_arithmetic.QuantizedMul):
            for shape in (_SHAPE, (1, 64, 1, 1)):
                yield op_class(output_dtype=_DTYPES[dtype]), (codes, _tensor(*shape, dtype=dtype))
        for size in (2, 3):
            yield pooling.MaxPool(kernel_shape=(size, size), strides=(2, 2), pads=(size // 3,) * 4), (codes,)
            yield quantized_pooling.QuantizedAveragePool(kernel_shape=(size, size), output_dtype=_DTYPES[dtype]), (codes,)
        yield quantized_pooling.QuantizedGlobalAveragePool(output_dtype=_DTYPES[dtype]), (codes,)
        yield fused_quantization.ByteTable(), (codes, _weight(256, dtype=dtype))


def _moves() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    for dtype in ("float32", "int64", "uint8"):
        x = _tensor(64, 28, dtype=dtype)
        yield _transposition(64, 28, _DTYPES[dtype]), (x,)
        for index in ("int64", "int32"):
            yield indexing.Gather(axis=0), (_tensor(1000, 64, dtype=dtype), _tensor(128, dtype=index))


def _transposition(rows: int, columns: int, dtype: np.dtype) -> raster.Raster:
    region = raster.Region(0, 0, (1, columns), 0, (rows, 1), (columns, rows))
    return raster.Raster(dtype, (columns, rows), [region])


def _recurrent() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    for op_class, gates in ((recurrent.RNN, 1), (recurrent.GRU, 3), (recurrent.LSTM, 4)):
        x, w, r = _tensor(20, 1, 64), _weight(1, gates * 64, 64), _weight(1, gates * 64, 64)
        yield op_class(hidden_size=64), (x, w, r, _weight(1, 2 * gates * 64))
    x, w, r, scale, zero = _tensor(20, 1, 64), *(_weight(1, 64, 256, dtype="int8"),) * 2, _weight(1, value=0.1), _weight(1, dtype="int8")
    quantized = (x, w, r, _weight(1, 512), None, None, None, None, scale, zero, scale, zero)
    yield contrib_quantization.DynamicQuantizeLSTM(hidden_size=64), quantized
    yield recurrent.GRU(hidden_size=64, linear_before_reset=1), (x, _weight(1, 192, 64), _weight(1, 192, 64), _weight(1, 384))


def _trees() -> Iterator[tuple[Op, tuple[Spec | None, ...]]]:
    integers, x = np.array([0, 1, 2], np.int32), (_tensor(20, 8),)
    for mode in ("LEQ", "LT"):
        for missing in (False, True):
            forest = {
                "roots": integers[:1],
                "features": integers * 0,
                "thresholds": np.zeros(3, np.float32),
                "modes": np.array([ml_trees.MODES.index(mode), ml_trees.LEAF, ml_trees.LEAF], np.uint8),
                "true_nodes": np.array([1, 1, 2], np.int32),
                "false_nodes": np.array([2, 1, 2], np.int32),
                "missing_true": np.array([missing, False, False]),
                "vote_starts": np.array([0, 0, 1, 2], np.int32),
                "vote_targets": integers[:2],
                "vote_weights": np.ones(2, np.float32),
            }
            for aggregate in ("SUM", "AVERAGE"):
                yield ml_trees.TreeEnsembleRegressor(n_targets=2, aggregate=aggregate, **forest), x
            for labels, transforms in (((0, 1), ("NONE", "LOGISTIC", "SOFTMAX")), ((0, 1, 2), ("NONE", "SOFTMAX"))):
                for name in transforms:
                    attributes = {"n_targets": len(labels), "classlabels_int64s": labels, "post_transform": name}
                    yield ml_trees.TreeEnsembleClassifier(**attributes, **forest), x


def _image_kernels() -> Iterator[Kernel]:
    for kind in ("gray", "rgb", "rgba", "yuv"):
        for filtering in ("nearest", "bilinear"):
            yield kernel("image.process", kind=kind, filter=filtering, dtype="uint8")
