"""The argument block of attention.rows, as in blocks.py."""

from mnnx.backends.cpu.kernels.blocks import Block


class AttentionRows(Block):
    """y = softmax(factor * q @ k + mask) @ v for every item of a batch."""

    q: int
    q_stride: int
    k: int  # panels of D rows
    v: int  # panels of `keys` rows
    v_stride: int  # bytes between the rows of a panel
    v_panel: int  # bytes from panel to panel
    mask: int  # 0: none
    mask_stride: int  # bytes from one query's row to the next one's; 0: one row for all
    mask_bytes: int  # of an element; 4: float32, added; 1: bool, where it is 0 the score is -inf
    y: int
    y_stride: int
    items: int  # table of byte offsets per item: q, k, v, mask, y
    batch: int
    queries: int
    keys: int
    head: int  # D
    v_head: int
    first: int  # query i sees the keys from i + first …
    last: int  # … to i + last
    block_rows: int  # queries that go through the keys together, whole tiles of them unless there are fewer
    block_keys: int  # keys whose scores are in memory at a time, whole panels of them
    factor: int  # float32: what q is multiplied by
    blind: int  # float32: what the result of a query that sees no key is multiplied by, 0 or NaN
    zeros: int  # floats, as many as a panel is wide
    flags: int
    slots: int
    memory: int
    slot_bytes: int


def slot_parts(block_rows: int, block_keys: int, head: int, v_columns: int) -> tuple[int, int, int, int]:
    """Bytes of a slot's parts: a block's rows of q, its scores, its sums, and three numbers per row. `v_columns`: up to whole panels."""
    return 4 * block_rows * head, 4 * block_rows * block_keys, 4 * block_rows * v_columns, 12 * block_rows
