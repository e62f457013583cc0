"""Convolutions: groups, strides, dilations, every way of padding, 1 to 3 spatial dims; channel counts beside and at powers of two."""

import math

import numpy as np

from mnnx.schema.ops.convolution import CausalConvWithState, Col2Im, Conv, ConvTranspose, DeformConv
from mnnx.schema.ops.fused import ACTIVATIONS, FusedConv, FusedConvTranspose
from tests.cases import case, f16, f32, f64, i64

case(Conv(), f32(1, 3, 7, 7), f32(4, 3, 3, 3))
case(Conv(), f32(2, 3, 9, 8), f32(5, 3, 3, 2), f32(5))
case(Conv(pads=(1, 1, 1, 1)), f32(1, 16, 14, 14), f32(32, 16, 3, 3), f32(32), atol=5e-5)  # sums of 144 products of size 1
case(Conv(pads=(1, 1, 1, 1), strides=(2, 2)), f32(1, 17, 13, 15), f32(9, 17, 3, 3), f32(9))
case(Conv(), f32(1, 24, 7, 7), f32(40, 24, 1, 1), f32(40))
case(Conv(strides=(2, 2)), f32(2, 16, 7, 9), f32(16, 16, 1, 1))
case(Conv(pads=(2, 0, 1, 3)), f32(1, 4, 6, 5), f32(3, 4, 3, 4))
case(Conv(pads=(2, 2, 2, 2), dilations=(2, 2)), f32(1, 8, 10, 11), f32(8, 8, 3, 3), f32(8))
case(Conv(pads=(3, 3, 3, 3), strides=(2, 2)), f32(1, 3, 22, 20), f32(16, 3, 7, 7), f32(16))
case(Conv(pads=(2, 2, 2, 2)), f32(1, 5, 9, 9), f32(7, 5, 5, 5))
case(Conv(group=2, pads=(1, 1, 1, 1)), f32(2, 6, 6, 7), f32(4, 3, 3, 3), f32(4))
case(Conv(group=4), f32(1, 64, 5, 5), f32(64, 16, 3, 3))
case(Conv(group=16, pads=(1, 1, 1, 1)), f32(1, 16, 9, 9), f32(16, 1, 3, 3), f32(16))
case(Conv(group=19, pads=(1, 1, 1, 1), strides=(2, 2)), f32(2, 19, 9, 10), f32(19, 1, 3, 3), f32(19))
case(Conv(group=8, pads=(2, 2, 2, 2)), f32(1, 8, 7, 7), f32(8, 1, 5, 5))
case(Conv(group=3, pads=(2, 2, 2, 2), dilations=(2, 2)), f32(1, 3, 8, 8), f32(6, 1, 3, 3))
case(Conv(auto_pad="SAME_UPPER", strides=(2, 2)), f32(1, 3, 8, 7), f32(4, 3, 3, 3), f32(4))
case(Conv(auto_pad="SAME_LOWER", strides=(2, 3)), f32(1, 3, 8, 7), f32(4, 3, 2, 2))
case(Conv(auto_pad="VALID"), f32(1, 3, 6, 6), f32(4, 3, 3, 3))
case(Conv(pads=(1, 1)), f32(2, 4, 11), f32(6, 4, 3), f32(6))
case(Conv(strides=(3,), dilations=(2,)), f32(1, 5, 20), f32(4, 5, 4))
case(Conv(group=6), f32(1, 6, 9), f32(6, 1, 4))
case(Conv(pads=(1, 1, 1, 1, 1, 1)), f32(1, 3, 5, 6, 4), f32(4, 3, 3, 3, 3), f32(4))
case(Conv(strides=(2, 1, 2), group=2), f32(1, 4, 5, 4, 6), f32(6, 2, 2, 1, 3))
case(Conv(), f32(0, 3, 5, 5), f32(4, 3, 3, 3), f32(4))
case(Conv(), f32(1, 3, 3, 3), f32(4, 3, 3, 3))
case(Conv(pads=(1, 1, 0, 0), strides=(2, 2)), f32(1, 4, 1, 1), f32(3, 4, 1, 1))  # the one window sees nothing but padding
case(Conv(pads=(1, 1, 1, 1), strides=(3, 3)), f32(1, 4, 3, 3), f32(5, 4, 3, 3), f32(5))  # a window as large as the image, beside it
case(Conv(pads=(1, 1, 1, 1), strides=(4, 4)), f16(1, 4, 3, 3), f16(5, 4, 3, 3), rtol=1e-2, atol=2e-2)
case(Conv(pads=(1, 1, 1, 1)), f64(1, 3, 5, 5), f64(4, 3, 3, 3), f64(4))
case(Conv(pads=(1, 1, 1, 1)), f16(1, 3, 5, 5), f16(4, 3, 3, 3), f16(4), rtol=1e-2, atol=2e-2)

