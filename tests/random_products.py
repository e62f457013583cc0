"""Steps of random models: products, convolutions and normalizations, with what passes fold and fuse into them."""

from __future__ import annotations

import numpy as np
import onnx

from tests.random_models import Network, image_shape, matrix_shape, sequence_shape
from tests.random_ops import step


# ---- products and convolutions
@step(6)
def conv(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim == 4 and 0 not in a.shape, new=image_shape(net))
    _, channels, height, width = net.values[x].shape
    group = net.one_of(1, 1, channels)
    outputs = group * net.between(1, 4)
    kernel = [net.between(1, min(3, height)), net.between(1, min(3, width))]
    weight = net.constant(net.array(outputs, channels // group, *kernel, scale=0.6))
    bias = [net.constant(net.array(outputs))] if net.often() else []
    if net.between(0, 3) == 0:
        x = net.node(
            "Pad",
            x,
            net.shape(0, 0, net.between(0, 2), 1, 0, 0, net.between(0, 2), 0),
            *([net.constant(net.one_of(0.0, 1.0), np.float32)] if net.often() else []),
        )
    extra = (
        {"auto_pad": net.one_of("SAME_UPPER", "SAME_LOWER", "VALID")}
        if net.between(0, 4) == 0
        else {"pads": [net.between(0, 1) for _ in range(4)]}
    )
    y = net.node("Conv", x, weight, *bias, group=group, strides=[net.between(1, 2)] * 2, **extra)
    for _ in range(net.between(0, 2)):
        net.one_of(batch_normalization, channel_affine, activation, residual)(net, y)
        y = net.nodes[-1].output[0]


@step()
def conv_transpose(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim == 4 and 0 not in a.shape, new=image_shape(net))
    channels, outputs = net.values[x].shape[1], net.between(1, 3)
    y = net.node("ConvTranspose", x, net.constant(net.array(channels, outputs, 2, 2, scale=0.5)), strides=[net.between(1, 2)] * 2)
    activation(net, y)


@step()
def conv_1d(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim == 3 and 0 not in a.shape, new=sequence_shape(net))
    channels = net.values[x].shape[1]
    net.node("Conv", x, net.constant(net.array(net.between(1, 4), channels, 1 + 2 * net.between(0, 1), scale=0.6)), pads=[1, 1])


def batch_normalization(net: Network, x: str) -> None:
    count = net.values[x].shape[1]
    scale, bias, mean, variance = net.array(count), net.array(count), net.array(count), net.array(count) ** 2 + 0.3
    net.node("BatchNormalization", x, *map(net.constant, (scale, bias, mean, variance)))


def channel_affine(net: Network, x: str) -> None:
    a = net.values[x]
    shape = net.one_of((a.shape[1], *[1] * (a.ndim - 2)), (1, a.shape[1], *[1] * (a.ndim - 2)), (), a.shape[1:])
    net.node(net.one_of("Mul", "Add", "Sub", "Div"), x, net.constant(net.array(*shape) + np.float32(1.5)))


def activation(net: Network, x: str) -> None:
    if net.often():
        net.node(net.one_of("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Elu"), x)
    elif net.often():
        net.node("Clip", x, net.constant(0, np.float32), net.constant(6, np.float32))
    else:
        net.node("Mul", *((x, net.node("Sigmoid", x)) if net.often() else (net.node("Sigmoid", x), x)))


def residual(net: Network, x: str) -> None:
    mine = net.values[x]
    other = net.tensor(lambda a: a.shape == mine.shape and a.dtype == np.float32 and a is not mine, new=mine.shape)
    net.node("Add", *((x, other) if net.often() else (other, x)))


@step()
def normalize_channels(net: Network) -> None:
    batch_normalization(net, net.tensor(lambda a: a.ndim >= 2 and 0 not in a.shape and a.dtype == np.float32, new=image_shape(net)))


@step(2)
def matmul(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 2)
    a = net.values[x]
    outputs = net.between(1, 9)
    weight = net.constant(net.array(*(a.shape[:-2] if net.between(0, 3) == 0 else ()), a.shape[-1], outputs, scale=0.6), a.dtype)
    y = net.node("MatMul", x, weight)
    if net.often():
        y = net.node("Add", y, net.constant(net.array(*net.one_of((outputs,), (1,), ())), a.dtype))
    if a.dtype == np.float32 and net.often():
        activation(net, y)


@step(2)
def enlarged(net: Network) -> None:
    """Arithmetic with a constant that may enlarge its operand, where a product, or what is moved between, is before or behind it."""
    x = net.tensor(lambda a: 1 <= a.ndim <= 4 and 1 in a.shape and a.size and a.dtype == np.float32, new=net.one_of((3, 1), (1, 1, 4, 4)))
    if net.often():
        a = net.values[x]
        x = net.node("MatMul", x, net.constant(net.array(a.shape[-1], net.one_of(1, 3), scale=0.6)))
        x = net.node("Reshape", x, net.shape(-1, 1)) if net.often() else x
    size, rank = net.between(2, 4), net.values[x].ndim
    shape = [size if dim == 1 and net.often() else net.one_of(1, dim) for dim in net.values[x].shape][net.between(0, max(0, rank - 1)) :]
    shape = [1, *shape] if net.between(0, 4) == 0 and len(shape) == rank else shape
    array = net.array(*shape) + np.float32(1.5)
    x = net.node(
        net.one_of("Mul", "Add", "Sub", "Div"), x, net.constant(array if net.often() else np.full(shape, net.one_of(0.5, 1, 2), np.float32))
    )
    x = net.node("Relu", x) if net.often() else x
    a = net.values[x]
    if a.ndim == 4 and net.often():
        net.node("Conv", x, net.constant(net.array(2, a.shape[1], 1, 1, scale=0.6)))
    elif a.ndim >= 2 and net.often():
        net.node("MatMul", x, net.constant(net.array(a.shape[-1], net.between(1, 4), scale=0.6)))
    elif net.often():
        net.node("MatMul", net.node("Reshape", x, net.shape(-1, size)), net.constant(net.array(size, 3, scale=0.6)))


@step()
def gemm(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim == 2 and a.dtype == np.float32, new=matrix_shape(net))
    rows, depth = net.values[x].shape
    turned_x, turned_w, outputs = net.between(0, 1), net.between(0, 1), net.between(1, 7)
    if turned_x:
        rows, depth = depth, rows
    weight = net.constant(net.array(*((outputs, depth) if turned_w else (depth, outputs)), scale=0.6))
    bias = net.constant(net.array(*net.one_of((outputs,), (1, outputs), (rows, 1), ())))
    y = net.node(
        "Gemm",
        x,
        weight,
        *([bias] if net.often() else []),
        transA=turned_x,
        transB=turned_w,
        alpha=net.one_of(1.0, 0.5),
        beta=net.one_of(1.0, 2.0),
    )
    if net.often():
        activation(net, y)


@step(2)
def attention(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim == 3 and a.shape[-1] % 4 == 0 and a.size and a.dtype == np.float32, new=sequence_shape(net))
    batch, length, width = net.values[x].shape
    heads = net.one_of(1, 2, 4)

    def projected(perm: list[int]) -> str:
        y = net.node("MatMul", x, net.constant(net.array(width, width, scale=0.4)))
        return net.node("Transpose", net.node("Reshape", y, net.shape(0, 0, heads, width // heads)), perm=perm)

    scores = net.node("MatMul", projected([0, 2, 1, 3]), projected([0, 2, 3, 1]))
    scores = net.node(net.one_of("Div", "Mul"), scores, net.constant(net.one_of(2.0, 0.5), np.float32))
    if net.often():
        scores = net.node("Add", scores, net.constant(net.array(*net.one_of((length, length), (batch, 1, 1, length)))))
    y = net.node("MatMul", net.node("Softmax", scores, axis=net.one_of(-1, -1, -1, 2)), projected([0, 2, 1, 3]))
    net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3]), net.shape(0, 0, width))


@step(2)
def attention_op(net: Network) -> None:
    """ONNX's own, whose operands and result may be behind Transposes, with fewer heads for keys and a mask, or not."""
    x = net.tensor(lambda a: a.ndim == 3 and a.shape[-1] % 4 == 0 and a.size and a.dtype == np.float32, new=sequence_shape(net))
    batch, length, width = net.values[x].shape
    heads = net.one_of(1, 2, 4)
    size, fewer = width // heads, net.one_of(1, heads)

    def operand(count: int) -> str:
        if net.between(0, 3):
            y = net.node("MatMul", x, net.constant(net.array(width, count * size, scale=0.4)))
            return net.node("Transpose", net.node("Reshape", y, net.shape(0, 0, count, size)), perm=[0, 2, 1, 3])
        return net.constant(net.array(batch, count, length, size))

    mask = net.array(*net.one_of((length, length), (batch, 1, 1, length), (batch, heads, length, length)))
    masks = net.one_of([], [net.constant(mask)], [net.constant((mask > 0) | (np.arange(length) == 0))])
    whole = not masks or mask.shape[-2] == length  # ONNX's reference shows the first key alone where one row is for all queries
    y = net.node("Attention", operand(heads), operand(fewer), operand(fewer), *masks, is_causal=int(whole and net.often()))
    if net.between(0, 3):
        y = net.node("Transpose", y, perm=[0, 2, 1, 3])
        net.node("Reshape", y, net.shape(0, 0, width))


@step(2)
def dynamically_quantized(net: Network) -> None:
    """A product, or two of one tensor, as onnxruntime's quantize_dynamic writes them. Of zeros the reference has another scale than it."""
    x = net.tensor(lambda a: a.ndim >= 2 and a.any() and a.shape[-1] <= 30 and a.dtype == np.float32, new=matrix_shape(net))
    integers, scale, zero = net.node("DynamicQuantizeLinear", x, outputs=3)
    for _ in range(net.between(1, 2)):
        info, columns = np.iinfo(net.one_of(np.int8, np.uint8)), net.between(1, 9)
        weight = net.constant(net.random.integers(info.min, info.max + 1, (net.values[x].shape[-1], columns)), info.dtype)
        count = [columns] if net.often() else []
        w_zero = net.constant(net.random.integers(-3, 4, count) + (info.min + info.max + 1) // 2, info.dtype)
        y = net.node("MatMulInteger", integers, weight, zero, w_zero)
        w_scale = net.constant(net.array(*count, scale=0.003) + np.float32(0.006))
        factor = net.node("Mul", *((scale, w_scale) if net.often() else (w_scale, scale)))
        y = net.node("Cast", y, most=2.0**20, to=onnx.TensorProto.FLOAT)
        y = net.node("Mul", *((y, factor) if net.often() else (factor, y)))
        if net.often():
            y = net.node("Add", y, net.constant(net.array(*net.one_of((columns,), (1,), (net.values[y].shape[-2], 1)))))
        if net.often():
            activation(net, y)


# ---- normalizations written out
@step(3)
def layer_norm(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim >= 2 and a.shape[-1] > 1 and a.size and a.dtype == np.float32, new=sequence_shape(net))
    axes = net.constant([-1] if net.between(0, 3) else [net.values[x].ndim - 2], np.int64)
    mean = net.node("ReduceMean", x, axes)
    centred = net.node("Sub", x, mean)
    square = net.node("Pow", centred, net.constant(2, np.float32)) if net.often() else net.node("Mul", centred, centred)
    deviation = net.node("Sqrt", net.node("Add", net.node("ReduceMean", square, axes), net.constant(net.one_of(1e-5, 0.1), np.float32)))
    y = net.node("Div", centred, deviation)
    if net.often():
        y = net.node("Mul", y, net.constant(net.array(net.values[x].shape[-1])))
        net.node("Add", y, net.constant(net.array(net.values[x].shape[-1])))


@step(2)
def layer_normalization(net: Network) -> None:
    """Of a tensor or of a residual sum, with a vector in it or without, of tensors of one shape or of rows that repeat."""
    x = net.tensor(lambda a: a.ndim >= 2 and a.shape[-1] > 1 and a.size and a.dtype == np.float32, new=sequence_shape(net))
    width = net.values[x].shape[-1]
    if net.often():
        shape = net.values[x].shape
        skip = net.tensor(lambda a: a.shape in (shape, (1, *shape[1:]), shape[1:]) and a.dtype == np.float32, new=shape)
        x = net.node("Add", *net.one_of((x, skip), (skip, x)))
        x = net.node("Add", x, net.constant(net.array(width))) if net.often() else x
    net.node("LayerNormalization", x, net.constant(net.array(width)), *([net.constant(net.array(width))] if net.often() else []))


@step()
def instance_normalization(net: Network) -> None:
    x = net.tensor(lambda a: a.ndim == 4 and a.shape[2] * a.shape[3] > 1 and a.size and a.dtype == np.float32, new=image_shape(net))
    channels = net.values[x].shape[1]
    net.node("InstanceNormalization", x, net.constant(net.array(channels)), net.constant(net.array(channels)))


@step(2)
def gelu(net: Network) -> None:
    x = net.tensor(lambda a: a.dtype == np.float32)
    inner = net.node("Div", x, net.constant(net.one_of(1.4142135, 1.5), np.float32))
    outer = net.node("Add", net.node("Erf", inner), net.constant(1, np.float32))
    net.node("Mul", net.node("Mul", x, net.constant(0.5, np.float32)), outer)


@step(2)
def hard_swish(net: Network) -> None:
    x = net.tensor(lambda a: a.dtype == np.float32)
    y = net.node(
        "Clip", net.node("Add", x, net.constant(3, np.float32)), net.constant(0, np.float32), net.constant(net.one_of(6, 5), np.float32)
    )
    net.node("Mul", x, y) if net.often() else net.node("Div", net.node("Mul", y, x), net.constant(6, np.float32))
