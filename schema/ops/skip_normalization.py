"""Normalizations of sums: a residual sum, or one of embeddings, and the normalization behind it in one op, as ONNX Runtime has them.

x, skip and the result are [*, n]; scale, bias and shift are [n]. skip's leading dims may be fewer than x's, or 1: it then repeats. Where
the sum is used elsewhere, too, it is an output.
"""

import numpy as np

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.rules import require_floats, require_given, require_shape


def repeats(skip: tuple, x: tuple) -> bool:
    """Whether a tensor of shape `skip` repeats along the leading dims of one of shape `x`, and is like it in the others."""
    while len(skip) > 1 and skip[0] == 1:
        skip = skip[1:]
    return 0 < len(skip) <= len(x) and skip == x[len(x) - len(skip) :]


def _require_rows(x: Spec, skip: Spec, **vectors: Spec | None) -> None:
    require_floats(x=x, skip=skip, **vectors)
    require(x.rank > 0 and repeats(skip.shape, x.shape), f"skip must be of the shape of x, or of its last dims; they are {skip} and {x}")
    for name, spec in vectors.items():
        require_shape(name, spec, x.shape[-1:])


def _statistics(x: Spec) -> Spec:
    return Spec(np.dtype(np.float32), (*x.shape[:-1], 1))


@op("com.microsoft::SkipLayerNormalization")
class SkipLayerNormalization(Op):
    """(s - mean) / sqrt(variance + epsilon) * scale + bias over the last dim of s = x + skip + shift.

    Outputs 1 and 2 are the mean and 1 / sqrt(variance + epsilon) in float32, with size 1 in the last dim; output 3 is s.
    """

    epsilon: float = 1e-12

    def infer(self, x: Spec, skip: Spec, scale: Spec, bias: Spec | None = None, shift: Spec | None = None) -> tuple[Spec, ...]:
        require_given(scale=scale)
        _require_rows(x, skip, scale=scale, bias=bias, shift=shift)
        y, statistics = Spec(x.dtype, x.shape), _statistics(x)
        return y, statistics, statistics, y


@op("com.microsoft::SkipSimplifiedLayerNormalization")
class SkipSimplifiedLayerNormalization(Op):
    """s / sqrt(mean(s²) + epsilon) * scale over the last dim of s = x + skip + shift: RMSNormalization of the sum.

    Output 1 isn't made (it is a mean in ONNX Runtime's list of outputs, and left out there, too), output 2 is 1 / sqrt(mean(s²) +
    epsilon) in float32, with size 1 in the last dim; output 3 is s.
    """

    epsilon: float = 1e-12

    def infer(self, x: Spec, skip: Spec, scale: Spec, shift: Spec | None = None) -> tuple[Spec | None, ...]:
        require_given(scale=scale)
        _require_rows(x, skip, scale=scale, shift=shift)
        y = Spec(x.dtype, x.shape)
        return y, None, _statistics(x), y


@op("mnnx::EmbedLayerNormalization")
class EmbedLayerNormalization(Op):
    """LayerNormalization of the sum of each token's embeddings: words[ids] + positions[position_ids] + segments[segment_ids].

    ids and segment_ids [N, L]; position_ids [N or 1, L], without them 0 … L - 1; words, positions and segments are tables [rows, n],
    segments and segment_ids may both be missing; scale and bias [n]. y [N, L, n]; output 1 is the sum.
    """

    epsilon: float = 1e-12

    def infer(
        self,
        ids: Spec,
        segment_ids: Spec | None,
        words: Spec,
        positions: Spec,
        segments: Spec | None,
        scale: Spec,
        bias: Spec,
        position_ids: Spec | None = None,
    ) -> tuple[Spec, Spec]:
        require_given(words=words, positions=positions, scale=scale, bias=bias)
        require_floats(words=words, positions=positions, segments=segments, scale=scale, bias=bias)
        require(ids.rank == 2, f"ids must be [N, L]; they are {ids}")
        require((segments is None) == (segment_ids is None), "segments and segment_ids must both be given, or neither")
        for name, spec in {"ids": ids, "segment_ids": segment_ids, "position_ids": position_ids}.items():
            integer = spec is None or spec.dtype in (np.dtype(np.int32), np.dtype(np.int64))
            require(integer, f"{name} must be int32 or int64; they are {spec}")
        require_shape("segment_ids", segment_ids, ids.shape)
        if position_ids is not None:
            fits = position_ids.shape in (ids.shape, (1, ids.shape[1]))
            require(fits, f"position_ids must be {list(ids.shape)} or [1, {ids.shape[1]}]; they are {position_ids}")
        for name, table in {"words": words, "positions": positions, "segments": segments}.items():
            fits = table is None or (table.rank == 2 and table.shape[1] == words.shape[-1])
            require(fits, f"{name} must be a table of rows like those of words; they are {table} and {words}")
        rows = positions.shape[0]
        require(position_ids is not None or ids.shape[1] <= rows, f"there are {rows} positions for {ids.shape[1]} tokens")
        require_shape("scale", scale, words.shape[1:])
        require_shape("bias", bias, words.shape[1:])
        y = Spec(words.dtype, (*ids.shape, words.shape[1]))
        return y, y
