"""Normalizations over channels, groups, trailing dims and neighbours."""

import numpy as np

from mnnx.schema.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from tests.cases import case, f16, f32, f64


def positive(*shape):
    return f32(*shape, low=0.1, high=2.0)


case(BatchNormalization(), f32(2, 17, 5, 6), f32(17), f32(17), f32(17), positive(17))
case(BatchNormalization(epsilon=0.01), f32(2, 3), f32(3), f32(3), f32(3), positive(3))
case(BatchNormalization(), f32(2, 3, 4), f32(3), f32(3), f32(3), positive(3))
case(BatchNormalization(), f32(0, 3, 4), f32(3), f32(3), f32(3), positive(3))
case(BatchNormalization(), f64(2, 3, 2, 2, 2), f64(3), f64(3), f64(3), f64(3, low=0.1))
case(BatchNormalization(training_mode=True, momentum=0.7), f32(2, 3, 4, 5), f32(3), f32(3), f32(3), positive(3), outputs=3)
case(BatchNormalization(), f16(2, 3, 4, 5), f16(3), f16(3), f16(3), f16(3, low=0.1), rtol=1e-2, atol=2e-2)

case(InstanceNormalization(), f32(2, 3, 4, 5), f32(3), f32(3))
case(InstanceNormalization(epsilon=0.01), f32(2, 17, 9), f32(17), f32(17))
case(InstanceNormalization(), f32(1, 2, 3, 4, 2), f32(2), f32(2))

case(GroupNormalization(num_groups=2), f32(2, 4, 3, 5), f32(4), f32(4))
case(GroupNormalization(num_groups=1), f32(2, 6, 7), f32(6), f32(6))
case(GroupNormalization(num_groups=8, epsilon=0.01), f32(1, 32, 4, 4), f32(32), f32(32))

case(LayerNormalization(), f32(2, 3, 40), f32(40), f32(40))
case(LayerNormalization(), f32(2, 3, 33), f32(33))
case(LayerNormalization(axis=1, epsilon=0.1), f32(2, 3, 4), f32(3, 4), f32(3, 4), outputs=3)
case(LayerNormalization(axis=0), f32(3, 4), f32(3, 4), f32(4))
case(LayerNormalization(), f32(2, 3, 8), f32(2, 1, 8), f32(1), reference=lambda x, s, b: layer_norm(x, s, b))
case(LayerNormalization(), f16(2, 3, 16), f16(16), f16(16), rtol=1e-2, atol=1e-2)
case(LayerNormalization(), f32(0, 8), f32(8), f32(8), reference=lambda x, s, b: x)

case(RMSNormalization(), f32(2, 3, 40), f32(40))
case(RMSNormalization(axis=1, epsilon=0.1), f32(2, 3, 5), f32(3, 5))
case(RMSNormalization(axis=0), f32(3, 4), f32(4))
case(RMSNormalization(), f16(2, 3, 16), f16(16), rtol=1e-2, atol=1e-2)

case(LpNormalization(), f32(2, 3, 4))
case(LpNormalization(axis=1, p=1), f32(2, 3, 4), reference=lambda x: x / np.abs(x).sum(1, keepdims=True))
case(LpNormalization(axis=0), f64(3, 5))
case(LpNormalization(), np.zeros((2, 3), np.float32), reference=lambda x: x)


def lrn(op):
    def reference(x):
        y = np.empty_like(x)
        for c in range(x.shape[1]):
            near = x[:, max(0, c - (op.size - 1) // 2) : c + op.size // 2 + 1]
            y[:, c] = x[:, c] / (op.bias + op.alpha / op.size * (near**2).sum(1)) ** op.beta
        return y

    return reference


for op, shape in (
    (LRN(size=3), (2, 5, 4, 4)),
    (LRN(size=4, alpha=0.1, beta=0.5, bias=2.0), (1, 17, 3, 3)),
    (LRN(size=9, alpha=0.01), (1, 4, 5)),
):
    case(op, f32(*shape), reference=lrn(op))

case(MeanVarianceNormalization(), f32(2, 3, 4, 5))
case(MeanVarianceNormalization(axes=(-1,)), f32(3, 7))


def layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + np.float32(1e-5)) * scale + bias
