"""The argument blocks of the recurrent kernels: int64 words in this order (see blocks.py)."""

from mnnx.backends.cpu.kernels.blocks import Block


class Recurrent(Block):
    """recurrent.layer: all directions of an LSTM, GRU or RNN. Rows of hidden units are whole vectors, `state_bytes` long."""

    gates: int  # the inputs' part of the gates, those of a block of hidden units side by side
    gates_time: int  # bytes from one step to the next
    gates_batch: int  # from one sequence to the next
    gates_direction: int
    weights: int  # recurrent ones, a panel [hidden][gates of a block] per block
    weights_direction: int
    second_weights: int  # from a direction's weights to those that meet the reset states; 0: there are none
    bias: int  # of the recurrent part, the gates of a block side by side
    bias_direction: int
    second_bias: int
    directions: int
    batch: int
    steps: int
    hidden: int
    state_bytes: int
    lengths: int  # int32 per sequence; 0: all take all steps
    states: int  # [2][directions][batch] rows: even steps read the first half and write the second one
    cells: int  # [directions][batch] rows: of an LSTM, or z of a GRU whose reset comes first
    reset: int  # likewise
    all: int  # hidden states of all steps; 0: not wanted
    all_time: int
    all_direction: int
    all_batch: int
    reversed: int  # bit d: direction d runs backwards


class RecurrentBytes(Block):
    """recurrent_bytes.layer, after the words of a Recurrent, where gates are int32s and weights are panels of words (see dot.py).

    `Recurrent.bias` has five rows of the gates of a block, per block: the scale of w, the bias (floats), the scale of r (floats), the
    sums of r's columns, and r's zero points negated (int32s).
    """

    words: int  # of a row of states
    x_scale: int  # address of a float
    flags: int
    slots: int
    memory: int
    slot_bytes: int  # scale and zero point of the states, the sum of each row; at its end the rows
    words_bytes: int  # from one row to the next


class RecurrentUnit(Block):
    """recurrent.layer and recurrent_bytes.layer: some stages of a layer."""

    layer: int  # address of its Recurrent
    first: int
    last: int
    row_parts: int  # into how many parts the sequences are cut
    column_parts: int  # and the blocks of hidden units


class RecurrentStates(Block):
    """recurrent.states: copies rows of `hidden` floats, followed by zeros up to `width`, for two kinds of states."""

    source: int  # 0: zeros
    target: int  # 0: not wanted
    second_source: int
    second_target: int
    source_direction: int
    source_batch: int
    target_direction: int
    target_batch: int
    directions: int
    batch: int
    hidden: int
    width: int
    lengths: int  # int32 per sequence: those without a step get zeros, those outside 0 … steps are reported; 0: all have some
    steps: int
    status: int  # address and code for reports
    code: int
