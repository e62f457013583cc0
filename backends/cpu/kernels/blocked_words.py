"""The argument blocks of the convolutions in the blocked layout: int64 words in this order (see blocks.py)."""

from mnnx.backends.cpu.kernels.blocks import Block


class BlockedProduct(Block):
    """blocked_convolution.product: output pixels × output channels, the depth (taps × input channels of a group) in steps."""

    source: int
    image_bytes: int  # of a source image
    group_bytes: int  # from one group's channels to the next one's in the source
    row_table: int  # per output row: offset in the source, offset in the target, first step, steps
    column_table: int  # per tile of a row: offset in the source, offset in the target, masks (0: all of its windows lie inside the image)
    column_tiles: int  # tiles in a row
    tiles: int  # of an image
    places: int  # table of byte offsets in the source, of each step's runs of floats
    zeros: int
    weights: int  # [groups][panels of output channels][steps][depth][channels of the panel]
    weight_bytes: int  # of a panel
    bias: int  # a float per channel of the panels
    target: int
    plane_bytes: int  # of a block of channels in the target
    residual: int  # 0: none
    parameters: int  # of the activation, two floats
    images: int
    groups: int
    blocks: int  # of output channels, per group
    panel_tiles: int  # tiles that meet all weights of a chunk before the next ones do
    block_chunks: int  # into how many parts the panels of output channels are cut


class BlockedDepthwise(Block):
    """blocked_convolution.depthwise: windows over every channel on its own."""

    source: int
    plane_bytes: int  # of a block of channels in the source
    row_bytes: int  # from one kernel row to the next in the source
    row_table: int  # per output row: offset in the source, offset in the target, first kernel row, kernel rows
    height: int  # of the output
    width: int
    stride_bytes: int  # from the window of one output column to the next one's in the source
    weights: int  # [blocks][kernel rows][taps][lanes]
    weight_bytes: int  # of a block
    bias: int  # a float per channel of the blocks
    target: int
    target_bytes: int  # of a block of channels
    residual: int  # 0: none
    parameters: int  # of the activation, two floats
    blocks: int  # of channels, of an image
    images: int


class BlockedWinograd(Block):
    """blocked_winograd: 3×3 windows with stride 1, the output in squares."""

    source: int
    in_blocks: int  # of channels, per image
    height: int
    width: int
    top_pad: int
    left_pad: int
    across: int  # squares of the output
    down: int
    images: int
    chunks: int  # into how many parts the squares are cut
    block_chunks: int  # and the blocks of channels
    stride: int  # squares that there is room for between blocks of the transformed image
    to_do: int  # TRANSFORM, MULTIPLY or both
    transformed: int
    transformed_bytes: int  # of a chunk
    shared: int  # whether there is memory for all chunks; otherwise for one per slot
    products: int
    products_bytes: int  # of a slot
    flags: int
    slots: int
    places: int  # table of byte offsets in a point of the transformed image
    step_count: int
    weights: int  # [panels of output channels][points][steps][depth][channels of the panel]
    weight_bytes: int  # of a panel
    bias: int  # a float per channel of the blocks
    target: int
    out_height: int
    out_width: int
    residual: int  # 0: none
    parameters: int  # of the activation, two floats
    blocks: int  # of output channels


TRANSFORM, MULTIPLY = 1, 2
