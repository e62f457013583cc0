"""Ops that ONNX Runtime adds to ONNX, against their definitions written out."""

import numpy as np

from mnnx.schema.ops.contrib import AttentionMask, CropAndResize, DynamicTimeWarping, GroupQueryAttention, Inverse, UnfoldTensor
from tests.cases import case, f32, f64, i64, integers

case(Inverse(), f32(3, 4, 4) + 4 * np.eye(4, dtype=np.float32), reference=lambda x: np.linalg.inv(x))
case(Inverse(), f64(2, 2), reference=lambda x: np.linalg.inv(x))
case(Inverse(), np.ones((2, 2), np.float32), reference=lambda x: np.full((2, 2), np.nan, np.float32))
case(Inverse(), f32(0, 3, 3), reference=lambda x: x)

total, hide = np.array(5, np.int64), AttentionMask(hidden=-9.0)


def hiding(seen):
    return np.where(seen, np.float32(0), np.float32(-9))


case(hide, integers("int32", 2, high=6), i64(2, 3), total, reference=lambda m, *_: hiding((np.arange(5) < m[:, None])[:, None, None]))
case(
    hide,
    np.array([5, 3, 1, 0], np.int32),
    i64(2, 3),
    total,
    reference=lambda *_: np.array([[-9, 0, 0, 0, 0], [0, 0, 0, -9, -9]], np.float32)[:, None, None],
)
case(hide, integers("int32", 2, 5, high=2), i64(2, 3), total, reference=lambda m, *_: hiding(m[:, None, None] > 0))
case(hide, integers("int64", 2, 3, 5, high=2), i64(2, 3), total, reference=lambda m, *_: hiding(m[:, None] > 0))
case(hide, f32(2, 1, 8, 8), i64(2, 3), total, reference=lambda m, *_: hiding(m[:, :, 2:5, :5] > 0))


def attended(op, q, keys, values, places, end):
    """One query q [D] of a sequence at `place`, over the keys and values [T, D] that it sees."""
    first = 0 if op.local_window_size < 0 else max(0, places - op.local_window_size + 1)
    last = min(end, places + 1) if op.causal else end
    scores = keys[first:last] @ q / np.sqrt(len(q))
    weights = np.exp(scores - scores.max())
    return weights / (weights.sum() + op.smooth_softmax * np.exp(-scores.max())) @ values[first:last]


def cached(op, lengths):
    """The reference for sequences that have `lengths` keys before this call."""

    def reference(q, k, v, past_key, past_value, seqlens, total):
        batch, length, width = q.shape
        head = width // op.num_heads
        room = max(past_key.shape[2], int(total))
        present = [np.zeros((batch, op.kv_num_heads, room, head), np.float32) for _ in range(2)]
        y = np.zeros_like(q)
        for n, start in enumerate(lengths):
            for cache, old, new in zip(present, (past_key, past_value), (k, v), strict=True):
                cache[n, :, :start] = old[n, :, :start]
                cache[n, :, start : start + length] = new[n].reshape(length, op.kv_num_heads, head).swapaxes(0, 1)
            for i in range(length):
                for h in range(op.num_heads):
                    shared = h * op.kv_num_heads // op.num_heads
                    part = slice(h * head, (h + 1) * head)
                    y[n, i, part] = attended(op, q[n, i, part], *(c[n, shared] for c in present), start + i, int(seqlens[n]) + 1)
        return y, *present

    return reference


def group_query(lengths, queries, past, **attributes):
    op = GroupQueryAttention(num_heads=4, kv_num_heads=2, **attributes)
    batch, ends = len(lengths), np.array(lengths, np.int32) + queries
    inputs = (f32(batch, queries, 32), f32(batch, queries, 16), f32(batch, queries, 16), f32(batch, 2, past, 8), f32(batch, 2, past, 8))
    case(op, *inputs, ends - 1, np.array(ends.max(), np.int32), reference=cached(op, lengths), outputs=3)


group_query((4, 4), 1, 4)
group_query((6, 3), 1, 6)
group_query((5,), 3, 5)
group_query((5,), 3, 16, local_window_size=4)
group_query((4, 2), 1, 9, smooth_softmax=True)
group_query((2,), 3, 2, causal=False)


def slices(op):
    """What op takes of x, slice by slice."""

    def reference(x):
        axis = op.dim % x.ndim
        starts = range(0, x.shape[axis] - op.size + 1, op.step)
        return np.stack([np.moveaxis(np.take(x, range(start, start + op.size), axis), axis, -1) for start in starts], axis)

    return reference


for op in (UnfoldTensor(size=2), UnfoldTensor(dim=1, size=3, step=2), UnfoldTensor(dim=-3, size=2)):
    case(op, f32(2, 5, 4), reference=slices(op))
case(UnfoldTensor(size=1), integers("int64", 3), reference=lambda x: x[:, None])


def cheapest_path(costs):
    """By trying all of them."""
    rows, columns = costs.shape[-2:]

    def paths(i, j):
        if (i, j) == (0, 0):
            yield 0.0, [(0, 0)]
            return
        for a, b in ((i - 1, j - 1), (i - 1, j), (i, j - 1)):
            if a >= 0 and b >= 0:
                yield from ((cost + costs.reshape(rows, columns)[i, j], [*path, (i, j)]) for cost, path in paths(a, b))

    return np.array(min(paths(rows - 1, columns - 1))[1], np.int32).T


for shape in ((4, 5), (1, 5, 3), (1, 4), (3, 1)):
    case(DynamicTimeWarping(), f32(*shape, low=0), reference=cheapest_path)


def cropped(op):
    def value(image, y, x):
        if not (0 <= y <= image.shape[0] - 1 and 0 <= x <= image.shape[1] - 1):
            return op.extrapolation_value
        if op.mode == "nearest":
            return image[int(y + 0.5), int(x + 0.5)]
        top, left = int(y), int(x)
        bottom, right = min(top + 1, image.shape[0] - 1), min(left + 1, image.shape[1] - 1)
        upper = image[top, left] * (1 - x + left) + image[top, right] * (x - left)
        lower = image[bottom, left] * (1 - x + left) + image[bottom, right] * (x - left)
        return upper * (1 - y + top) + lower * (y - top)

    def places(first, end, size, count):
        return [(first + (end - first) * (step / (count - 1) if count > 1 else 0.5)) * (size - 1) for step in range(count)]

    def reference(images, boxes, indices, size):
        result = np.zeros((len(boxes), images.shape[1], *size), np.float32)
        for r, (y1, x1, y2, x2) in enumerate(boxes.astype(float)):
            for i, y in enumerate(places(y1, y2, images.shape[2], size[0])):
                for j, x in enumerate(places(x1, x2, images.shape[3], size[1])):
                    result[r, :, i, j] = [value(channel, y, x) for channel in images[indices[r]].astype(float)]
        return result

    return reference


for op in (CropAndResize(), CropAndResize(mode="nearest", extrapolation_value=2.5)):
    boxes = np.array([[0, 0, 1, 1], [0.13, 0.2, 0.81, 0.71], [-0.2, 0.31, 0.7, 1.2], [0.8, 0.9, 0.1, 0.2]], np.float32)
    case(op, f32(2, 3, 5, 4), boxes, np.array([0, 1, 1, 0], np.int32), np.array([3, 4], np.int32), reference=cropped(op))
    case(op, f32(1, 2, 1, 6), boxes[:2], np.array([0, 0], np.int32), np.array([1, 2], np.int32), reference=cropped(op))
