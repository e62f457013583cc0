"""Ops that ONNX Runtime adds to ONNX and that no composition of ours expresses."""

import numpy as np

from mnnx.schema.ops.axes import normalize_axis
from mnnx.schema.ops.base import DataDependent, Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT, require_floats, require_shape


@op("com.microsoft::Inverse")
class Inverse(Op):
    """Inverses of square matrices [*, M, M]; where a matrix has none, the result is infinite or NaN."""

    def infer(self, x: Spec) -> Spec:
        require_floats(x=x)
        require(x.rank >= 2 and x.shape[-1] == x.shape[-2], f"Inverse needs square matrices; x is {x}")
        return Spec(x.dtype, x.shape)


@op("mnnx::AttentionMask")
class AttentionMask(Op):
    """What any of the masks of ONNX Runtime's attention ops adds to scores, float32 [N, 1, 1 or Lq, total]: 0 for keys that may be seen,
    `hidden` for others.

    mask: [N] numbers of keys; [2 N] ends of the keys, then their starts; [N, total] or [N, Lq, total], positive where seen; [N, 1, most,
    most], of which the last Lq of the first `total` rows, and the first `total` columns count. sizes: N and Lq; total: one number.
    """

    hidden: float

    def infer(self, mask: Spec, sizes: Spec, total: Spec) -> Spec:
        require(sizes.size == 2 and total.size == 1, f"sizes and total must be two values and one; they are {sizes} and {total}")
        (batch, queries), (keys,) = sizes.ints(), total.ints()
        require(mask.dtype.kind in "iufb", f"the mask must be numbers; it is {mask}")
        require(0 <= queries <= keys or mask.rank < 4, f"there must be as many keys as queries; there are {keys} and {queries}")
        square = mask.rank == 4 and keys <= mask.shape[2] and keys <= mask.shape[3] and mask.shape[:2] == (batch, 1)
        known = ((batch,), (2 * batch,), (batch, keys), (batch, queries, keys))
        require(square or mask.shape in known, f"the mask of {batch} x {queries} queries and {keys} keys can't be {mask}")
        return Spec(np.dtype(np.float32), (batch, 1, queries if mask.rank > 2 else 1, keys))


