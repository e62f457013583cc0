"""Rows of the ops in schema/ops/resize.py, image.py and detection.py."""

import numpy as np

from mnnx.schema.ops import detection, image
from mnnx.schema.ops.resize import NEAREST_MODES, TRANSFORMATIONS, Resize
from tests.cases import case, f16, f32, f64, i64, integers


def scales(*values):
    return np.array(values, np.float32)


for mode in ("nearest", "linear", "cubic"):
    for transformation in TRANSFORMATIONS:
        if transformation not in ("tf_crop_and_resize", "tf_half_pixel_for_nn"):
            op = Resize(mode=mode, coordinate_transformation_mode=transformation)
            case(op, f32(1, 2, 5, 7), None, None, i64(1, 2, 8, 10), rtol=1e-4, atol=1e-5)
            case(op, f32(1, 2, 5, 7), None, None, i64(1, 2, 3, 4), rtol=1e-4, atol=1e-5)
            case(op, f32(1, 1, 4, 4), None, scales(1, 1, 2, 3), rtol=1e-4, atol=1e-5)
    case(Resize(mode=mode, axes=(2, 3)), f32(2, 3, 4, 5), None, scales(0.5, 1.5))
    case(Resize(mode=mode, axes=(1,)), f16(3, 8), None, None, i64(5))
    case(Resize(mode=mode), integers("uint8", 1, 1, 5, 5, high=255), None, scales(1, 1, 2, 2))
    case(Resize(mode=mode), f32(1, 2, 5, 7), None, None, i64(1, 2, 5, 7))
    crop = np.array([0, 0, 0.41, 0.32, 1, 1, 0.8, 1.2], np.float32)
    case(
        Resize(mode=mode, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=3.5),
        f32(1, 1, 6, 6),
        crop,
        None,
        i64(1, 1, 4, 5),
    )
for mode in NEAREST_MODES:
    case(Resize(nearest_mode=mode), f32(1, 2, 5, 7), None, None, i64(1, 2, 8, 3))
    case(Resize(nearest_mode=mode, coordinate_transformation_mode="asymmetric"), f32(1, 2, 4, 4), None, scales(1, 1, 2, 2))
for policy in ("not_larger", "not_smaller"):
    case(Resize(keep_aspect_ratio_policy=policy, axes=(2, 3), mode="linear"), f32(1, 1, 4, 6), None, None, i64(8, 9))
for mode in ("linear", "cubic"):
    case(Resize(mode=mode, antialias=True), f32(1, 1, 9, 11), None, scales(1, 1, 0.4, 0.6), rtol=1e-4, atol=1e-5)
    case(Resize(mode=mode, antialias=True), f32(1, 1, 9, 11), None, None, i64(1, 1, 12, 4), rtol=1e-4, atol=1e-5)
    case(Resize(mode=mode, exclude_outside=True), f32(1, 1, 4, 4), None, scales(1, 1, 0.8, 2))
case(Resize(mode="cubic", cubic_coeff_a=-0.5), f32(1, 1, 4, 4), None, scales(1, 1, 2, 2))
case(Resize(mode="linear"), f32(2, 3), None, None, i64(0, 5))
case(Resize(mode="linear"), f64(1, 1, 3, 4, 5), None, None, i64(1, 1, 6, 3, 4))
case(
    Resize(coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor"),
    f32(4, 6),
    None,
    None,
    i64(6, 3),
    reference=lambda x, *_: x[[0, 1, 1, 2, 3, 3]][:, [1, 3, 5]],
)

for mode in ("linear", "nearest", "cubic"):
    for padding in ("zeros", "border", "reflection"):
        for align in (True, False):
            op = image.GridSample(mode=mode, padding_mode=padding, align_corners=align)
            case(op, f32(2, 2, 4, 5), f32(2, 3, 4, 2, low=-1.4, high=1.4), rtol=1e-4, atol=1e-5)
case(image.GridSample(), f32(1, 2, 3, 4, 5), f32(1, 2, 2, 3, 3, low=-1.2, high=1.2), rtol=1e-4, atol=1e-5)
case(image.GridSample(), f64(1, 1, 7), f64(1, 4, 1), reference=lambda x, grid: _sampled_line(x, grid), rtol=1e-5, atol=1e-6)


def _sampled_line(x, grid):
    line = np.pad(x[0, 0], 40)  # the nearest zeros of the padding
    position = ((grid[0, :, 0] + 1) * x.shape[2] - 1) / 2 + 40
    return np.interp(position, np.arange(len(line)), line)[None, None]


for align in (False, True):
    case(image.AffineGrid(align_corners=align), f32(2, 2, 3), i64(2, 3, 4, 5))
    case(image.AffineGrid(align_corners=align), f32(1, 3, 4), i64(1, 3, 2, 3, 4), rtol=1e-4)

BOXES = np.array([[0, 0, 9, 9], [2.5, 1, 7.5, 12], [-3, 4, 5, 30]], np.float32)
for mode in ("avg", "max"):
    for transformation in ("half_pixel", "output_half_pixel"):
        for ratio in (0, 2):
            op = detection.RoiAlign(
                mode=mode,
                output_height=3,
                output_width=2,
                sampling_ratio=ratio,
                spatial_scale=0.8,
                coordinate_transformation_mode=transformation,
            )
            case(op, f32(2, 3, 12, 10), BOXES, i64(1, 0, 1), rtol=1e-4, atol=1e-5)


def _max_roi_pool(x, rois):
    result = np.zeros((len(rois), x.shape[1], 2, 3), x.dtype)
    for n, (batch, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (int(np.floor(c * 0.5 + 0.5)) for c in corners)
        height, width = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i, j in np.ndindex(2, 3):
            rows = slice(min(y1 + int(i * height / 2), x.shape[2]), min(y1 + int(np.ceil((i + 1) * height / 2)), x.shape[2]))
            columns = slice(min(x1 + int(j * width / 3), x.shape[3]), min(x1 + int(np.ceil((j + 1) * width / 3)), x.shape[3]))
            result[n, :, i, j] = x[int(batch), :, rows, columns].max((1, 2), initial=-np.inf)
    return np.where(np.isinf(result), 0, result)


case(
    detection.MaxRoiPool(pooled_shape=(2, 3), spatial_scale=0.5),
    f32(2, 3, 8, 8),
    np.array([[0, 0, 0, 9, 9], [1, 4, 2, 15, 6], [1, 3, 3, 3, 3], [0, 14, 14, 30, 30]], np.float32),
    reference=_max_roi_pool,
)

CORNERS = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [1, 1.1, 0, 0.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.75, 0.95, 0.5, 0.3], [0.1, 0.2, 0.8, 0.95, 0.96, 0.05]]], np.float32)
for center in (False, True):
    for most in (0, 2, 10):
        op = detection.NonMaxSuppression(center_point_box=center)
        case(op, CORNERS[None], SCORES, i64(most), np.array([0.5], np.float32), np.array([0.2], np.float32))
