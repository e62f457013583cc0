"""The argument blocks of the heavy kernels: int64 words in this order. Executions fill them by name, kernels unpack them with `load_words`.

Addresses are those of tensors, arrays and tables that the execution keeps alive; `_bytes` and `stride` count bytes. Imports nothing of
numba: the running side reads this module too.
"""

import math

from mnnx.schema.records import Row


class Block(Row):
    """The words of an argument block."""


class Product(Block):
    """gemm.product: c = activation(a @ b + bias + residual) for every item of a batch."""

    a: int  # rows of `depth` floats
    a_stride: int
    b: int  # panels of `depth` rows
    b_stride: int  # between the rows of a panel
    panel_bytes: int  # from one panel to the next
    bias: int  # a float per column, up to whole panels
    bias_bytes: int  # of one panel; 0: one panel's bias serves all
    c: int
    c_stride: int
    residual: int  # 0: none
    residual_stride: int
    parameters: int  # of the activation, two floats
    rows: int
    columns: int
    depth: int
    batch: int
    items: int  # table of byte offsets per item of the batch: a, b, c, residual
    row_chunks: int  # into how many parts the rows of an item are cut
    panel_chunks: int  # and its panels


class Pack(Block):
    """gemm.pack: the matrices b of a batch → panels [depth][columns of a tile], missing columns zero."""

    b: int
    depth_stride: int  # between elements of one column
    column_stride: int  # between elements of one row; 4 here or there
    panels: int
    depth: int
    columns: int
    batch: int
    items: int  # table of byte offsets of b per item
    factor: int  # float32: what b is multiplied by


class Transpose(Block):
    """gemm.transpose: matrices [rows][columns] → [columns][rows]."""

    source: int
    target: int
    batch: int
    rows: int
    columns: int


class Geometry(Block):
    """How an image is spread (see spread.py)."""

    depth: int
    height: int
    width: int
    plane_phases: int
    row_phases: int
    column_phases: int
    spread_planes: int
    spread_rows: int
    spread_columns: int
    plane_stride: int  # in elements, as the convolution's attributes say
    row_stride: int
    column_stride: int
    plane_pad: int
    row_pad: int
    column_pad: int


class Spread(Block):
    """spread.images; the words of Geometry follow."""

    source: int
    target: int
    channels: int  # of all images together
    source_bytes: int  # of a channel
    target_bytes: int
    rows: int  # of a spread channel, over all its phases and planes
    fill: int  # float32: what the padding holds


class Convolution(Block):
    """convolution.product: weights [M, depth] times pixels [depth, P] for every group of every image."""

    source: int
    image_bytes: int
    group_bytes: int
    offsets: int  # table: where row k of the pixels begins in the source
    width: int  # pixels in a row
    height: int  # rows in a plane
    row_stride: int  # in the source
    plane_stride: int
    slack: int  # whether the source is readable for a vector beyond its end
    weights: int  # panels [depth][rows of a tile]
    weight_bytes: int  # of a group
    bias: int  # a float per row of the panels
    target: int
    residual: int  # 0: none
    parameters: int  # of the activation, two floats
    images: int
    groups: int
    rows: int  # M, per group
    depth: int
    pixels: int
    block_panels: int  # panels of pixels that are packed together
    row_chunks: int  # into how many parts the rows of a block are cut
    packed: int  # memory for panels of pixels
    packed_bytes: int  # of one image's group; 0: each slot holds one block
    flags: int
    slots: int
    slot_bytes: int
    to_do: int  # PACK, MULTIPLY or both
    in_place: int  # bytes between rows k of the source where whole vectors are read from it without packing; 0: never


PACK, MULTIPLY = 1, 2


#: How many rows of the target are in registers together where windows slide over single channels.
SLIDE_ROWS = 7


class Slide(Block):
    """Windows over every channel on its own (`make_slide`); the words of Geometry follow."""

    source: int
    channels: int  # of all images together
    channel_bytes: int
    band: int  # rows of the target that are done together: the spread image is that of a band
    spread_rows: int  # of a band of a channel, over all phases and planes
    together: int  # channels that are spread before windows slide over them
    fill: int  # float32: what the padding holds
    offsets: int  # table: where each run of taps begins in a spread band
    triples: int  # runs of three taps, each a row below the one before
    pairs: int
    singles: int
    weights: int  # [outputs][taps], run by run; for poolings one factor
    bias: int
    outputs: int  # of one image, each with weights of its own; 0: all share one
    multiplier: int  # outputs per channel
    target: int
    residual: int  # 0: none
    parameters: int  # of the activation, two floats
    planes: int  # of the target
    height: int
    width: int
    row_stride: int  # in a spread band, in bytes
    plane_stride: int
    factors: int  # what the target's pixels are multiplied by in the end; 0: nothing
    flags: int
    slots: int
    memory: int
    slot_bytes: int
    spread_bytes: int  # of one channel's band in a slot