@op("com.microsoft::GroupQueryAttention")
class GroupQueryAttention(Op):
    """Attention with a cache of keys and values, of which each sequence of the batch has filled its own length.

    q [N, L, H * D], k and v [N, L, Hkv * D], or all in q [N, L, (H + 2 Hkv) * D]; past key and value [N, Hkv, P, D]; seqlens_k [N]: the
    keys of each sequence after this call, less one; total_length: their maximum; cos and sin [positions, rotated / 2]; position_ids
    [N, L]; attention_bias, added to the scores [N or 1, H or 1, L, total]; head_sink [H]: one more score per head in the softmax.
    Outputs: y [N, L, H * D] and the present key and value [N, Hkv, max(P, total), D], 0 behind a sequence's keys; where qk_output is 1,
    also the scores [N, H, L, total] before the softmax, where it is 2 after it, 0 for keys that aren't seen.

    Query i of a sequence with T keys is key T - L + i, and sees keys up to itself (all, where not `causal`), or the last
    local_window_size of them. smooth_softmax: a head_sink of 0.
    """

    num_heads: int
    kv_num_heads: int
    causal: bool = True
    do_rotary: bool = False
    local_window_size: int = -1
    qk_output: int = 0
    rotary_interleaved: bool = False
    scale: float | None = None
    smooth_softmax: bool = False
    softcap: float = 0.0

    def check(self):
        require(0 < self.kv_num_heads <= self.num_heads < LIMIT, f"there must be heads: {self.num_heads} and {self.kv_num_heads}")
        require(self.qk_output in (0, 1, 2), f"qk_output must be 0, 1 or 2; it is {self.qk_output}")
        require(self.num_heads % self.kv_num_heads == 0, f"kv_num_heads {self.kv_num_heads} must divide num_heads {self.num_heads}")

    def head_size(self, q: tuple[int, ...], packed: bool) -> int:
        """D, by q's shape."""
        heads = self.num_heads + 2 * self.kv_num_heads if packed else self.num_heads
        require(len(q) == 3 and q[2] > 0 and q[2] % heads == 0, f"q must have the shape [N, L, {heads} * D]; it is {list(q)}")
        return q[2] // heads

    def infer(
        self,
        q: Spec,
        k: Spec | None,
        v: Spec | None,
        past_key: Spec | None,
        past_value: Spec | None,
        seqlens_k: Spec,
        total_length: Spec,
        cos: Spec | None = None,
        sin: Spec | None = None,
        position_ids: Spec | None = None,
        attention_bias: Spec | None = None,
        head_sink: Spec | None = None,
    ) -> tuple[Spec, ...]:
        require_floats(q=q, k=k, v=v, past_key=past_key, past_value=past_value, cos=cos, sin=sin, attention_bias=attention_bias)
        require((k is None) == (v is None) and (past_key is None) == (past_value is None), "keys and values must be given together")
        head = self.head_size(q.shape, k is None)
        batch, length = q.shape[:2]
        for name, spec in (("k", k), ("v", v)):
            require_shape(name, spec, (batch, length, self.kv_num_heads * head))
        past = 0 if past_key is None or past_key.rank != 4 else past_key.shape[2]
        for name, spec in (("past_key", past_key), ("past_value", past_value)):
            require_shape(name, spec, (batch, self.kv_num_heads, past, head))
        for name, spec in (("seqlens_k", seqlens_k), ("total_length", total_length), ("position_ids", position_ids)):
            require(spec is None or spec.dtype in (np.int32, np.int64), f"{name} must be integers; it is {spec}")
        require_shape("seqlens_k", seqlens_k, (batch,), (batch, 1))
        require(total_length.size == 1, f"total_length must be a scalar; it is {total_length}")
        require_shape("position_ids", position_ids, (batch, length))
        require_shape("head_sink", head_sink, (self.num_heads,))
        if self.do_rotary:
            require(cos is not None and sin is not None, "cos and sin must be given for rotary embeddings")
            require(cos.rank == 2 and 0 < cos.shape[1] <= head // 2, f"cos must be [positions, {head // 2} or less]; it is {cos}")
            require_shape("sin", sin, cos.shape)
        total = total_length.ints()[0]
        require(length <= total < LIMIT, f"the total length must be {length} or more; it is {total}")
        scores = (batch, self.num_heads, length, total)
        if attention_bias is not None:
            fits = attention_bias.rank == 4 and all(n in (1, m) for n, m in zip(attention_bias.shape, scores, strict=True))
            require(fits, f"attention_bias must broadcast to {list(scores)}; it is {attention_bias}")
        present = Spec(q.dtype, (batch, self.kv_num_heads, max(past, total), head))
        results = Spec(q.dtype, (batch, length, self.num_heads * head)), present, present
        return (*results, Spec(q.dtype, scores)) if self.qk_output else results


@op("com.microsoft::UnfoldTensor")
class UnfoldTensor(Op):
    """All slices of `size` elements of x along `dim`, one every `step`, as a new last dim."""

    dim: int = -1
    size: int
    step: int = 1

    def infer(self, x: Spec) -> Spec:
        axis = normalize_axis(self.dim, x.rank)
        require(0 < self.size <= x.shape[axis], f"size must be in 1 … {x.shape[axis]}, as dim {axis} of {x} is; it is {self.size}")
        require(self.step > 0, f"step must be positive; it is {self.step}")
        count = (x.shape[axis] - self.size) // self.step + 1
        return Spec(x.dtype, (*x.shape[:axis], count, *x.shape[axis + 1 :], self.size))


@op("com.microsoft::DynamicTimeWarping")
class DynamicTimeWarping(Op):
    """The cheapest path from the first to the last corner of a matrix of costs, [M, N] or [1, M, N]: int32 [2, steps], rows and columns.

    A step goes to the next row, the next column, or both; to the next column where two ways cost the same.
    """

    def infer(self, costs: Spec) -> Spec:
        matrix = costs.shape[1:] if costs.rank == 3 and costs.shape[0] == 1 else costs.shape
        require(len(matrix) == 2 and 0 not in matrix, f"costs must be [M, N] or [1, M, N]; they are {costs}")
        require(costs.dtype == np.float32, f"costs must be float32; they are {costs}")
        raise DataDependent


@op("com.microsoft::CropAndResize")
class CropAndResize(Op):
    """(x [N, C, H, W], boxes [R, 4], batch_indices [R], size [2]) → [R, C, *size]: boxes of images, resized corner to corner.

    A box is y1, x1, y2, x2, from 0 at the first pixel's centre to 1 at the last one's. Beyond the image it has `extrapolation_value`.
    `mode`: bilinear or nearest.
    """

    extrapolation_value: float = 0.0
    mode: str = "bilinear"

    def check(self):
        require(self.mode in ("bilinear", "nearest"), f"mode must be bilinear or nearest; it is {self.mode!r}")

    def infer(self, x: Spec, boxes: Spec, batch_indices: Spec, size: Spec) -> Spec:
        require_floats(x=x, boxes=boxes)
        require(x.rank == 4 and 0 not in x.shape[2:], f"x must be images [N, C, H, W]; it is {x}")
        require(boxes.rank == 2 and boxes.shape[1] == 4, f"boxes must be [R, 4]; they are {boxes}")
        require_shape("batch_indices", batch_indices, boxes.shape[:1])
        require(batch_indices.dtype in (np.int32, np.int64), f"batch_indices must be integers; they are {batch_indices}")
        require(size.shape == (2,), f"the size must be height and width; it is {size}")
        height, width = size.ints()
        require(0 < height < LIMIT and 0 < width < LIMIT, f"height and width must be positive; they are {height} and {width}")
        return Spec(x.dtype, (boxes.shape[0], x.shape[1], height, width))
