"""Quantization ops of ONNX Runtime, against their definitions written out."""

import ml_dtypes
import numpy as np

from mnnx.schema.ops.contrib_quantization import DequantizeBits, DequantizeBnb4, DynamicQuantizeLSTM, GatherBlockQuantized
from tests.cases import case, f16, f32, integers


def unpacked(packed, bits):
    """The values in a flat list of bytes, low bits first."""
    return [byte >> shift & (1 << bits) - 1 for byte in packed.reshape(-1).tolist() for shift in range(0, 8, bits)]


def real_weights(op):
    def reference(packed, scales, zero_points=None, blocks=None):
        row_values = np.array(unpacked(packed, op.bits)).reshape(op.rows, -1)
        result = np.zeros((op.rows, op.columns), np.float32)
        for row in range(op.rows):
            if zero_points is None:
                zeros = [1 << (op.bits - 1)] * op.blocks
            elif zero_points.dtype == np.uint8:
                zeros = unpacked(zero_points.reshape(op.rows, -1)[row], op.bits)
            else:
                zeros = zero_points.reshape(op.rows, -1)[row]
            for column in range(op.columns):
                block = column // op.block_size if blocks is None else blocks[column]
                result[row, column] = (row_values[row, column] - zeros[block]) * np.float32(scales.reshape(op.rows, -1)[row, block])
        return result.astype(scales.dtype)

    return reference


def dequantize(bits, columns, scales, *zero_points):
    op = DequantizeBits(bits=bits, block_size=16, rows=3, columns=columns)
    case(op, integers("uint8", 3, op.blocks, 2 * bits, high=256), scales, *zero_points, reference=real_weights(op))


dequantize(4, 32, f32(3, 2))
dequantize(4, 40, f32(3, 3), integers("uint8", 3, 2, high=256))
dequantize(2, 40, f32(9), integers("uint8", 3, 1, high=256))
dequantize(8, 17, f32(3, 2), f32(3, 2, low=0, high=255))
dequantize(4, 16, f16(3, 1))
dequantize(4, 40, f32(3, 3), integers("uint8", 3, 2, high=256), integers("int32", 40, high=3))
dequantize(8, 32, f32(3, 2), f32(3, 2, low=0, high=255), integers("int64", 32, high=2))


