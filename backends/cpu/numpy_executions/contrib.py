"""NumPy executions of the ops that ONNX Runtime adds to ONNX."""

from __future__ import annotations

import numpy as np

from mnnx.backends.cpu.numpy_executions import registry
from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.attention import RotaryEmbedding
from mnnx.schema.ops.base import require
from mnnx.schema.ops.contrib import (
    AttentionMask,
    CropAndResize,
    DynamicTimeWarping,
    GroupQueryAttention,
    Inverse,
    UnfoldTensor,
)


@numpy_execution(Inverse)
def inverse(op: Inverse, x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    singular = np.linalg.det(wide) == 0
    with np.errstate(all="ignore"):
        regular = np.where(singular[..., None, None], np.eye(x.shape[-1], dtype=wide.dtype), wide)
        return np.where(singular[..., None, None], np.nan, np.linalg.inv(regular)).astype(x.dtype)


@numpy_execution(AttentionMask)
def attention_mask(op: AttentionMask, mask: np.ndarray, sizes: np.ndarray, total: np.ndarray) -> np.ndarray:
    (batch, queries), keys = sizes.reshape(-1).tolist(), int(total.reshape(()))
    if mask.ndim == 1:
        ends, starts = mask[:batch], mask[batch:] if mask.size > batch else np.zeros(batch)
        places = np.arange(keys)
        seen = ((places >= starts[:, None]) & (places < ends[:, None]))[:, None, None]
    elif mask.ndim == 4:
        seen = mask[:, :, keys - queries : keys, :keys] > 0
    else:
        seen = (mask > 0).reshape(batch, 1, -1, keys)
    return np.where(seen, np.float32(0), np.float32(op.hidden))


@numpy_execution(GroupQueryAttention)
def group_query_attention(
    op: GroupQueryAttention,
    q,
    k,
    v,
    past_key,
    past_value,
    seqlens_k,
    total_length,
    cos=None,
    sin=None,
    position_ids=None,
    attention_bias=None,
    head_sink=None,
) -> tuple[np.ndarray, ...]:
    head = op.head_size(q.shape, k is None)
    batch, length = q.shape[:2]
    if k is None:
        widths = np.array([op.num_heads, op.kv_num_heads]) * head
        q, k, v = np.split(q, np.cumsum(widths), -1)
    q, k, v = (x.reshape(batch, length, -1, head).swapaxes(1, 2) for x in (q, k, v))
    past, total = 0 if past_key is None else past_key.shape[2], int(total_length.reshape(()))
    ends = seqlens_k.reshape(-1).astype(np.int64) + 1
    starts = ends - length if length != total else np.zeros_like(ends)
    room = max(past, total)
    legal = ((starts >= 0) & (starts + length <= room) & (starts <= past) & (ends <= total) & (ends > 0)).all()
    require(legal, f"seqlens_k {seqlens_k.reshape(-1)[:8]} doesn't fit {length} new keys, a cache of {past} and a total length of {total}")
    places = starts[:, None] + np.arange(length)  # of the new tokens in their sequences
    if op.do_rotary:
        rotate = RotaryEmbedding(interleaved=op.rotary_interleaved, rotary_embedding_dim=2 * cos.shape[1])
        at = (places if position_ids is None else position_ids).astype(np.int64)
        q, k = (registry.run(rotate, [np.ascontiguousarray(x), cos, sin, at])[0] for x in (q, k))
    present = []
    for new, old in ((k, past_key), (v, past_value)):
        cache = np.zeros((batch, op.kv_num_heads, room, head), q.dtype)
        for sequence, start in enumerate(starts if old is not None else ()):
            cache[sequence, :, :start] = old[sequence, :, :start]
        cache[np.arange(batch)[:, None, None], np.arange(op.kv_num_heads)[:, None], places[:, None]] = new
        present.append(cache)
    y, scores = _cached_attention(op, q, *(cache[:, :, :total] for cache in present), places, ends, attention_bias, head_sink)
    results = y.swapaxes(1, 2).reshape(batch, length, -1).astype(q.dtype), *present
    return results if scores is None else (*results, scores.astype(q.dtype))


def _cached_attention(op: GroupQueryAttention, q, k, v, places, ends, bias, sink) -> tuple[np.ndarray, np.ndarray | None]:
    """y [N, H, L, D] of q [N, H, L, D] at `places` [N, L] over keys and values [N, Hkv, T, D], of which `ends` [N] are there; qk_output."""
    batch, heads, length, head = q.shape
    grouped = widened(q).reshape(batch, op.kv_num_heads, -1, length, head)
    scale = np.float32(1 / np.sqrt(head) if op.scale is None else op.scale)
    scores = (grouped * scale) @ widened(k)[:, :, None].swapaxes(-1, -2)
    scores = scores.reshape(batch, heads, length, -1)
    if op.softcap > 0:
        scores = np.float32(op.softcap) * np.tanh(scores / np.float32(op.softcap))
    if bias is not None:
        scores = scores + widened(bias)
    key = np.arange(k.shape[2])
    seen = np.broadcast_to(key < ends[:, None, None], (batch, length, len(key)))
    if op.causal:
        seen = seen & (key <= places[..., None])
    if op.local_window_size > 0:
        seen = seen & (key > places[..., None] - op.local_window_size)
    shown = np.where(seen[:, None], scores, 0) if op.qk_output == 1 else None
    scores = np.where(seen[:, None], scores, -np.inf)
    if op.smooth_softmax or sink is not None:
        sink = np.zeros(heads, scores.dtype) if sink is None else widened(sink)
        scores = np.concatenate([scores, np.broadcast_to(sink[:, None, None], (*scores.shape[:3], 1))], -1)
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    weights /= np.maximum(weights.sum(-1, keepdims=True), np.finfo(weights.dtype).tiny)
    weights = weights[..., : len(key)]
    shown = weights if op.qk_output == 2 else shown
    return (weights.reshape(batch, op.kv_num_heads, -1, length, len(key)) @ widened(v)[:, :, None]).reshape(q.shape), shown


@numpy_execution(UnfoldTensor)
def unfold_tensor(op: UnfoldTensor, x: np.ndarray) -> np.ndarray:
    axis = op.dim % x.ndim
    return np.lib.stride_tricks.sliding_window_view(x, op.size, axis)[(slice(None),) * axis + (slice(None, None, op.step),)]


@numpy_execution(DynamicTimeWarping)
def dynamic_time_warping(op: DynamicTimeWarping, costs: np.ndarray) -> np.ndarray:
    costs = costs.reshape(costs.shape[-2:])
    rows, columns = costs.shape
    least = np.full((rows + 1, columns + 1), np.inf, np.float32)
    least[0, 0] = 0
    came = np.zeros((rows + 1, columns + 1), np.int8)  # from both, the row, or the column before
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            before = [least[i - 1, j - 1], least[i - 1, j], least[i, j - 1]]
            smallest = min(before)
            came[i, j] = before.index(smallest) if before.count(smallest) == 1 else 2
            least[i, j] = costs[i - 1, j - 1] + before[came[i, j]]
    path = [(rows, columns)]
    while path[-1] != (1, 1):
        i, j = path[-1]
        way = 2 if i == 1 else 1 if j == 1 else came[i, j]
        path.append((i - (way != 2), j - (way != 1)))
    return np.array(path[::-1], np.int32).T - np.int32(1)


@numpy_execution(CropAndResize)
def crop_and_resize(op: CropAndResize, x: np.ndarray, boxes: np.ndarray, batch_indices: np.ndarray, size: np.ndarray) -> np.ndarray:
    legal = ((batch_indices >= 0) & (batch_indices < len(x))).all()
    require(legal, f"batch_indices must be in 0 … {len(x) - 1}; found {batch_indices.reshape(-1)[:8]}")
    images, boxes = widened(x)[batch_indices], widened(boxes)
    inside = []
    for axis, count in zip((2, 3), size.tolist(), strict=True):
        last, first, end = x.shape[axis] - 1, boxes[:, axis - 2, None], boxes[:, axis, None]
        steps = np.arange(count, dtype=boxes.dtype)
        places = first * last + steps * ((end - first) * last / (count - 1)) if count > 1 else (first + end) / 2 * last
        inside.append((places >= 0) & (places <= last))
        images = _sampled(images, np.clip(np.nan_to_num(places), 0, last), axis, op.mode)
    seen = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return np.where(seen, images, op.extrapolation_value).astype(x.dtype)


def _sampled(images: np.ndarray, places: np.ndarray, axis: int, mode: str) -> np.ndarray:
    """Each image [C, H, W] of a batch at its own `places` [R, n] along an axis."""
    shape = [len(places), 1, 1, 1]
    shape[axis] = places.shape[1]

    def at(index: np.ndarray) -> np.ndarray:
        return np.take_along_axis(images, index.astype(np.intp).reshape(shape), axis)

    if mode == "nearest":
        return at(np.floor(places + 0.5))
    share = (places - np.floor(places)).reshape(shape)
    return at(np.floor(places)) * (1 - share) + at(np.ceil(places)) * share
