"""Attention and rotary position embeddings. H heads of size D; K and V may have fewer heads than Q (grouped queries)."""

import math
from collections.abc import Sequence

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.axes import normalize_axes
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import BOOL, FLOATS, INTEGERS
from mnnx.schema.ops.matmul import matmul_shape
from mnnx.schema.ops.rules import LIMIT, require_floats, require_given, require_shape
from mnnx.schema.records import Row

_INT64 = np.dtype(np.int64)


class AttentionSizes(Row):
    """The sizes of one attention: `keys` are the new ones, `total` those with the past ones before them."""

    batch: int
    q_heads: int
    kv_heads: int
    queries: int
    keys: int
    past: int
    head: int
    v_head: int

    @property
    def total(self) -> int:
        return self.past + self.keys


def illegal_key_counts(keys: int) -> str:
    """What is wrong with nonpad_kv_seqlen, with a place for the illegal one."""
    return f"nonpad_kv_seqlen must be in 0 … {keys}, not {{}}"


@op("Attention")
class Attention(Op):
    """softmax(softcap(q kᵀ scale) + bias) v per head. Attention-25.

    q [N, H, Lq, D], k [N, Hkv, Lk, D], v [N, Hkv, Lk, Dv]; or packed as [N, L, H * D] with q_num_heads and kv_num_heads given. Hkv
    divides H: query heads i * H/Hkv … share head i of k and v. past_key and past_value [N, Hkv, P, D or Dv] come before k and v.

    The bias is 0 where query i (at position p = i + offset) may see key j, else -inf: `mask` (bool: may; else added; broadcasts to
    [N, H, Lq, P + Lk], or is shorter than P + Lk: -inf beyond), is_causal (j <= p), the window sizes (p - left <= j <= p + right,
    -1: no bound) and nonpad_kv_seqlen [N] (j < it) together. The offset is P, or nonpad_kv_seqlen - Lq. A query that may see no key gets 0.

    Outputs: y as q's layout with Dv for D; the present key and value: past and new together, always of rank 4; and per
    qk_matmul_output_mode the scores [N, H, Lq, P + Lk]: 0 raw, 1 after softcap, 2 with bias, 3 after softmax.
    """

    is_causal: bool = False
    kv_num_heads: int = 0
    left_window_size: int = -1
    q_num_heads: int = 0
    qk_matmul_output_mode: int = 0
    right_window_size: int = -1
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: np.dtype | None = None

    def check(self) -> None:
        require(0 <= self.q_num_heads < LIMIT and 0 <= self.kv_num_heads < LIMIT, "q_num_heads and kv_num_heads must not be negative")
        require(0 <= self.qk_matmul_output_mode <= 3, f"qk_matmul_output_mode must be 0 … 3; it is {self.qk_matmul_output_mode}")
        require(self.left_window_size >= -1 and self.right_window_size >= -1, "the window sizes must be -1 or more")
        require(self.softmax_precision is None or self.softmax_precision in FLOATS, "softmax_precision must be a float type")

    def sizes(self, q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...], past_key: tuple[int, ...] | None = None) -> AttentionSizes:
        """The sizes that follow from the inputs' shapes; raises RuleError where they don't fit together."""
        shapes = f"q {list(q)}, k {list(k)}, v {list(v)}"
        require(len(q) == len(k) == len(v) and len(q) in (3, 4), f"q, k and v must all have rank 4, or all rank 3; they are {shapes}")
        if len(q) == 3:
            heads, kv_heads = self.q_num_heads, self.kv_num_heads
            require(heads > 0 and kv_heads > 0, "q_num_heads and kv_num_heads must be given where q, k and v have rank 3")
            fits = q[2] % heads == 0 and k[2] % kv_heads == 0 and v[2] % kv_heads == 0
            require(fits, f"the last dims must be multiples of the {heads} and {kv_heads} heads; they are {shapes}")
            q, k, v = ((s[0], h, s[1], s[2] // h) for s, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
        require(self.q_num_heads in (0, q[1]) and self.kv_num_heads in (0, k[1]), f"q_num_heads and kv_num_heads must fit {shapes}")
        require(q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3], f"q, k and v must fit together; they are {shapes}")
        require(k[1] > 0 and q[1] % k[1] == 0, f"k's heads must divide q's; they are {k[1]} and {q[1]}")
        require(q[3] > 0, f"the head size must not be 0; they are {shapes}")
        return AttentionSizes(q[0], q[1], k[1], q[2], k[2], past_key[2] if past_key is not None else 0, q[3], v[3])

    def infer(
        self,
        q: Spec,
        k: Spec,
        v: Spec,
        mask: Spec | None = None,
        past_key: Spec | None = None,
        past_value: Spec | None = None,
        nonpad_kv_seqlen: Spec | None = None,
    ) -> tuple[Spec, Spec, Spec, Spec]:
        require_floats(q=q, k=k, past_key=past_key)
        require_floats(v=v, past_value=past_value)
        require((past_key is None) == (past_value is None), "past_key and past_value must be given together")
        require(past_key is None or past_key.rank == 4, f"past_key must have rank 4; it is {past_key}")
        s = self.sizes(q.shape, k.shape, v.shape, None if past_key is None else past_key.shape)
        require_shape("past_key", past_key, (s.batch, s.kv_heads, s.past, s.head))
        require_shape("past_value", past_value, (s.batch, s.kv_heads, s.past, s.v_head))
        scores = (s.batch, s.q_heads, s.queries, s.total)
        if mask is not None:
            require(
                mask.dtype == BOOL or mask.dtype in FLOATS | INTEGERS, f"the mask must be bool or numbers; it is {dtypes.name(mask.dtype)}"
            )
            leading = zip(mask.shape[-2::-1], scores[-2::-1], strict=False)
            fits = 1 <= mask.rank <= 4 and mask.shape[-1] <= s.total and all(n in (1, m) for n, m in leading)
            require(fits, f"the mask must broadcast to {list(scores)}, or be shorter in its last dim; it is {mask}")
        if nonpad_kv_seqlen is not None:
            require(past_key is None, "nonpad_kv_seqlen can't be given together with past_key")
            require(nonpad_kv_seqlen.dtype == _INT64, f"nonpad_kv_seqlen must be int64; it is {nonpad_kv_seqlen}")
            require_shape("nonpad_kv_seqlen", nonpad_kv_seqlen, (s.batch,))
        y = (s.batch, s.q_heads, s.queries, s.v_head) if q.rank == 4 else (s.batch, s.queries, s.q_heads * s.v_head)
        return (
            Spec(q.dtype, y),
            Spec(k.dtype, (s.batch, s.kv_heads, s.total, s.head)),
            Spec(v.dtype, (s.batch, s.kv_heads, s.total, s.v_head)),
            Spec(q.dtype, scores),
        )

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        past_key = inputs[4].shape if len(inputs) > 4 and inputs[4] is not None else None
        s = self.sizes(*(spec.shape for spec in inputs[:3]), past_key)
        return 2 * s.batch * s.q_heads * s.queries * s.total * (s.head + s.v_head)


@op("mnnx::FusedAttention")
class FusedAttention(Op):
    """softmax(scale * q' @ k' + mask) @ v' by the rules of MatMul, Add and Softmax over the last axis. The passes make it.

    q' [..., Lq, D], k' [..., D, Lk] and v' [..., Lk, Dv] are the operands with their dims in the order of their `perm`, as Transpose
    takes it (empty: as they are); y_perm then reorders the result's. With kv_groups above 1, k' and v' have that many times fewer heads
    (dim -3) than q': each serves kv_groups neighbouring ones of it. The mask may be bool: a key is seen where it is true, its score is
    -inf elsewhere, and with is_causal where it comes behind the query. A query whose scores are all -inf gets NaN, with zero_blind 0.
    Floats of one dtype.
    """

    scale: float = 1.0
    q_perm: tuple[int, ...] = ()
    k_perm: tuple[int, ...] = ()
    v_perm: tuple[int, ...] = ()
    y_perm: tuple[int, ...] = ()
    kv_groups: int = 1
    zero_blind: bool = False
    is_causal: bool = False

    def check(self) -> None:
        require(0 < self.kv_groups < LIMIT, f"kv_groups must be positive; it is {self.kv_groups}")

    def shapes(self, q: Spec, k: Spec, v: Spec, mask: Spec | None) -> tuple[tuple[int, ...], ...]:
        """The shapes of q', k', v', the scores, and the result before y_perm."""
        operands = zip(("q", "k", "v"), (q.shape, k.shape, v.shape), (self.q_perm, self.k_perm, self.v_perm), strict=True)
        q_shape, k_shape, v_shape = (_reordered(name, shape, perm) for name, shape, perm in operands)
        wide_k, wide_v = (self._served(q_shape, shape) for shape in (k_shape, v_shape))
        scores = matmul_shape(q_shape, wide_k)
        if mask is not None:
            try:
                scores = np.broadcast_shapes(scores, mask.shape)
            except ValueError:
                require(False, f"the mask and the scores {list(scores)} must broadcast; it is {mask}")
        return q_shape, k_shape, v_shape, scores, matmul_shape(scores, wide_v)

    def _served(self, q: tuple[int, ...], kv: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of k' or v' with as many heads as it serves."""
        if self.kv_groups == 1:
            return kv
        fits = len(kv) == len(q) >= 3 and kv[-3] * self.kv_groups == q[-3]
        require(fits, f"k and v must have {self.kv_groups} times fewer heads than q; their shapes are {list(kv)} and {list(q)}")
        return (*kv[:-3], q[-3], *kv[-2:])

    def infer(self, q: Spec, k: Spec, v: Spec, mask: Spec | None = None) -> Spec:
        require_floats(q=q, k=k, v=v, mask=None if mask is not None and mask.dtype == BOOL else mask)
        return Spec(q.dtype, _reordered("the result", self.shapes(q, k, v, mask)[-1], self.y_perm))

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        q, _, v, scores, _ = self.shapes(*(*inputs, None)[:4])
        return 2 * math.prod(scores) * (q[-1] + v[-1])


@op("mnnx::PackedAttention")
class PackedAttention(Op):
    """Attention of tokens with their q, k and v side by side: x [N, L, (H + 2 Hkv) * D] → [N, L, H * D]. The passes make it.

    The mask is bool (whether a key is seen) or added to the scores, and broadcasts to [N, H, L, L], with a number for each key. A query
    that sees no key gets 0.
    """

    q_num_heads: int
    kv_num_heads: int
    scale: float = 1.0
    is_causal: bool = False

    def check(self) -> None:
        heads = 0 < self.kv_num_heads <= self.q_num_heads < LIMIT and self.q_num_heads % self.kv_num_heads == 0
        require(heads, f"kv_num_heads must divide q_num_heads; they are {self.kv_num_heads} and {self.q_num_heads}")

    def sizes(self, x: tuple[int, ...]) -> AttentionSizes:
        """The sizes that follow from the shape of x."""
        heads, kv_heads = self.q_num_heads, self.kv_num_heads
        all_heads = heads + 2 * kv_heads
        require(len(x) == 3 and x[2] > 0 and x[2] % all_heads == 0, f"x must be [N, L, {all_heads} * D]; its shape is {list(x)}")
        size = x[2] // all_heads
        return AttentionSizes(x[0], heads, kv_heads, x[1], x[1], 0, size, size)

    def infer(self, x: Spec, mask: Spec | None = None) -> Spec:
        require_floats(x=x, mask=None if mask is not None and mask.dtype == BOOL else mask)
        s = self.sizes(x.shape)
        if mask is not None:
            scores = (s.batch, s.q_heads, s.queries, s.total)
            fits = 1 <= mask.rank <= 4 and mask.shape[-1] == s.total
            fits = fits and all(n in (1, m) for n, m in zip(mask.shape[::-1], scores[::-1], strict=False))
            require(fits, f"the mask must broadcast to {list(scores)}, with a number for each key; it is {mask}")
        return Spec(x.dtype, (s.batch, s.queries, s.q_heads * s.head))

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        s = self.sizes(inputs[0].shape)
        return 4 * s.batch * s.q_heads * s.queries * s.total * s.head


def _reordered(name: str, shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[int, ...]:
    """The dims of a tensor of matrices in the order of a perm."""
    require(len(shape) >= 2, f"{name} must have rank 2 or more; its shape is {list(shape)}")
    require(not perm or len(perm) == len(shape), f"the perm of {name} must have {len(shape)} entries, not {list(perm)}")
    return tuple(shape[axis] for axis in normalize_axes(perm, len(shape), "perm")) if perm else shape


@op("RotaryEmbedding")
class RotaryEmbedding(Op):
    """Rotates pairs of each head's first rotary_embedding_dim elements (0: all) by the position's angles. RotaryEmbedding-23.

    x [N, H, L, D], or [N, L, H * D] with num_heads given. cos and sin are [positions, dim/2] with position_ids [N, L], else
    [N, L, dim/2] or, the same for all sequences, [1, L, dim/2] (beyond ONNX; PyTorch's exporter writes it). Element i pairs with
    i + dim/2, or interleaved: 2i with 2i + 1. Source: Su et al., RoFormer, 2021.
    """

    interleaved: bool = False
    num_heads: int = 0
    rotary_embedding_dim: int = 0

    def check(self) -> None:
        require(0 <= self.num_heads < LIMIT, f"num_heads must not be negative; it is {self.num_heads}")
        require(0 <= self.rotary_embedding_dim < LIMIT, f"rotary_embedding_dim must not be negative; it is {self.rotary_embedding_dim}")

    def sizes(self, x: tuple[int, ...]) -> tuple[int, int, int, int, int]:
        """N, H, L, D and how many elements of D are rotated; raises RuleError where x's shape doesn't fit."""
        require(len(x) in (3, 4), f"x must have rank 3 or 4; it has the shape {list(x)}")
        if len(x) == 3:
            require(
                self.num_heads > 0 and x[2] % self.num_heads == 0,
                f"x must have a multiple of num_heads {self.num_heads} columns; it has {x[2]}",
            )
            x = (x[0], self.num_heads, x[1], x[2] // self.num_heads)
        rotated = self.rotary_embedding_dim or x[3]
        require(
            rotated % 2 == 0 and rotated <= x[3], f"the rotated part must be even, and no more than the head size {x[3]}; it is {rotated}"
        )
        return (*x, rotated)

    def infer(self, x: Spec, cos: Spec, sin: Spec, position_ids: Spec | None = None) -> Spec:
        require_given(sin=sin)
        require_floats(x=x, cos=cos, sin=sin)
        batch, _, length, _, rotated = self.sizes(x.shape)
        if position_ids is None:
            require_shape("cos", cos, (batch, length, rotated // 2), (1, length, rotated // 2))
        else:
            require(position_ids.dtype == _INT64, f"position_ids must be int64; they are {position_ids}")
            require_shape("position_ids", position_ids, (batch, length))
            require(cos.rank == 2 and cos.shape[1] == rotated // 2, f"cos must have the shape [positions, {rotated // 2}]; it is {cos}")
        require_shape("sin", sin, cos.shape)
        return Spec(x.dtype, x.shape)


@op("LinearAttention")
class LinearAttention(Op):
    """Attention by a recurrent state S [N, Hkv, D, Dv] in place of a softmax. LinearAttention-27.

    For each token S becomes exp(decay) S (gated rules), then k (β (v - Sᵀ k))ᵀ (delta rules) or k vᵀ is added; y = scale * Sᵀ q. Rules:
    linear, gated, delta, gated_delta. q [N, L, H * D], k [N, L, Hkv * D], v [N, L, Hkv * Dv], past_state S, decay [N, L, Hkv * D] or
    [N, L, Hkv], beta [N, L, Hkv] or [N, L, 1]. Outputs y [N, L, H * Dv] and S. scale 0 means 1 / sqrt(D); chunk_size is a hint.
    """

    kv_num_heads: int
    q_num_heads: int
    chunk_size: int = 64
    scale: float = 0.0
    update_rule: str = "gated_delta"

    def check(self) -> None:
        require(0 < self.kv_num_heads < LIMIT and 0 < self.q_num_heads < LIMIT, "q_num_heads and kv_num_heads must be positive")
        require(self.q_num_heads % self.kv_num_heads == 0, f"kv_num_heads {self.kv_num_heads} must divide q_num_heads {self.q_num_heads}")
        rules = ("linear", "gated", "delta", "gated_delta")
        require(self.update_rule in rules, f"update_rule must be one of {', '.join(rules)}; it is {self.update_rule!r}")

    def infer(
        self, q: Spec, k: Spec, v: Spec, past_state: Spec | None = None, decay: Spec | None = None, beta: Spec | None = None
    ) -> tuple[Spec, Spec]:
        require_floats(q=q, k=k, v=v, decay=decay, beta=beta)
        require(q.rank == k.rank == v.rank == 3, f"q, k and v must have rank 3; they are {q}, {k}, {v}")
        require(q.shape[:2] == k.shape[:2] == v.shape[:2], f"q, k and v must have the same batch and length; they are {q}, {k}, {v}")
        heads, kv_heads = self.q_num_heads, self.kv_num_heads
        fits = q.shape[2] % heads == 0 and k.shape[2] * heads == q.shape[2] * kv_heads and v.shape[2] % kv_heads == 0
        require(fits, f"the last dims must fit {heads} and {kv_heads} heads; q, k and v are {q}, {k}, {v}")
        head, v_head = q.shape[2] // heads, v.shape[2] // kv_heads
        require(head > 0, f"the head size must not be 0; q is {q}")
        state = (q.shape[0], kv_heads, head, v_head)
        if past_state is not None:
            require_floats(past_state=past_state)
        require_shape("past_state", past_state, state)
        require_shape("decay", decay, (*q.shape[:2], kv_heads * head), (*q.shape[:2], kv_heads))
        require_shape("beta", beta, (*q.shape[:2], kv_heads), (*q.shape[:2], 1))
        require(decay is not None or "gated" not in self.update_rule, f"the rule {self.update_rule} needs decay")
        require(beta is not None or "delta" not in self.update_rule, f"the rule {self.update_rule} needs beta")
        return Spec(q.dtype, (*q.shape[:2], heads * v_head)), Spec(q.dtype if past_state is None else past_state.dtype, state)
