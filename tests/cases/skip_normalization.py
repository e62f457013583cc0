"""Normalizations of residual sums and of sums of embeddings."""

import numpy as np

from mnnx.schema.ops.skip_normalization import EmbedLayerNormalization, SkipLayerNormalization, SkipSimplifiedLayerNormalization
from tests.cases import case, f16, f32, f64, integers


def layer_norm(epsilon=1e-12):
    def reference(x, skip, scale, bias=None, shift=None):
        total = x.astype(np.float64) + skip + (0 if shift is None else shift)
        mean = total.mean(-1, keepdims=True)
        inverse = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + epsilon)
        y = (total - mean) * inverse * scale + (0 if bias is None else bias)
        return y.astype(x.dtype), mean.astype(np.float32), inverse.astype(np.float32), total.astype(x.dtype)

    return reference


def rms_norm(epsilon=1e-12):
    def reference(x, skip, scale, shift=None):
        total = x.astype(np.float64) + skip + (0 if shift is None else shift)
        y = total / np.sqrt((total**2).mean(-1, keepdims=True) + epsilon) * scale
        return y.astype(x.dtype)

    return reference


case(SkipLayerNormalization(), f32(2, 3, 40), f32(2, 3, 40), f32(40), f32(40), f32(40), outputs=4, reference=layer_norm())
case(SkipLayerNormalization(), f32(2, 3, 33), f32(2, 3, 33), f32(33), f32(33), reference=layer_norm())
case(SkipLayerNormalization(epsilon=0.1), f32(4, 3, 33), f32(3, 33), f32(33), None, f32(33), reference=layer_norm(0.1))
case(SkipLayerNormalization(), f32(2, 3, 64), f32(1, 3, 64), f32(64), f32(64), reference=layer_norm())
case(SkipLayerNormalization(), f32(5, 8), f32(1, 8), f32(8), reference=layer_norm())
case(SkipLayerNormalization(), f32(3000), f32(3000), f32(3000), f32(3000), reference=layer_norm())
case(SkipLayerNormalization(), f16(2, 3, 16), f16(2, 3, 16), f16(16), f16(16), reference=layer_norm(), rtol=1e-2, atol=2e-2)
case(SkipLayerNormalization(), f64(2, 3, 5), f64(2, 3, 5), f64(5), f64(5), reference=layer_norm())
case(SkipLayerNormalization(), f32(0, 3, 8), f32(0, 3, 8), f32(8), f32(8), reference=lambda x, *_: x)

case(SkipSimplifiedLayerNormalization(), f32(2, 3, 40), f32(2, 3, 40), f32(40), f32(40), reference=rms_norm())
case(SkipSimplifiedLayerNormalization(epsilon=0.1), f32(2, 3, 33), f32(3, 33), f32(33), reference=rms_norm(0.1))
case(SkipSimplifiedLayerNormalization(), f16(2, 3, 16), f16(2, 3, 16), f16(16), reference=rms_norm(), rtol=1e-2, atol=2e-2)


def embeddings(ids, segment_ids, words, positions, segments, scale, bias, position_ids=None):
    y = np.empty((*ids.shape, words.shape[1]), words.dtype)
    total = np.empty_like(y)
    for row in range(ids.shape[0]):
        for place in range(ids.shape[1]):
            at = place if position_ids is None else position_ids[row % len(position_ids), place]
            one = words[ids[row, place]].astype(np.float64) + positions[at]
            if segments is not None:
                one = one + segments[segment_ids[row, place]]
            total[row, place] = one
            y[row, place] = (one - one.mean()) / np.sqrt(one.var() + 1e-12) * scale + bias
    return y, total


def ids(*shape, high, dtype="int32"):
    return integers(dtype, *shape, low=0, high=high)


_EMBED = EmbedLayerNormalization()
_VECTORS = f32(24), f32(24)
case(_EMBED, ids(2, 5, high=9), ids(2, 5, high=2), f32(9, 24), f32(7, 24), f32(2, 24), *_VECTORS, outputs=2, reference=embeddings)
case(_EMBED, ids(2, 5, high=9), None, f32(9, 24), f32(7, 24), None, *_VECTORS, ids(1, 5, high=7), reference=embeddings)
case(_EMBED, ids(2, 5, high=9), None, f32(9, 24), f32(7, 24), None, *_VECTORS, ids(2, 5, high=7), reference=embeddings)
case(_EMBED, ids(1, 3, high=9, dtype="int64"), None, f32(9, 24), f32(7, 24), None, *_VECTORS, reference=embeddings)
_MIXED = np.array([[-9, 8, -1]]), ids(1, 3, high=2)  # int64 and int32
case(_EMBED, *_MIXED, f32(9, 24), f32(7, 24), f32(2, 24), *_VECTORS, reference=embeddings)
case(_EMBED, ids(2, 0, high=9), None, f32(9, 24), f32(7, 24), None, *_VECTORS, reference=embeddings)
_HALVES = f16(9, 24), f16(7, 24), None, f16(24), f16(24)
case(_EMBED, ids(2, 5, high=9), None, *_HALVES, reference=embeddings, rtol=1e-2, atol=2e-2)