case(ConvTranspose(), f32(1, 3, 4, 4), f32(3, 2, 3, 3))
case(ConvTranspose(strides=(2, 2)), f32(2, 4, 5, 3), f32(4, 3, 3, 2), f32(3))
case(ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1)), f32(1, 16, 5, 6), f32(16, 8, 3, 3), f32(8))
case(ConvTranspose(strides=(2, 2)), f32(1, 17, 4, 4), f32(17, 16, 2, 2), f32(16))
case(ConvTranspose(strides=(3, 2), dilations=(2, 1)), f32(1, 2, 3, 4), f32(2, 3, 3, 2))
case(ConvTranspose(strides=(3, 2), output_shape=(10, 8)), f32(1, 1, 3, 3), f32(1, 2, 3, 3))
case(ConvTranspose(strides=(2, 2), auto_pad="SAME_UPPER"), f32(1, 2, 3, 3), f32(2, 2, 3, 3))
case(ConvTranspose(strides=(2, 2), auto_pad="SAME_LOWER"), f32(1, 2, 3, 3), f32(2, 2, 3, 3))
case(ConvTranspose(group=2, strides=(2, 2)), f32(1, 4, 3, 3), f32(4, 3, 2, 2), f32(6), reference=lambda x, w, b: grouped(x, w, b))
case(ConvTranspose(strides=(2,), pads=(1, 0)), f32(2, 3, 6), f32(3, 2, 4), f32(2))
case(ConvTranspose(strides=(1, 2, 1)), f32(1, 2, 3, 2, 3), f32(2, 2, 2, 2, 3))
case(ConvTranspose(), f64(1, 2, 3, 3), f64(2, 2, 3, 3))
case(ConvTranspose(), f32(0, 2, 3, 3), f32(2, 2, 3, 3), reference=lambda x, w: np.zeros((0, 2, 5, 5), np.float32))

case(DeformConv(kernel_shape=(2, 2), pads=(0, 0, 0, 0)), f32(1, 1, 3, 3), f32(1, 1, 2, 2), f32(1, 8, 2, 2))
case(DeformConv(pads=(1, 1, 1, 1)), f32(2, 4, 5, 6), f32(3, 4, 3, 3), f32(2, 18, 5, 6), f32(3), f32(2, 9, 5, 6))
case(DeformConv(group=2, offset_group=2, strides=(2, 2)), f32(1, 4, 7, 7), f32(4, 2, 3, 3), f32(1, 36, 3, 3))
case(
    DeformConv(group=2, pads=(2, 1, 2, 1), strides=(1, 2)), f32(2, 8, 9, 11), f32(12, 4, 3, 3), f32(2, 18, 11, 6), f32(12), f32(2, 9, 11, 6)
)
case(DeformConv(), f16(1, 4, 6, 7), f16(3, 4, 3, 3), f16(1, 18, 4, 5), f16(3), rtol=1e-2, atol=1e-2)
case(DeformConv(dilations=(2, 2)), f32(1, 2, 6, 6), f32(2, 2, 2, 2), f32(1, 8, 4, 4, low=-9, high=9), f32(2))

case(Col2Im(), f32(1, 5, 5), i64(5, 5), i64(1, 5))
case(Col2Im(pads=(0, 1, 0, 1)), f32(2, 10, 6), i64(3, 4), i64(1, 5), reference=lambda x, image, block: naive_col2im(x, (3, 4), (1, 5), 1))
case(Col2Im(strides=(2, 2), dilations=(1, 2)), f32(1, 4, 4), i64(5, 5), i64(2, 2))
case(Col2Im(), f64(1, 12, 6), i64(3, 3, 4), i64(2, 3, 2))

case(CausalConvWithState(), f32(2, 3, 5), f32(3, 1, 4), outputs=2)
case(CausalConvWithState(activation="silu"), f32(2, 3, 5), f32(3, 1, 4), f32(3), f32(2, 3, 3), outputs=2)
case(CausalConvWithState(), f32(1, 2, 1), f32(2, 1, 1), None, f32(1, 2, 0), outputs=2)


def naive_col2im(x, image, block, pad):
    """Col2Im for a 2-D image with padding on both sides of its last dim, stride 1: one element after the other."""
    n, c = x.shape[0], x.shape[1] // math.prod(block)
    y = np.zeros((n, c, image[0], image[1] + 2 * pad), x.dtype)
    blocks = x.reshape(n, c, *block, -1)
    columns = image[1] + 2 * pad - block[1] + 1
    for window in range(x.shape[2]):
        row, column = divmod(window, columns)
        y[:, :, row : row + block[0], column : column + block[1]] += blocks[..., window]
    return y[..., pad : pad + image[1]]


