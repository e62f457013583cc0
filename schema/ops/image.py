"""Ops on images: sampling at given positions, and decoding files."""

import numpy as np

from mnnx.schema.ops.axes import require_vector
from mnnx.schema.ops.base import DataDependent, Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT, require_floats


@op("GridSample")
class GridSample(Op):
    """(N, C, D1 … Dr) sampled at `grid` (N, O1 … Or, r): (N, C, O1 … Or). ONNX GridSample-22.

    The last dim of the grid names positions from the innermost dim outwards, -1 … 1 over the input (with `align_corners` its first
    and last centres, else its edges). Modes nearest, linear, cubic; padding by zeros, border or reflection.
    """

    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    def check(self) -> None:
        require(self.mode in ("linear", "nearest", "cubic"), f"mode must be linear, nearest or cubic, not {self.mode!r}")
        require(
            self.padding_mode in ("zeros", "border", "reflection"),
            f"padding_mode must be zeros, border or reflection, not {self.padding_mode!r}",
        )

    def infer(self, x: Spec, grid: Spec) -> Spec:
        require(3 <= x.rank <= 8 and x.dtype.kind != "O", f"the input must be numbers (N, C, D1, …) of up to 8 dims, not {x}")
        require_floats(grid=grid)
        wanted = grid.rank == x.rank and grid.shape[0] == x.shape[0] and grid.shape[-1] == x.rank - 2
        require(wanted, f"the grid for {x} must be ({x.shape[0]}, …, {x.rank - 2}) with {x.rank} dims, not {grid}")
        result = Spec(x.dtype, x.shape[:2] + grid.shape[1:-1])
        require(0 not in x.shape[2:] or result.size == 0, f"an empty image can't be sampled: {x}")
        return result


@op("AffineGrid")
class AffineGrid(Op):
    """The grid (N, H, W, 2) of affine maps theta (N, 2, 3) for `size` (N, C, H, W); or (N, D, H, W, 3) of (N, 3, 4). ONNX AffineGrid-20."""

    align_corners: bool = False

    def infer(self, theta: Spec, size: Spec) -> Spec:
        require_floats(theta=theta)
        require_vector(size, "size")
        dims = size.ints()
        spatial = len(dims) - 2
        require(spatial in (2, 3), f"size must be (N, C, H, W) or (N, C, D, H, W), not {dims}")
        require(all(0 <= d < LIMIT for d in dims), f"size must hold sizes, not {dims}")
        require(theta.shape == (dims[0], spatial, spatial + 1), f"theta must be ({dims[0]}, {spatial}, {spatial + 1}), not {theta}")
        return Spec(theta.dtype, (dims[0], *dims[2:], spatial))


@op("ImageDecoder")
class ImageDecoder(Op):
    """An encoded image (1-D uint8: BMP, JPEG, PNG, …) as uint8 (H, W, channels); empty where it isn't one. ONNX ImageDecoder-20."""

    pixel_format: str = "RGB"

    def check(self) -> None:
        require(self.pixel_format in ("RGB", "BGR", "Grayscale"), f"pixel_format must be RGB, BGR or Grayscale, not {self.pixel_format!r}")

    def infer(self, encoded_stream: Spec) -> Spec:
        require(encoded_stream.rank == 1 and encoded_stream.dtype == np.uint8, f"the stream must be 1-D uint8, not {encoded_stream}")
        raise DataDependent
