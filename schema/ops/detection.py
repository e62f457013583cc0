"""Ops of object detectors: pooling over regions of interest, and choosing among boxes."""

from mnnx.schema.ops.axes import require_integers
from mnnx.schema.ops.base import DataDependent, Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT, require_floats


@op("RoiAlign")
class RoiAlign(Op):
    """Mean or max of bilinear samples in output_height × output_width bins of each region of interest. ONNX RoiAlign-22.

    X (N, C, H, W), rois (R, 4) as x1, y1, x2, y2, batch_indices (R,): (R, C, output_height, output_width). `sampling_ratio` samples
    per bin and direction; 0: as many as the bin has pixels. He et al., Mask R-CNN, 2017.
    """

    mode: str = "avg"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    coordinate_transformation_mode: str = "half_pixel"

    def check(self) -> None:
        require(self.mode in ("avg", "max"), f"mode must be avg or max, not {self.mode!r}")
        require(
            self.coordinate_transformation_mode in ("half_pixel", "output_half_pixel"),
            f"coordinate_transformation_mode must be half_pixel or output_half_pixel, not {self.coordinate_transformation_mode!r}",
        )
        require(0 < self.output_height < LIMIT and 0 < self.output_width < LIMIT, "output_height and output_width must be positive")
        require(0 <= self.sampling_ratio < LIMIT, f"sampling_ratio must not be negative: {self.sampling_ratio}")

    def infer(self, x: Spec, rois: Spec, batch_indices: Spec) -> Spec:
        require(x.rank == 4, f"the input must be (N, C, H, W), not {x}")
        require_floats(x=x, rois=rois)
        require_integers(batch_indices, "batch_indices")
        require(rois.rank == 2 and rois.shape[1] == 4, f"rois must be (R, 4), not {rois}")
        require(batch_indices.shape == rois.shape[:1], f"batch_indices must be ({rois.shape[0]},), not {batch_indices}")
        require(x.size > 0 or rois.shape[0] == 0, f"regions of an empty image can't be pooled: {x}")
        return Spec(x.dtype, (rois.shape[0], x.shape[1], self.output_height, self.output_width))


@op("MaxRoiPool")
class MaxRoiPool(Op):
    """The maxima of pooled_shape[0] × pooled_shape[1] bins of each region of interest, its corners rounded to pixels. ONNX MaxRoiPool-22.

    X (N, C, H, W), rois (R, 5) as batch index, x1, y1, x2, y2: (R, C, *pooled_shape). Girshick, Fast R-CNN, 2015.
    """

    pooled_shape: tuple[int, ...]
    spatial_scale: float = 1.0

    def check(self) -> None:
        sizes = self.pooled_shape
        require(len(sizes) == 2 and all(0 < s < LIMIT for s in sizes), f"pooled_shape must be two positive sizes, not {sizes}")

    def infer(self, x: Spec, rois: Spec) -> Spec:
        require(x.rank == 4, f"the input must be (N, C, H, W), not {x}")
        require_floats(x=x, rois=rois)
        require(rois.rank == 2 and rois.shape[1] == 5, f"rois must be (R, 5), not {rois}")
        require(x.size > 0 or rois.shape[0] == 0, f"regions of an empty image can't be pooled: {x}")
        return Spec(x.dtype, (rois.shape[0], x.shape[1], *self.pooled_shape))


@op("NonMaxSuppression")
class NonMaxSuppression(Op):
    """The boxes that remain when each takes out those of lower score that overlap it by more than iou_threshold. ONNX NonMaxSuppression-11.

    boxes (N, B, 4) as corners y1, x1, y2, x2 (center_point_box: x, y of the centre, width, height), scores (N, classes, B); int64
    (how many, 3): batch, class, box; per class at most `max_output_boxes_per_class` (else none), scores above `score_threshold`.
    """

    center_point_box: bool = False

    def infer(self, boxes: Spec, scores: Spec, limit: Spec | None = None, iou: Spec | None = None, score: Spec | None = None) -> Spec:
        require_floats(boxes=boxes, scores=scores)
        require(boxes.rank == 3 and boxes.shape[2] == 4, f"boxes must be (N, B, 4), not {boxes}")
        fits = scores.rank == 3 and (scores.shape[0], scores.shape[2]) == boxes.shape[:2]
        require(fits, f"scores must be ({boxes.shape[0]}, classes, {boxes.shape[1]}), not {scores}")
        for name, spec in (("max_output_boxes_per_class", limit), ("iou_threshold", iou), ("score_threshold", score)):
            require(spec is None or spec.size <= 1, f"{name} must be a scalar, not {spec}")
        raise DataDependent