# NF4 to four digits, as in the paper (QLoRA, appendix E); FP4 as bitsandbytes has it, in twelfths.
NF4 = (-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0, 0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0)
FP4 = [value / 12 for value in (0, 0.0625, 8, 12, 4, 6, 2, 3)]
for nf4, table in ((True, NF4), (False, (*FP4, *(-value for value in FP4)))):
    for rows, columns in ((3, 16), (3, 17)):

        def reference(packed, absmax, table=table, rows=rows, columns=columns):
            codes = [code for byte in packed.tolist() for code in (byte >> 4, byte & 15)][: rows * columns]
            return np.array([table[code] * absmax[i // 16] for i, code in enumerate(codes)], np.float32).reshape(rows, columns)

        op = DequantizeBnb4(nf4=nf4, block_size=16, rows=rows, columns=columns)
        count = rows * columns
        case(op, integers("uint8", -(-count // 2), high=256), f32(-(-count // 16), low=0.1), reference=reference, atol=1e-4)


def gathered(op):
    """Entry by entry; what is packed is unpacked first."""

    def reference(data, indices, scales, zero_points=None):
        axis, quantize, packed = op.gather_axis % data.ndim, op.quantize_axis % data.ndim, data.dtype == np.uint8
        open_ = lambda a: np.array([unpacked(row, op.bits) for row in a.reshape(-1, a.shape[-1])]).reshape(*a.shape[:-1], -1)  # noqa: E731
        data, zeros = (a if a is None or not packed else open_(a) for a in (data, zero_points))
        blocks = np.arange(data.shape[quantize]) // (op.block_size or data.shape[quantize])
        each = lambda a: np.take(a, blocks, quantize).astype(np.float32)  # noqa: E731
        offset = each(zeros) if zeros is not None else 2 ** (op.bits - 1) if packed else 0
        real = (data.astype(np.float32) - offset) * each(scales)
        real = np.concatenate([real, np.zeros_like(np.take(real, [0], axis))], axis)  # the last entry: out of range
        size = data.shape[axis]
        return np.take(real, np.where((indices < -size) | (indices >= size), size, indices % size), axis).astype(scales.dtype)

    return reference


def gather(data, indices, scales, *zero_points, **attributes):
    op = GatherBlockQuantized(block_size=attributes.pop("block_size", 16), **attributes)
    case(op, data, indices, scales, *zero_points, reference=gathered(op))


INT4, UINT4, E4M3 = (np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn))
PLACES = np.array([[3, -1], [0, 2]])
gather(integers("int8", 4, 32, low=-8, high=8).astype(INT4), PLACES, f32(4, 2))
gather(integers("int8", 4, 40, high=16).astype(UINT4), PLACES, f32(4, 3), integers("int8", 4, 3, high=16).astype(UINT4))
gather(integers("int8", 32, 3, 4, low=-8, high=8).astype(INT4), PLACES, f16(2, 3, 4), quantize_axis=0, gather_axis=-1)
gather(integers("uint8", 4, 16, high=256), PLACES, f32(4, 2))
gather(integers("uint8", 4, 24, high=256), np.array(-2, np.int32), f32(4, 3), integers("uint8", 4, 2, high=256))
gather(integers("uint8", 4, 32, high=256), np.array([4, 1, -5]), f32(4, 2), integers("uint8", 4, 2, high=256), bits=8)
gather(integers("uint8", 4, 8, high=256), PLACES, f32(4, 2), bits=2)
gather(f32(4, 32).astype(E4M3), PLACES, f32(1, 1), block_size=0)
gather(integers("uint8", 4, 16, high=256), np.zeros((0, 2), np.int64), f32(4, 2))
case(
    GatherBlockQuantized(block_size=16),
    *(integers("uint8", 0, 16), np.array([0, -1]), f32(0, 2)),
    reference=lambda *_: np.zeros((2, 32), np.float32),
)


def rounded(x):
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = (high - low) / 255 or 1
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


def lstm(x, w, r, b, lengths, h, c, p, w_scale, w_zero, r_scale, r_zero):
    """With the default activations; the second direction, if any, is the reverse one."""
    results = []
    for d in range(len(w)):
        own = (None if a is None else a[d : d + 1] for a in (w, r, b, h, c, w_scale, w_zero, r_scale, r_zero))
        y, *last = forward(x[:: 1 - 2 * d], *own)
        results.append((y[:: 1 - 2 * d], *last))
    return tuple(np.concatenate(parts, axis) for parts, axis in zip(zip(*results, strict=True), (1, 0, 0), strict=True))


def forward(x, w, r, b, h, c, w_scale, w_zero, r_scale, r_zero):
    """Gates in the order i, o, f, c."""
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    w, r = ((m[0].astype(float) - z.reshape(-1)) * s.reshape(-1) for m, z, s in ((w, w_zero, w_scale), (r, r_zero, r_scale)))
    hidden, inputs = r.shape[0], rounded(x.astype(float))
    bias = np.zeros(8 * hidden) if b is None else b[0]
    h = np.zeros((x.shape[1], hidden)) if h is None else h[0]
    c = np.zeros((x.shape[1], hidden)) if c is None else c[0]
    every = []
    for step in inputs:
        i, o, f, g = np.split(step @ w + rounded(h) @ r + bias[: 4 * hidden] + bias[4 * hidden :], 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        every.append(h)
    return tuple(np.asarray(y, np.float32) for y in (np.stack(every)[:, None], h[None], c[None]))


scale = lambda *shape: f32(*shape, low=0.001, high=0.01)  # noqa: E731
weights = integers("uint8", 1, 5, 16, high=256), integers("uint8", 1, 4, 16, high=256)
zero = np.array([128], np.uint8)
case(
    DynamicQuantizeLSTM(hidden_size=4),
    *(f32(6, 2, 5), *weights, f32(1, 32), None, None, None, None),
    *(scale(1), zero, scale(1), zero),
    reference=lstm,
    outputs=3,
    atol=1e-2,
)
case(
    DynamicQuantizeLSTM(),
    *(f32(3, 1, 5), *(m.astype(np.int8) for m in weights), None, None, f32(1, 1, 4), f32(1, 1, 4), None),
    *(scale(1, 16), np.zeros((1, 16), np.int8), scale(1, 16), np.zeros((1, 16), np.int8)),
    reference=lstm,
    outputs=3,
    atol=1e-2,
)
weights = integers("int8", 2, 7, 80, low=-128, high=128), integers("int8", 2, 20, 80, low=-128, high=128)
zero = np.zeros(2, np.int8)
case(
    DynamicQuantizeLSTM(direction="bidirectional"),
    *(f32(5, 6, 7), *weights, f32(2, 160), None, f32(2, 6, 20), f32(2, 6, 20), None),
    *(scale(2), zero, scale(2), zero),
    reference=lstm,
    outputs=3,
    atol=1e-2,
)
