"""Convolutions and what belongs to them. Layouts are ONNX's: images N × C × spatial dims, weights M × C/group × kernel."""

import math
from collections.abc import Sequence

from mnnx.schema.ops.axes import require_vector
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT, require_floats, require_given, require_shape
from mnnx.schema.ops.windows import ConvGeometry, check_windows, transposed_geometry, window_geometry


def _check_operands(op_name: str, kernel_shape: tuple[int, ...], x: Spec, w: Spec) -> None:
    require(x.rank >= 3, f"{op_name} needs an input of rank 3 or more (N, C, spatial dims); it is {x}")
    require(w.rank == x.rank, f"the weights must have the input's rank {x.rank}; they are {w}")
    require(not kernel_shape or kernel_shape == w.shape[2:], f"kernel_shape {list(kernel_shape)} must be the weights' {list(w.shape[2:])}")
    require(w.size > 0, f"the weights must not be empty; they are {w}")


class Convolution(Op):
    """The attributes that convolutions share."""

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def check(self) -> None:
        check_windows(self.kernel_shape, self.strides, self.dilations, self.pads, self.auto_pad)
        require(0 < self.group < LIMIT, f"group must be positive; it is {self.group}")

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * outputs[0].size * math.prod(inputs[1].shape[1:])


@op("Conv")
class Conv(Convolution):
    """Convolution (cross-correlation) of x [N, C, spatial…] with w [M, C/group, kernel…] plus bias [M] → [N, M, output…]. Conv-22.

    Any float dtype, the same for all inputs.
    """

    def geometry(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> ConvGeometry:
        """The windows, with padding resolved; raises RuleError where they don't fit."""
        return window_geometry(x_shape[2:], w_shape[2:], self.strides, self.dilations, self.pads, self.auto_pad)

    def infer(self, x: Spec, w: Spec, bias: Spec | None = None) -> Spec:
        require_floats(x=x, w=w, bias=bias)
        _check_operands(self.name, self.kernel_shape, x, w)
        require(x.shape[1] == w.shape[1] * self.group, f"x must have {w.shape[1]} * group {self.group} channels (the weights'); it is {x}")
        require(w.shape[0] % self.group == 0, f"the {w.shape[0]} output channels must be a multiple of group {self.group}")
        require_shape("bias", bias, (w.shape[0],))
        return Spec(x.dtype, (x.shape[0], w.shape[0], *self.geometry(x.shape, w.shape).output))


@op("ConvTranspose")
class ConvTranspose(Convolution):
    """Transposed convolution of x [N, C, spatial…] with w [C, M/group, kernel…] plus bias [M] → [N, M, output…]. ConvTranspose-22."""

    output_padding: tuple[int, ...] = ()
    output_shape: tuple[int, ...] = ()

    def check(self) -> None:
        super().check()
        require(all(0 <= v < LIMIT for v in self.output_padding), f"output_padding must not be negative; it is {list(self.output_padding)}")
        require(all(0 < v < LIMIT for v in self.output_shape), f"output_shape must be positive; it is {list(self.output_shape)}")

    def geometry(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> ConvGeometry:
        """The windows, with padding resolved; raises RuleError where the output would be empty."""
        return transposed_geometry(
            x_shape[2:], w_shape[2:], self.strides, self.dilations, self.pads, self.auto_pad, self.output_padding, self.output_shape
        )

    def infer(self, x: Spec, w: Spec, bias: Spec | None = None) -> Spec:
        require_floats(x=x, w=w, bias=bias)
        _check_operands(self.name, self.kernel_shape, x, w)
        require(x.shape[1] == w.shape[0], f"x must have the weights' {w.shape[0]} channels; it is {x}")
        require(w.shape[0] % self.group == 0, f"the {w.shape[0]} input channels must be a multiple of group {self.group}")
        channels = w.shape[1] * self.group
        require_shape("bias", bias, (channels,))
        return Spec(x.dtype, (x.shape[0], channels, *self.geometry(x.shape, w.shape).output))

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * inputs[0].size * math.prod(inputs[1].shape[1:])


@op("DeformConv")
class DeformConv(Op):
    """Convolution whose taps are moved by `offset` and scaled by `mask`, sampled bilinearly, zero outside. DeformConv-22; 2-D images.

    offset [N, offset_group * kernel taps * 2 (y, x), output…], mask [N, offset_group * kernel taps, output…]. Source: Deformable
    ConvNets v2 (Zhu et al., 2018).
    """

    dilations: tuple[int, ...] = ()
    group: int = 1
    kernel_shape: tuple[int, ...] = ()
    offset_group: int = 1
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def check(self) -> None:
        check_windows(self.kernel_shape, self.strides, self.dilations, self.pads, "NOTSET")
        require(0 < self.group < LIMIT, f"group must be positive; it is {self.group}")
        require(0 < self.offset_group < LIMIT, f"offset_group must be positive; it is {self.offset_group}")

    def geometry(self, x_shape: tuple[int, ...], w_shape: tuple[int, ...]) -> ConvGeometry:
        return window_geometry(x_shape[2:], w_shape[2:], self.strides, self.dilations, self.pads, "NOTSET")

    def infer(self, x: Spec, w: Spec, offset: Spec, bias: Spec | None = None, mask: Spec | None = None) -> Spec:
        require_given(offset=offset)
        require_floats(x=x, w=w, offset=offset, bias=bias, mask=mask)
        _check_operands(self.name, self.kernel_shape, x, w)
        require(x.rank == 4, f"DeformConv works on 2-D images (rank 4); x is {x}")
        require(x.shape[1] == w.shape[1] * self.group, f"x must have {w.shape[1]} * group {self.group} channels (the weights'); it is {x}")
        require(w.shape[0] % self.group == 0, f"the {w.shape[0]} output channels must be a multiple of group {self.group}")
        require(x.shape[1] % self.offset_group == 0, f"the {x.shape[1]} channels must be a multiple of offset_group {self.offset_group}")
        output = self.geometry(x.shape, w.shape).output
        taps = self.offset_group * w.shape[2] * w.shape[3]
        require_shape("offset", offset, (x.shape[0], 2 * taps, *output))
        require_shape("mask", mask, (x.shape[0], taps, *output))
        require_shape("bias", bias, (w.shape[0],))
        return Spec(x.dtype, (x.shape[0], w.shape[0], *output))


@op("Col2Im")
class Col2Im(Op):
    """Adds blocks [N, C * block size, windows] into images [N, C, image_shape…]: the adjoint of im2col. Col2Im-18; any dtype."""

    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    def check(self) -> None:
        check_windows((), self.strides, self.dilations, self.pads, "NOTSET")

    def geometry(self, image: tuple[int, ...], block: tuple[int, ...]) -> ConvGeometry:
        """The windows that were cut out of an image of this shape."""
        return window_geometry(image, block, self.strides, self.dilations, self.pads, "NOTSET")

    def infer(self, x: Spec, image_shape: Spec, block_shape: Spec) -> Spec:
        require_vector(image_shape, "image_shape")
        require_vector(block_shape, "block_shape")
        image, block = image_shape.ints(), block_shape.ints()
        require(x.rank == 3, f"Col2Im needs an input of rank 3 (N, C * block size, windows); it is {x}")
        require(
            0 < len(image) == len(block), f"image_shape {list(image)} and block_shape {list(block)} must have as many entries, at least one"
        )
        require(all(0 < v < LIMIT for v in (*image, *block)), f"image_shape {list(image)} and block_shape {list(block)} must be positive")
        size, windows = 1, 1
        for taps, count in zip(block, self.geometry(image, block).output, strict=True):
            size, windows = size * taps, windows * count
        require(x.shape[1] and x.shape[1] % size == 0, f"the second dim must be a multiple of the block's {size} elements; x is {x}")
        require(x.shape[2] == windows, f"the last dim must be the number of windows, {windows}; x is {x}")
        return Spec(x.dtype, (x.shape[0], x.shape[1] // size, *image))


@op("CausalConvWithState")
class CausalConvWithState(Op):
    """Depthwise causal 1-D convolution with carried state. CausalConvWithState-27.

    x [N, C, L], w [C, 1, K], bias [C], past_state [N, C, K-1] (zeros where left out) → y [N, C, L] and the last K-1 columns of
    past and x together [N, C, K-1]. `activation`: none, silu or swish.
    """

    activation: str = "none"

    def check(self) -> None:
        require(self.activation in ("none", "silu", "swish"), f"activation must be none, silu or swish; it is {self.activation!r}")

    def infer(self, x: Spec, w: Spec, bias: Spec | None = None, past_state: Spec | None = None) -> tuple[Spec, Spec]:
        require_floats(x=x, w=w, bias=bias, past_state=past_state)
        require(x.rank == 3, f"x must have rank 3 (N, C, L); it is {x}")
        require(w.rank == 3 and w.shape[:2] == (x.shape[1], 1) and w.shape[2] > 0, f"w must have the shape [{x.shape[1]}, 1, K]; it is {w}")
        state = (x.shape[0], x.shape[1], w.shape[2] - 1)
        require_shape("bias", bias, (x.shape[1],))
        require_shape("past_state", past_state, state)
        return Spec(x.dtype, x.shape), Spec(x.dtype, state)
