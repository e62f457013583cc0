"""Numbers on which kernels' sources and the executions that dispatch them agree.

Executions import no module of `kernels`: a family's sources are imported when one of its kernels is first recorded.
"""

from __future__ import annotations

# ---- rows: sums along an axis
#: Work items that share a row, where not each has its own.
TEAM = 64
#: So many terms are summed by themselves before they are added to the rest, which keeps rounding errors small.
TERMS = 64

# ---- products of matrices
#: Columns of vectors × parts of the depth in a work group of product.split.
SPLIT_COLUMNS, SPLIT_DEPTH = 8, 16
#: Rows of a work item's tile in quantization.tile.
BYTE_ROWS = 4

# ---- convolutions
#: Rows × vectors of the tiles that devices with blocks of `source.AHEAD_BLOCK` choose among; others may choose any.
TILES = ((8, 2), (8, 1), (4, 1))
#: Where x is plain, and where the result is plain too.
TILES_OF_PLAIN, TILES_TO_PLAIN = ((8, 2), (4, 1)), ((4, 1),)
#: Columns in a work item's tile, in the kernels of depthwise and of transposed convolutions.
TILE_COLUMNS = 4

# ---- elementwise
#: Groups of dims in which operands may broadcast.
BROADCAST_DIMS = 4
#: The most inputs of one kernel.
MOST_INPUTS = 4

# ---- windows and sampling
#: Dims that a kernel resizes or passes over; outermost first, the first ones may be 1.
RESIZE_DIMS = 4
#: Spatial dims of pooling and of convolutions of bytes; those that are missing have a size of 1.
WINDOW_DIMS = 3
#: Work items that pool a whole image together.
POOL_TEAM = 64

# ---- indexing
#: The reductions of scatters, as their kernels number them from 1.
REDUCTIONS = ("add", "mul", "max", "min")
#: Bits of a digit of the keys by which top_k.select goes through a row, and digits of a key.
DIGIT_BITS = 2
DIGITS = 32 // DIGIT_BITS

# ---- reductions
#: How reduction.ints numbers its kinds.
INT_KINDS = ("sum", "product", "max", "min", "absolute", "squares")

# ---- quantization
#: Work groups and items of a group that find a range.
RANGE_GROUPS, RANGE_TEAM = 16, 64

# ---- recurrent networks
#: Vectors × parts of the depth in a work group of recurrent.step, where the depth is shared.
SHARED_VECTORS, SHARED_DEPTH = 8, 16
#: Rows (sequences) of a work item's tile, where it isn't.
SEQUENCE_ROWS = 4
#: The gates' and cells' activations that kernels know.
ACTIVATIONS = ("Relu", "LeakyRelu", "HardSigmoid", "Sigmoid", "Tanh")
#: Bits of `flags`: which outputs are wanted, which inputs are given, LSTM's input_forget.
Y, LAST_H, LAST_C, LENGTHS, PEEPHOLES, INPUT_FORGET = (1 << bit for bit in range(6))
