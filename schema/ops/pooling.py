"""Pooling over windows or over all spatial dims of N × C × spatial dims, and its inverse."""

import functools

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.axes import require_vector
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT, require_floats
from mnnx.schema.ops.windows import ConvGeometry, check_windows, per_dim, window_geometry

_INDICES = np.dtype(np.int64)


class Pooling(Op):
    """Pooling over sliding windows; what the pooling ops share."""

    kernel_shape: tuple[int, ...]
    auto_pad: str = "NOTSET"
    ceil_mode: bool = False
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def check(self) -> None:
        check_windows(self.kernel_shape, self.strides, self.dilations, self.pads, self.auto_pad)

    def geometry(self, x_shape: tuple[int, ...]) -> ConvGeometry:
        """The windows, with padding resolved. A window may lie in the padding altogether where dilations are over 1."""
        require(len(x_shape) >= 3, f"{self.name} needs an input of rank 3 or more (N, C, spatial dims); it has {len(x_shape)}")
        geometry = window_geometry(x_shape[2:], self.kernel_shape, self.strides, self.dilations, self.pads, self.auto_pad, self.ceil_mode)
        fits = all(b < e > a for b, a, e in zip(geometry.begin, geometry.end, geometry.extents, strict=True))
        require(fits, f"padding must be less than the window; it is {geometry.begin} and {geometry.end} for a window of {geometry.extents}")
        return geometry

    def infer(self, x: Spec) -> Spec:
        require_floats(x=x)
        return Spec(x.dtype, (*x.shape[:2], *self.geometry(x.shape).output))


@op("MaxPool")
class MaxPool(Pooling):
    """The largest value of each window, and where it lies: its index in x flattened (the last spatial dims column by column where
    storage_order is 1). Padding never wins. Any float dtype, int8 or uint8. MaxPool-22.
    """

    storage_order: bool = False

    def infer(self, x: Spec) -> tuple[Spec, Spec]:
        if x.dtype not in (np.int8, np.uint8):
            require_floats(x=x)
        shape = (*x.shape[:2], *self.geometry(x.shape).output)
        return Spec(x.dtype, shape), Spec(_INDICES, shape)


@op("AveragePool")
class AveragePool(Pooling):
    """The mean of each window: over its elements inside the input, or with count_include_pad inside the padded input. AveragePool-22.

    A part of a window that ceil_mode moved beyond the padded input never counts. A window with nothing to count gives 0.
    """

    count_include_pad: bool = False


def window_counts(geometry: ConvGeometry, include_pad: bool) -> np.ndarray:
    """How many taps of each window lie inside the input, or with include_pad inside the padded input: int64, a dim per spatial one."""
    g, counts = geometry, []
    for size, taps, stride, dilation, begin, end, windows in zip(
        g.input, g.kernel, g.strides, g.dilations, g.begin, g.end, g.output, strict=True
    ):
        position = np.arange(windows)[:, None] * stride - begin + np.arange(taps) * dilation
        low, high = (-begin, size + end) if include_pad else (0, size)
        counts.append(((position >= low) & (position < high)).sum(1))
    return functools.reduce(np.multiply.outer, counts)


@op("LpPool")
class LpPool(Pooling):
    """The p-norm of each window. LpPool-22."""

    p: int = 2

    def check(self) -> None:
        super().check()
        require(self.p > 0, f"p must be positive; it is {self.p}")


class GlobalPooling(Op):
    """Pooling over all spatial dims: [N, C, spatial…] → [N, C, 1…]."""

    def infer(self, x: Spec) -> Spec:
        require_floats(x=x)
        require(x.rank >= 2, f"{self.name} needs an input of rank 2 or more (N, C, spatial dims); it is {x}")
        require(all(x.shape[2:]), f"{self.name} needs spatial dims that are not empty; x is {x}")
        return Spec(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:])))


@op("GlobalAveragePool")
class GlobalAveragePool(GlobalPooling):
    """The mean over all spatial dims. GlobalAveragePool-22."""


@op("GlobalMaxPool")
class GlobalMaxPool(GlobalPooling):
    """The largest value over all spatial dims. GlobalMaxPool-22."""


@op("GlobalLpPool")
class GlobalLpPool(GlobalPooling):
    """The p-norm over all spatial dims. GlobalLpPool-22."""

    p: int = 2

    def check(self) -> None:
        require(self.p > 0, f"p must be positive; it is {self.p}")


@op("MaxUnpool")
class MaxUnpool(Op):
    """Puts each value back where MaxPool's indices say it came from; all else is 0. MaxUnpool-22.

    Indices count in the tensor that MaxPool had as its input. Without `output_shape` the output is that tensor's size, as far as it
    follows from kernel, strides and pads; with it, the indices' tensor lies at the start of a larger output.
    """

    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def check(self) -> None:
        check_windows(self.kernel_shape, self.strides, (), self.pads, "NOTSET")

    def unpooled_shape(self, x_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that the indices count in."""
        rank = len(x_shape) - 2
        require(rank > 0, f"MaxUnpool needs an input of rank 3 or more (N, C, spatial dims); it has {len(x_shape)}")
        kernel = per_dim(self.kernel_shape, rank, 1, "kernel_shape")
        strides = per_dim(self.strides, rank, 1, "strides")
        pads = per_dim(self.pads, 2 * rank, 0, "pads")
        sizes = zip(x_shape[2:], kernel, strides, pads[:rank], pads[rank:], strict=True)
        shape = (*x_shape[:2], *((size - 1) * stride + k - first - last for size, k, stride, first, last in sizes))
        require(all(n > 0 for n in shape[2:]), f"every output dim must be positive; they would be {list(shape)}")
        return shape

    def infer(self, x: Spec, indices: Spec, output_shape: Spec | None = None) -> Spec:
        require_floats(x=x)
        require(indices.dtype == _INDICES, f"the indices must be int64; they are {dtypes.name(indices.dtype)}")
        require(indices.shape == x.shape, f"the indices must have x's shape {list(x.shape)}; it is {list(indices.shape)}")
        shape = self.unpooled_shape(x.shape)
        if output_shape is None:
            return Spec(x.dtype, shape)
        require_vector(output_shape, "output_shape")
        wanted = output_shape.ints()
        require(len(wanted) == x.rank and wanted[:2] == x.shape[:2], f"output_shape must be N, C and spatial dims; it is {list(wanted)}")
        require(all(0 < n < LIMIT for n in wanted[2:]), f"output_shape must be positive; it is {list(wanted)}")
        return Spec(x.dtype, wanted)