class SlideBytes(Block):
    """What stands behind Slide and Geometry where windows slide over bytes and give bytes: how results are quantized."""

    results: int  # where a slot has room for a band of floats, in bytes from its start
    scales: int  # what results are multiplied by
    scale_step: int  # bytes from one output's scale to the next one's; 0: one serves all
    zero: int  # a byte of the target's dtype, which is added


class ByteAbreast(Block):
    """byte_windows.abreast: windows over small images of bytes, a vector of channels at a time."""

    source: int
    target: int
    images: int
    channels: int  # of an image
    depth: int  # of the source
    height: int
    width: int
    padded_planes: int  # of what windows reach of the padded image
    padded_rows: int
    padded_columns: int
    plane_pad: int
    row_pad: int
    column_pad: int
    plane_stride: int  # in elements, as the op's attributes say
    row_stride: int
    column_stride: int
    planes: int  # of the target
    rows: int
    columns: int
    taps: int
    offsets: int  # table: bytes from a window's first pixel to each tap
    weights: int  # vectors [blocks of channels][taps]
    weight_bytes: int  # of a block; 0: one serves all, as below
    bias: int
    bias_bytes: int
    scales: int
    scale_bytes: int
    zero: int
    factors: int  # a float per pixel of the target
    fill: int  # float32: what the padding holds
    flags: int
    slots: int
    memory: int
    slot_bytes: int
    results: int  # where a slot has room for bytes [pixels][lanes], in bytes from its start


class ByteMeans(Block):
    """byte_windows.means: a byte per row of a matrix of bytes."""

    source: int
    target: int
    rows: int
    columns: int
    shift: int  # what is taken from the sum of a row
    scale: int  # what that is multiplied by, a float32
    zero: int  # a byte of the target's dtype, which is added


class BlockedPooling(Block):
    """blocked_pooling.windows: windows over blocks of channels, a vector per pixel."""

    source: int
    target: int
    blocks: int  # of all images together
    depth: int  # of the source
    height: int
    width: int
    kernel_depth: int
    kernel_height: int
    kernel_width: int
    plane_stride: int  # in pixels, as the op's attributes say
    row_stride: int
    column_stride: int
    plane_dilation: int
    row_dilation: int
    column_dilation: int
    plane_pad: int
    row_pad: int
    column_pad: int
    planes: int  # of the target
    rows: int
    columns: int
    factors: int  # what sums are multiplied by
    factor_step: int  # bytes from one pixel's factor to the next one's; 0: one serves all


class Gather(Block):
    """convolution.gather: the output of a transposed convolution from the terms [channels][taps][input pixels]."""

    terms: int
    bias: int
    outputs: int  # channels of one image
    target: int
    residual: int  # 0: none
    parameters: int  # of the activation, two floats
    channels: int  # of all images together
    depth: int
    height: int
    width: int
    kernel_depth: int
    kernel_height: int
    kernel_width: int
    plane_stride: int  # in elements, as the op's attributes say
    row_stride: int
    column_stride: int
    plane_dilation: int
    row_dilation: int
    column_dilation: int
    plane_pad: int
    row_pad: int
    column_pad: int
    target_depth: int
    target_height: int
    target_width: int
    flags: int
    slots: int
    memory: int
    slot_bytes: int


class Linear(Block):
    """quantized.linear: `rows` rows of `row` elements, each with a scale and zero point (or, per_element, one per element of a row)."""

    x: int
    y: int
    scale: int
    zero: int
    rows: int
    channels: int  # row i has the parameters i % channels
    row: int
    block: int  # elements that a chunk takes at least


class DynamicRange(Block):
    """quantized.range and quantized.scale."""

    x: int
    count: int
    ranges: int  # (low, high) of each part
    parts: int
    scale: int
    zero: int


class Reduction(Block):
    """pooling.whole: one number per row of a matrix."""

    source: int
    target: int
    rows: int
    columns: int
    factor: int  # float32


def epilogue(activation: str, parameters: tuple[float, ...]) -> tuple[str, tuple[float, float]]:
    """The kind of epilogue that serves an activation of `schema.ops.fused.ACTIVATIONS`, and the two floats that it reads.

    Activations that only clamp are of one kind, so they share kernels; so do HardSwish and the scaled one.
    """
    if activation in ("", "Relu", "Clip"):
        return "Clip", {"": (-math.inf, math.inf), "Relu": (0.0, math.inf)}.get(activation) or (parameters[0], parameters[1])
    if activation in ("HardSwish", "ScaledHardSwish"):
        return "HardSwish", (parameters[0], parameters[1]) if parameters else (1.0, 0.0)
    return activation, (*parameters, 0.0, 0.0)[:2]
