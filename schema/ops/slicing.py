"""Ops that take a part of a tensor, or put it into a larger one."""

import numpy as np

from mnnx.schema.ops.axes import normalize_axes, normalize_axis, require_integers, require_scalar, require_vector
from mnnx.schema.ops.base import Op, Spec, op, require


@op("Slice")
class Slice(Op):
    """data[starts:ends:steps] along `axes`; 1-D int32 or int64 (or scalars), all of one length. ONNX Slice-13.

    Negative starts and ends count from the back, then they are clamped. Without `axes`, the first dims are meant; without `steps`, 1.
    """

    def ranges(
        self, shape: tuple[int, ...], starts: Spec, ends: Spec, axes: Spec | None = None, steps: Spec | None = None
    ) -> list[tuple[int, int, int]]:
        """(first index, step, number of indices) for each dim of a tensor of this shape."""
        for name, spec in (("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps)):
            if spec is not None:
                require_integers(spec, name)
                require(spec.rank <= 1 and spec.size == starts.size, f"{name} must be as long as starts {starts}, not {spec}")
        first, last = starts.ints(), ends.ints()
        chosen = tuple(range(len(first))) if axes is None else axes.ints()
        chosen = normalize_axes(chosen, len(shape))
        strides = (1,) * len(first) if steps is None else steps.ints()
        ranges = [(0, 1, dim) for dim in shape]
        for axis, start, end, step in zip(chosen, first, last, strides, strict=True):
            ranges[axis] = _range(shape[axis], start, end, step)
        return ranges

    def infer(self, data: Spec, starts: Spec, ends: Spec, axes: Spec | None = None, steps: Spec | None = None) -> Spec:
        return Spec(data.dtype, tuple(count for _, _, count in self.ranges(data.shape, starts, ends, axes, steps)))


def _range(dim: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    require(step != 0, "steps must not be 0")
    low, high = (0, dim) if step > 0 else (-1, dim - 1)
    start = min(max(start + dim if start < 0 else start, 0), high)
    end = min(max(end + dim if end < 0 else end, low), high)
    count = max(0, -(-(end - start) // step)) if dim else 0
    # A step past the end of the dim is never taken; a small one keeps offsets within 64 bits.
    return (start, step if count > 1 else 1, count) if count else (0, 1, 0)


PAD_MODES = ("constant", "reflect", "edge", "wrap")


@op("Pad")
class Pad(Op):
    """`data` with elements added (or, where negative, removed) before and after along `axes` (without them: all). ONNX Pad-25.

    `pads` is 1-D: all amounts before, then all amounts after. Modes: constant (`constant_value`, a scalar, else 0), reflect (about the
    border elements), edge (the border element), wrap (from the other end).
    """

    mode: str = "constant"

    def check(self) -> None:
        require(self.mode in PAD_MODES, f"mode must be one of {', '.join(PAD_MODES)}, not {self.mode!r}")

    def amounts(self, shape: tuple[int, ...], pads: Spec, axes: Spec | None) -> list[tuple[int, int]]:
        """(before, after) for each dim of a tensor of this shape."""
        require_vector(pads, "pads")
        chosen = tuple(range(len(shape))) if axes is None else normalize_axes(axes.ints(), len(shape))
        require(pads.size == 2 * len(chosen), f"pads must give two amounts for each of {len(chosen)} axes, not {pads}")
        values = pads.ints()
        amounts = [(0, 0)] * len(shape)
        for i, axis in enumerate(chosen):
            amounts[axis] = values[i], values[i + len(chosen)]
        for dim, (before, after) in zip(shape, amounts, strict=True):
            kept = dim + min(before, 0) + min(after, 0)
            require(kept >= 0, f"pads {(before, after)} take more than a dim of {dim} has")
            if self.mode != "constant":
                require(kept > 0 or (before <= 0 and after <= 0), f"an empty dim can't be padded in mode {self.mode}")
        return amounts

    def infer(self, data: Spec, pads: Spec, constant_value: Spec | None = None, axes: Spec | None = None) -> Spec:
        if constant_value is not None and constant_value.size:
            require_scalar(constant_value, "constant_value")
            require(constant_value.dtype == data.dtype, f"constant_value must be of the dtype of {data}, not {constant_value}")
        amounts = self.amounts(data.shape, pads, axes)
        return Spec(data.dtype, tuple(before + dim + after for dim, (before, after) in zip(data.shape, amounts, strict=True)))


@op("Trilu")
class Trilu(Op):
    """The upper (or lower) triangle of the last two dims, 0 elsewhere; diagonal `k` (a scalar int64, else 0) included. ONNX Trilu-14."""

    upper: bool = True

    def infer(self, data: Spec, k: Spec | None = None) -> Spec:
        require(data.rank >= 2, f"the input must have at least two dims, not {data}")
        if k is not None:
            require_scalar(k, "k")
        return Spec(data.dtype, data.shape)


@op("CenterCropPad")
class CenterCropPad(Op):
    """Cropped, or padded with 0, about the centre to the sizes `shape` (1-D) of `axes` (None: all). ONNX CenterCropPad-18."""

    axes: tuple[int, ...] | None = None

    def offsets(self, data: tuple[int, ...], shape: Spec) -> list[tuple[int, int, int, int]]:
        """(start in the input, start in the result, number of elements kept, size of the result) for each dim."""
        require_vector(shape, "shape")
        axes = tuple(range(len(data))) if self.axes is None else normalize_axes(self.axes, len(data))
        sizes = shape.ints()
        require(len(sizes) == len(axes) and min(sizes, default=0) >= 0, f"shape must give sizes for {len(axes)} axes, not {list(sizes)}")
        offsets = [(0, 0, dim, dim) for dim in data]
        for axis, size in zip(axes, sizes, strict=True):
            dim = data[axis]
            offsets[axis] = max(dim - size, 0) // 2, max(size - dim, 0) // 2, min(dim, size), size
        return offsets

    def infer(self, data: Spec, shape: Spec) -> Spec:
        return Spec(data.dtype, tuple(size for _, _, _, size in self.offsets(data.shape, shape)))


@op("ReverseSequence")
class ReverseSequence(Op):
    """For each index of `batch_axis`, the first sequence_lens[index] elements along `time_axis` in reverse. ONNX ReverseSequence-28."""

    batch_axis: int = 1
    time_axis: int = 0

    def infer(self, data: Spec, sequence_lens: Spec) -> Spec:
        require(data.rank >= 2, f"the input must have at least two dims, not {data}")
        batch = normalize_axis(self.batch_axis, data.rank, "batch_axis")
        time = normalize_axis(self.time_axis, data.rank, "time_axis")
        require(batch != time, f"batch_axis and time_axis must differ, both are {batch}")
        require_vector(sequence_lens, "sequence_lens")
        require(sequence_lens.size == data.shape[batch], f"sequence_lens must give {data.shape[batch]} lengths, not {sequence_lens}")
        return Spec(data.dtype, data.shape)


@op("Compress")
class Compress(Op):
    """The slices along `axis` (None: the elements) at which `condition` (1-D bool, may be shorter) holds. ONNX Compress-28."""

    axis: int | None = None

    def infer(self, data: Spec, condition: Spec) -> Spec:
        require(condition.rank == 1 and condition.dtype == np.bool_, f"condition must be 1-D bool, not {condition}")
        axis = 0 if self.axis is None else normalize_axis(self.axis, data.rank)
        dim = data.size if self.axis is None else data.shape[axis]
        require(condition.size <= dim, f"condition must not be longer than {dim}, the dim it selects from, not {condition}")
        count = int(np.count_nonzero(condition.known()))
        return Spec(data.dtype, (count,) if self.axis is None else (*data.shape[:axis], count, *data.shape[axis + 1 :]))
