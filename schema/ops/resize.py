"""Resize: its shape rule, and where each output position looks in the input (`taps`), which is all a kernel needs for any mode."""

import math

import numpy as np

from mnnx.schema.ops.axes import normalize_axes, require_vector
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT
from mnnx.schema.records import Row

MODES = ("nearest", "linear", "cubic")
NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
POLICIES = ("stretch", "not_larger", "not_smaller")
TRANSFORMATIONS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)


class Scaling(Row):
    """How one dim is resized: `size` positions over an input of `dim`, `scale` apart; a crop from `start` to `end` (fractions of it)."""

    dim: int
    size: int
    scale: float
    start: float = 0.0
    end: float = 1.0


class Taps(Row):
    """For each output position of a dim, the input positions (size, n) that it is made of, and their float64 weights, None for n = 1.

    `outside` marks positions that take the extrapolation value instead; None where there is none.
    """

    index: np.ndarray
    weights: np.ndarray | None
    outside: np.ndarray | None


@op("Resize")
class Resize(Op):
    """N-linear, N-cubic or nearest interpolation along `axes` (None: all), by 1-D float `scales` or to int64 `sizes`. ONNX Resize-19.

    `roi` (starts, then ends) matters in the mode tf_crop_and_resize alone. `tf_half_pixel_for_nn` is from Resize-11.
    """

    mode: str = "nearest"
    coordinate_transformation_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    axes: tuple[int, ...] | None = None

    def check(self) -> None:
        require(self.mode in MODES, f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        require(
            self.coordinate_transformation_mode in TRANSFORMATIONS,
            f"coordinate_transformation_mode must be one of {', '.join(TRANSFORMATIONS)}, not {self.coordinate_transformation_mode!r}",
        )
        require(self.nearest_mode in NEAREST_MODES, f"nearest_mode must be one of {', '.join(NEAREST_MODES)}, not {self.nearest_mode!r}")
        require(self.keep_aspect_ratio_policy in POLICIES, f"keep_aspect_ratio_policy must be one of {', '.join(POLICIES)}")

    def scalings(self, x: Spec, roi: Spec | None, scales: Spec | None, sizes: Spec | None) -> list[Scaling]:
        """How each dim is resized. Raises DataDependent where scales or sizes, or a roi that matters, aren't known."""
        axes = tuple(range(x.rank)) if self.axes is None else normalize_axes(self.axes, x.rank)
        scales, sizes, roi = (None if s is None or s.shape == (0,) else s for s in (scales, sizes, roi))
        require((scales is None) != (sizes is None) or not axes, "either scales or sizes must be given")
        result = [Scaling(dim, dim, 1.0) for dim in x.shape]
        if not axes:
            return result
        dims = [x.shape[axis] for axis in axes]
        if sizes is not None:
            require_vector(sizes, "sizes")
            require(sizes.size == len(axes), f"sizes must give {len(axes)} sizes, not {sizes}")
            pairs = self._from_sizes(dims, sizes.ints())
        else:
            require(scales.shape == (len(axes),), f"scales must give {len(axes)} factors, not {scales}")
            factors = scales.known().astype(np.float32)
            require(np.isfinite(factors).all() and (factors > 0).all(), f"scales must be positive, not {factors.tolist()}")
            # In float32, so that a scale computed as out/in gives `out` back.
            pairs = [(math.floor(np.float32(dim) * factor), float(factor)) for dim, factor in zip(dims, factors, strict=True)]
        crops = [(0.0, 1.0)] * len(axes)
        if self.coordinate_transformation_mode == "tf_crop_and_resize":
            require(roi is not None and roi.shape == (2 * len(axes),), f"roi must give {2 * len(axes)} numbers, not {roi}")
            corners = [float(v) for v in roi.known()]
            crops = list(zip(corners[: len(axes)], corners[len(axes) :], strict=True))
        for axis, dim, (size, scale), crop in zip(axes, dims, pairs, crops, strict=True):
            require(0 <= size < LIMIT, f"a dim can't be resized from {dim} to {size}")
            require(dim > 0 or size == 0, f"an empty dim can't be resized to {size}")
            result[axis] = Scaling(dim, size, scale, *crop)
        return result

    def _from_sizes(self, dims: list[int], sizes: tuple[int, ...]) -> list[tuple[int, float]]:
        ratios = [size / dim if dim else 1.0 for dim, size in zip(dims, sizes, strict=True)]
        if self.keep_aspect_ratio_policy == "stretch":
            return list(zip(sizes, ratios, strict=True))
        scale = min(ratios) if self.keep_aspect_ratio_policy == "not_larger" else max(ratios)
        require(0 <= scale < LIMIT, f"sizes must not be negative or huge: {list(sizes)}")
        return [(math.floor(scale * dim + 0.5), scale) for dim in dims]

    def infer(self, x: Spec, roi: Spec | None = None, scales: Spec | None = None, sizes: Spec | None = None) -> Spec:
        require(self.mode == "nearest" or x.dtype.kind not in "Ob", f"{self.mode} interpolation needs numbers, not {x}")
        return Spec(x.dtype, tuple(s.size for s in self.scalings(x, roi, scales, sizes)))

    def taps(self, scaling: Scaling) -> Taps | None:
        """Where a dim's output positions look; None for a dim that stays as it is."""
        if scaling.size == 0:
            return Taps(np.zeros((0, 1), np.int64), None, None)
        cropped = self.coordinate_transformation_mode == "tf_crop_and_resize" and (scaling.start, scaling.end) != (0.0, 1.0)
        if scaling.size == scaling.dim and math.isclose(scaling.scale, 1.0) and not cropped:
            return None
        x = self._coordinates(scaling)
        outside = None
        if self.coordinate_transformation_mode == "tf_crop_and_resize":
            outside = ~((x >= 0) & (x <= scaling.dim - 1))  # NaN included
            x = np.where(outside, 0.0, x)
            outside = outside if outside.any() else None
        x = x.clip(-scaling.dim - 4, 2 * scaling.dim + 4)
        last = max(scaling.dim - 1, 0)
        if self.mode == "nearest":
            return Taps(_ROUND[self.nearest_mode](x).astype(np.int64).clip(0, last)[:, None], None, outside)
        stretch = min(scaling.scale, 1.0) if self.antialias else 1.0
        first = math.floor(-(1 if self.mode == "linear" else 2) / stretch) + 1
        # The kernel's support lies around x, open at its left end: an integer x counts as the right one of its two neighbours.
        index = np.ceil(x).astype(np.int64)[:, None] - 1 + np.arange(first, 2 - first)
        distance = np.abs(index - x[:, None]) * stretch
        weights = (1 - distance).clip(0) if self.mode == "linear" else keys_cubic(distance, self.cubic_coeff_a)
        if self.antialias:
            weights /= weights.sum(1, keepdims=True)
        if self.exclude_outside:
            weights = np.where((index < 0) | (index > last), 0.0, weights)
            total = weights.sum(1, keepdims=True)
            weights /= np.where(total == 0, 1.0, total)
        return Taps(index.clip(0, last), weights, outside)

    def _coordinates(self, scaling: Scaling) -> np.ndarray:
        """The input coordinate of each output position, float64."""
        mode = self.coordinate_transformation_mode
        dim, size, scale, start, end = scaling
        position = np.arange(size, dtype=np.float64)
        length = scale * dim  # may be fractional
        if mode == "align_corners":
            return position * (dim - 1) / (length - 1) if length != 1 else np.zeros(size)
        if mode == "asymmetric":
            return position / scale
        if mode == "tf_half_pixel_for_nn":
            return (position + 0.5) / scale
        if mode == "tf_crop_and_resize":
            if size <= 1:
                return np.full(size, 0.5 * (start + end) * (dim - 1))
            return start * (dim - 1) + position * (end - start) * (dim - 1) / (length - 1 if length != 1 else 1)
        if mode == "pytorch_half_pixel" and size <= 1:
            return np.zeros(size)
        shift = dim / 2 * (1 - size / length) if mode == "half_pixel_symmetric" and length else 0.0
        return shift + (position + 0.5) / scale - 0.5


_ROUND = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def keys_cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys's cubic convolution kernel (IEEE ASSP 29, 1981, equation 4) at distances from 0."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