def naive_conv(x, w, pad, stride):
    """A convolution with the same padding on all sides, one output pixel after the other."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    rows, columns = ((n - k) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True))
    y = np.empty((len(x), len(w), rows, columns))
    for row in range(rows):
        for column in range(columns):
            window = x[:, :, row * stride : row * stride + w.shape[2], column * stride : column * stride + w.shape[3]]
            y[:, :, row, column] = np.tensordot(window, w, ([1, 2, 3], [1, 2, 3]))
    return y


def naive_activation(name, parameters, x):
    """The activations of fused ops, one element at a time, from their ONNX definitions."""
    sigmoid = lambda v: 1 / (1 + math.exp(-v))  # noqa: E731
    function = {
        "": lambda v: v,
        "Relu": lambda v: max(v, 0.0),
        "Clip": lambda v, low, high: min(max(v, low), high),
        "LeakyRelu": lambda v, alpha: v if v >= 0 else alpha * v,
        "HardSigmoid": lambda v, alpha, beta: max(0.0, min(1.0, alpha * v + beta)),
        "HardSwish": lambda v: v * max(0.0, min(1.0, v / 6 + 0.5)),
        "ScaledHardSwish": lambda v, scale, shift: scale * v * max(0.0, min(1.0, v / 6 + 0.5)) + shift,
        "Sigmoid": sigmoid,
        "Swish": lambda v, alpha: v * sigmoid(alpha * v),
        "Tanh": math.tanh,
        "Elu": lambda v, alpha: v if v >= 0 else alpha * (math.exp(v) - 1),
        "Gelu": lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2))),
        "GeluTanh": lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
        "Mish": lambda v: v * math.tanh(math.log1p(math.exp(v))),
    }[name]
    return np.array([function(float(v), *parameters) for v in x.reshape(-1)]).reshape(x.shape)


PARAMETERS = {
    "Clip": (-0.5, 6.0),
    "LeakyRelu": (0.1,),
    "HardSigmoid": (0.2, 0.5),
    "ScaledHardSwish": (0.7, 0.5),
    "Swish": (1.0,),
    "Elu": (1.3,),
}


def fused_conv(activation, pad, stride):
    """The reference of a FusedConv with that activation, padding and stride."""

    def reference(x, w, bias=None, residual=None):
        y = naive_conv(x, w, pad, stride) + (0 if bias is None else bias.reshape(-1, 1, 1)) + (0 if residual is None else residual)
        return naive_activation(activation, PARAMETERS.get(activation, ()), y).astype(x.dtype)

    return reference


for activation in ACTIVATIONS:
    op = FusedConv(pads=(1, 1, 1, 1), activation=activation, activation_parameters=PARAMETERS.get(activation, ()))
    case(op, f32(1, 5, 6, 7), f32(18, 5, 3, 3), f32(18), reference=fused_conv(activation, 1, 1), rtol=1e-4, atol=1e-4)
case(FusedConv(activation="Relu"), f32(2, 16, 5, 5), f32(7, 16, 1, 1), f32(7), f32(2, 7, 5, 5), reference=fused_conv("Relu", 0, 1))
case(FusedConv(), f32(1, 3, 5, 5), f32(4, 3, 3, 3), None, f32(1, 4, 3, 3), reference=fused_conv("", 0, 1))
case(FusedConv(strides=(2, 2), activation="Swish", activation_parameters=(1.0,)), f32(1, 8, 9, 9), f32(16, 8, 3, 3), f32(16),
     f32(1, 16, 4, 4), reference=fused_conv("Swish", 0, 2), atol=1e-4)  # fmt: skip


def depthwise(x, w, bias):
    channels = [naive_conv(x[:, i : i + 1], w[i : i + 1], 1, 1) for i in range(len(w))]
    return np.maximum(np.concatenate(channels, axis=1) + bias.reshape(-1, 1, 1), 0).astype(x.dtype)


case(FusedConv(group=12, pads=(1, 1, 1, 1), activation="Relu"), f32(1, 12, 6, 6), f32(12, 1, 3, 3), f32(12), reference=depthwise)


def spread(x, w):
    """Each pixel times the 2 x 2 kernel, side by side."""
    y = np.zeros((len(x), w.shape[1], x.shape[2] * 2, x.shape[3] * 2))
    for row in range(x.shape[2]):
        for column in range(x.shape[3]):
            y[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] += np.tensordot(x[:, :, row, column], w, 1)
    return y


def transposed(x, w, bias, residual):
    return np.maximum(spread(x, w) + bias.reshape(-1, 1, 1) + residual, 0).astype(x.dtype)


def grouped(x, w, bias):
    halves = [spread(x[:, i : i + 2], w[i : i + 2]) for i in (0, 2)]
    return (np.concatenate(halves, axis=1) + bias.reshape(-1, 1, 1)).astype(x.dtype)


case(FusedConvTranspose(strides=(2, 2), activation="Relu"), f32(2, 3, 4, 3), f32(3, 5, 2, 2), f32(5), f32(2, 5, 8, 6), reference=transposed)
