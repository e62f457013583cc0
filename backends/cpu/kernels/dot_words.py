"""The argument blocks of the kernels for products of bytes: int64 words in this order (see blocks.py)."""

from mnnx.backends.cpu.kernels.blocks import Block


class DotRows(Block):
    """dot.rows: rows of bytes → rows of words (see dot.py) and their sums."""

    source: int
    target: int
    sums: int  # int32 per row
    rows: int
    depth: int  # bytes of a source row
    row_bytes: int  # of a target row, whole words
    signed: int
    flip: int


class DotPack(Block):
    """dot_matrix.pack: matrices of bytes → panels of words (see dot.py) and the sums of their columns."""

    b: int  # matrices [depth, columns]
    panels: int
    panel_bytes: int
    sums: int  # int32 per column, up to whole panels
    depth: int
    columns: int
    words: int
    batch: int
    signed: int
    flip: int


class DotProduct(Block):
    """dot_matrix.product: (a - zero) @ (b - its zero points), summed in int32 and finished (dot_finish.py), for every item of a batch."""

    a: int  # rows of words
    a_stride: int
    b: int  # panels of words
    panel_bytes: int
    column_sums: int  # int32 per column of b, up to whole panels
    column_factors: int  # int32 per column: its zero point negated; 0: all are 0
    row_sums: int  # int32 per row of a
    bias: int  # int32 per column, up to whole panels; 0: none
    zero: int  # of a, a byte; 0: none
    signed: int  # whether a's bytes are, before a flip
    flip: int
    c: int
    c_stride: int
    rows: int
    columns: int
    depth: int  # bytes of a row of a
    words: int
    batch: int
    items: int  # table: which item of a and which of b makes an item of the batch
    row_chunks: int  # of an item
    panel_chunks: int
    factors: int  # what dot_finish.py takes: floats per column, up to whole panels
    addends: int
    multiplier: int  # of all factors, one float
    constants: int


class DotSpread(Block):
    """dot_image.spread: images of bytes → spread images of elements of words; the words of Geometry follow."""

    source: int
    target: int
    channels: int  # of all images together
    source_bytes: int  # of a channel
    target_bytes: int
    rows: int  # of a spread channel, over all its phases and planes
    zero: int  # what the padding holds, a byte; 0: nothing is written there but 0
    signed: int
    flip: int


class DotConvolution(Block):
    """dot_image.product: weights [M, depth] times pixels [depth, P] for every group of every image, in int32."""

    source: int  # spread images
    image_bytes: int
    group_bytes: int
    offsets: int  # table: where each element of the depth begins in the source, up to whole words
    width: int
    height: int
    row_stride: int
    plane_stride: int
    weights: int  # panels of words, then one panel of ones
    weight_bytes: int  # of a group
    sums: int  # int32 per row of the panels: of its weights
    factors: int  # int32 per row: the zero point of its weights negated; 0: all are 0
    biases: int  # int32 per row
    zero: int  # of x, a byte; 0: none
    signed: int
    flip: int
    target: int
    images: int
    groups: int
    rows: int
    depth: int
    words: int
    pixels: int
    block_panels: int
    row_chunks: int
    memory: int
    flags: int
    slots: int
    slot_bytes: int
