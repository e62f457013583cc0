"""NumPy executions of the ops in schema/ops/detection.py."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.indexing import in_range
from mnnx.backends.cpu.numpy_executions.precision import float_type
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import detection as ops
from mnnx.schema.ops.base import require

_MOST_SAMPLES = 1 << 16  # per region and direction


@numpy_execution(ops.RoiAlign)
def roi_align(op, x, rois, batch_indices):
    dtype = float_type(x)
    images, (height, width) = x.astype(dtype), x.shape[2:]
    shift = 0.5 if op.coordinate_transformation_mode == "half_pixel" else 0.0
    corners = rois.astype(dtype) * dtype.type(op.spatial_scale) - dtype.type(shift)
    require(np.isfinite(corners).all(), "rois must be finite")
    extents = corners[:, 2:] - corners[:, :2]
    if op.coordinate_transformation_mode == "output_half_pixel":
        extents = np.maximum(extents, 1)
    result = np.zeros((len(rois), x.shape[1], op.output_height, op.output_width), dtype)
    for n, image in enumerate(in_range(batch_indices, len(x), "batch_indices")):
        rows = _samples(op, corners[n, 1], extents[n, 1], op.output_height, height)
        columns = _samples(op, corners[n, 0], extents[n, 0], op.output_width, width)
        if rows[0].size and columns[0].size:
            pool = _mean_of_samples if op.mode == "avg" else _max_of_samples
            result[n] = pool(images[image], rows, columns, result.shape[2:])
    return result.astype(x.dtype)


def _samples(op, start, extent, bins, size):
    """Bilinear samples along one direction, bin by bin: (lower, upper pixel, weight of each) of shape (bins · samples,)."""
    bin_size = extent / bins
    count = op.sampling_ratio or int(np.ceil(min(bin_size, _MOST_SAMPLES + 1)))
    require(count * bins <= _MOST_SAMPLES, f"a region of {extent:g} pixels would need {count} samples in each of {bins} bins")
    count = max(count, 0)
    position = start + np.arange(bins)[:, None] * bin_size + (np.arange(count) + 0.5) * (bin_size / max(count, 1))
    position = position.reshape(-1)
    inside = (position >= -1) & (position <= size)
    position = position.clip(0, size - 1)
    low = position.astype(np.int64)
    upper = position - low
    return low, np.minimum(low + 1, size - 1), (1 - upper) * inside, upper * inside


def _mean_of_samples(image, rows, columns, shape):
    """The mean is separable: a matrix of row weights, the image, a matrix of column weights."""
    along_rows, along_columns = (
        _bin_weights(samples, bins, size, image.dtype) for samples, bins, size in zip((rows, columns), shape, image.shape[1:], strict=True)
    )
    return along_rows @ image @ along_columns.T


def _bin_weights(samples, bins, size, dtype):
    require(bins * size < 1 << 28, f"{bins} bins over {size} pixels are too many")
    low, high, lower, upper = samples
    count = len(low) // bins
    weights = np.zeros((bins, size), dtype)
    places = np.repeat(np.arange(bins), count)
    np.add.at(weights, (places, low), lower / count)
    np.add.at(weights, (places, high), upper / count)
    return weights


def _max_of_samples(image, rows, columns, shape):
    """The maximum over the weighted corners of all samples, as ONNX's reference has it (not over the interpolated values)."""
    require(len(rows[0]) * len(columns[0]) * len(image) < 1 << 28, "a region of interest would need too many samples")
    best = None
    for row, row_weight in ((rows[0], rows[2]), (rows[1], rows[3])):
        for column, column_weight in ((columns[0], columns[2]), (columns[1], columns[3])):
            corner = image[:, row[:, None], column] * (row_weight[:, None] * column_weight).astype(image.dtype)
            best = corner if best is None else np.maximum(best, corner)
    return best.reshape(len(image), shape[0], len(rows[0]) // shape[0], shape[1], -1).max((2, 4))


@numpy_execution(ops.MaxRoiPool)
def max_roi_pool(op, x, rois):
    dtype = float_type(x, rois)
    require(np.isfinite(rois).all(), "rois must be finite")
    images = in_range(rois[:, 0].astype(np.int64), len(x), "batch indices")
    scaled = rois[:, 1:].astype(dtype) * dtype.type(op.spatial_scale)
    corners = np.where(scaled < 0, np.ceil(scaled - 0.5), np.floor(scaled + 0.5)).clip(-(2.0**40), 2.0**40).astype(np.int64)
    result = np.zeros((len(rois), x.shape[1], *op.pooled_shape), x.dtype)
    for n, (x1, y1, x2, y2) in enumerate(corners):
        rows = _bins(y1, max(y2 - y1 + 1, 1), op.pooled_shape[0], x.shape[2])
        columns = _bins(x1, max(x2 - x1 + 1, 1), op.pooled_shape[1], x.shape[3])
        bands = [(i, x[images[n], :, low:high].max(1)) for i, (low, high) in enumerate(rows) if high > low]
        for j, (low, high) in enumerate(columns):
            if high > low:
                for i, band in bands:
                    result[n, :, i, j] = band[:, low:high].max(1)
    return result


def _bins(start, extent, bins, size):
    """[first, end) of each bin, clipped to the image."""
    edges = np.arange(bins + 1) * (extent / bins)
    low = np.floor(edges[:-1]).astype(np.int64) + start
    high = np.ceil(edges[1:]).astype(np.int64) + start
    return list(zip(low.clip(0, size).tolist(), high.clip(0, size).tolist(), strict=True))


@numpy_execution(ops.NonMaxSuppression)
def non_max_suppression(op, boxes, scores, limit=None, iou=None, score=None):
    most = int(limit.item()) if limit is not None and limit.size else 0
    overlap = iou.item() if iou is not None and iou.size else 0.0
    least = score.item() if score is not None and score.size else None
    chosen = [np.zeros((0, 3), np.int64)]
    for batch in range(len(boxes) if most > 0 else 0):
        corners = _corners(boxes[batch].astype(float_type(boxes)), op.center_point_box)
        for label in range(scores.shape[1]):
            kept = _suppress(corners, scores[batch, label], most, overlap, least)
            chosen.append(np.stack([np.full_like(kept, batch), np.full_like(kept, label), kept], 1))
    return np.concatenate(chosen)


def _corners(boxes, center_point_box):
    """Boxes (B, 4) as lower and upper corners, each (B, 2)."""
    if center_point_box:
        return boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    return np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])


def _suppress(corners, scores, most, overlap, least):
    """The boxes kept of one class, best first; of equal scores the first box is the better one."""
    candidates = np.argsort(-scores.astype(np.float64), kind="stable")
    if least is not None:
        candidates = candidates[scores[candidates] > least]
    low, high = corners
    area = (high - low).prod(1)
    kept = []
    while candidates.size and len(kept) < most:
        best, candidates = candidates[0], candidates[1:]
        kept.append(best)
        shared = (np.minimum(high[best], high[candidates]) - np.maximum(low[best], low[candidates])).clip(0).prod(1)
        union = area[best] + area[candidates] - shared
        overlaps = (shared > 0) & (area[best] > 0) & (area[candidates] > 0) & (shared > overlap * union)
        candidates = candidates[~overlaps]
    return np.array(kept, np.int64)
