"""Quantization ops that ONNX Runtime adds to ONNX and that no composition of ours expresses."""

import numpy as np

from mnnx.schema.ops.axes import normalize_axis
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import FLOATS, require_dtype
from mnnx.schema.ops.quantization import BYTES, FLOAT4, FLOATS8, SMALL_INTEGERS
from mnnx.schema.ops.recurrent import Recurrent
from mnnx.schema.ops.rules import LIMIT, require_shape


@op("mnnx::DequantizeBits")
class DequantizeBits(Op):
    """(packed, scales, zero_points?, blocks?) → (integers - zero point) * scale, [N, K] of the dtype of scales: MatMulNBits's weights.

    packed: uint8, N rows of ceil(K / block_size) blocks of block_size * bits / 8 bytes, low bits first. scales: one per block.
    zero_points: one per block in the dtype of scales, or packed as uint8 rows of their own; else 2^(bits - 1). blocks: integers, for each
    of the K columns the number of the block whose scale and zero point it has; else the one that it lies in.
    """

    bits: int
    block_size: int
    rows: int
    columns: int

    def check(self):
        require(self.bits in (2, 4, 8), f"bits must be 2, 4 or 8; it is {self.bits}")
        legal = 0 < self.block_size < LIMIT and self.block_size * self.bits % 8 == 0
        require(legal, f"blocks must fill whole bytes; block_size is {self.block_size}")
        require(0 < self.rows < LIMIT and 0 < self.columns < LIMIT, f"N and K must be positive; they are {self.rows} and {self.columns}")

    @property
    def blocks(self) -> int:
        """The number of blocks in a row."""
        return -(-self.columns // self.block_size)

    def infer(self, packed: Spec, scales: Spec, zero_points: Spec | None = None, blocks: Spec | None = None) -> Spec:
        size = self.rows * self.blocks * self.block_size * self.bits // 8
        require(packed.dtype == np.uint8 and packed.size == size, f"the weights must be {size} bytes; they are {packed}")
        count = self.rows * self.blocks
        require(scales.dtype in FLOATS and scales.size == count, f"there must be {count} scales, one per block; they are {scales}")
        if zero_points is not None:
            packed_size = self.rows * -(-self.blocks * self.bits // 8)
            legal = zero_points.size == (packed_size if zero_points.dtype == np.uint8 else count)
            legal &= zero_points.dtype in (np.uint8, scales.dtype)
            require(legal, f"there must be {count} zero points, one per block, or {packed_size} bytes of them; they are {zero_points}")
        if blocks is not None:
            legal = blocks.dtype.kind == "i" and blocks.rank == 1 and blocks.size >= self.columns
            require(legal, f"blocks must be an integer for each of the {self.columns} columns; they are {blocks}")
        return Spec(scales.dtype, (self.rows, self.columns))


@op("mnnx::DequantizeBnb4")
class DequantizeBnb4(Op):
    """(packed uint8 [N * K / 2], absmax) → [N, K] of the dtype of absmax: the weights of MatMulBnb4, in the data types of bitsandbytes.

    Each element is one of 16 numbers, of FP4 or (`nf4`) NF4, times the absmax of its block of `block_size` elements; high bits first.
    """

    nf4: bool
    block_size: int
    rows: int
    columns: int

    def check(self):
        legal = 16 <= self.block_size < LIMIT and self.block_size & (self.block_size - 1) == 0
        require(legal, f"block_size must be a power of two from 16 on; it is {self.block_size}")
        require(0 < self.rows < LIMIT and 0 < self.columns < LIMIT, f"N and K must be positive; they are {self.rows} and {self.columns}")

    def infer(self, packed: Spec, absmax: Spec) -> Spec:
        count = self.rows * self.columns
        require(
            packed.dtype == np.uint8 and packed.size == -(-count // 2), f"the weights must be {-(-count // 2)} bytes; they are {packed}"
        )
        blocks = -(-count // self.block_size)
        require(absmax.dtype in FLOATS and absmax.size == blocks, f"there must be {blocks} absmax, one per block; they are {absmax}")
        return Spec(absmax.dtype, (self.rows, self.columns))


@op("com.microsoft::GatherBlockQuantized")
class GatherBlockQuantized(Op):
    """(data, indices, scales, zero_points?) → entries of `data` along gather_axis, dequantized; zeros for indices out of range.

    data: 4-bit integers, floats of 8 or 4 bits, or uint8: 8 / bits unsigned integers in each byte of the last dim, low bits first.
    scales, of the dtype of the result: one per block of block_size entries along quantize_axis (0: of all); zero_points alike, in the
    form of data; else 0, for uint8 2^(bits - 1).
    """

    bits: int = 4
    block_size: int = 128
    gather_axis: int = 0
    quantize_axis: int = 1

    def check(self):
        require(self.bits in (2, 4, 8), f"bits must be 2, 4 or 8; it is {self.bits}")
        legal = self.block_size == 0 or (16 <= self.block_size < LIMIT and self.block_size & (self.block_size - 1) == 0)
        require(legal, f"block_size must be a power of two from 16 on; it is {self.block_size}")

    def unpacked(self, data: Spec) -> int:
        """How many entries an element of `data` holds."""
        return 8 // self.bits if data.dtype == np.uint8 else 1

    def infer(self, data: Spec, indices: Spec, scales: Spec, zero_points: Spec | None = None) -> Spec:
        require(data.dtype in (np.uint8, *SMALL_INTEGERS[:2], *FLOATS8, FLOAT4), f"data can't be of the dtype of {data}")
        require(data.rank > 1 and indices.dtype in (np.int32, np.int64), f"data must be a matrix or more; there are {data} and {indices}")
        gather, quantize = normalize_axis(self.gather_axis, data.rank), normalize_axis(self.quantize_axis, data.rank)
        require(gather != quantize, f"gather_axis and quantize_axis must differ; both are {gather}")
        packed = self.unpacked(data)
        require(packed == 1 or gather != data.rank - 1, "packed entries can't be gathered along the dim that they are packed in")
        shape = (*data.shape[:-1], data.shape[-1] * packed)
        blocks = -(-shape[quantize] // self.block_size) if self.block_size else 1
        parameters = (*shape[:quantize], blocks, *shape[quantize + 1 :])
        floats = data.dtype in FLOATS8 or data.dtype == FLOAT4
        require(self.block_size > 0 or floats, "block_size 0 is for floats of 8 and 4 bits")
        fits = scales.rank == data.rank and all(
            n == m or (n == 1 and floats and axis != quantize) for axis, (n, m) in enumerate(zip(scales.shape, parameters, strict=True))
        )
        require(scales.dtype in FLOATS and fits, f"scales must have the shape {list(parameters)}; they are {scales}")
        if zero_points is not None:
            wanted = (*parameters[:-1], -(-parameters[-1] // packed))
            legal = zero_points.dtype == data.dtype and zero_points.shape == wanted and not floats
            require(legal, f"zero_points must be like data, of the shape {list(wanted)}; they are {zero_points}")
        return Spec(scales.dtype, (*shape[:gather], *indices.shape, *shape[gather + 1 :]))


@op("com.microsoft::DynamicQuantizeLSTM")
class DynamicQuantizeLSTM(Recurrent):
    """LSTM with 8-bit weights w [D, I, 4 * H] and r [D, H, 4 * H], inputs and hidden states quantized as they come.

    Before its product with the weights x as a whole, and the hidden state at each step, is rounded to 256 values, as
    DynamicQuantizeLinear does. After the inputs of LSTM come scale and zero point of w and of r: [D], or [D, 4 * H].
    """

    gates = 4
    default_activations = ("Sigmoid", "Tanh", "Tanh")

    input_forget: bool = False

    def infer(
        self,
        x: Spec,
        w: Spec,
        r: Spec,
        b: Spec | None,
        sequence_lens: Spec | None,
        initial_h: Spec | None,
        initial_c: Spec | None,
        p: Spec | None,
        *parameters: Spec,
    ) -> tuple[Spec, Spec, Spec]:
        require(w.rank == r.rank == 3, f"w and r must have rank 3; they are {w} and {r}")
        require(len(parameters) == 4, f"scale and zero point of w and r must be given; there are {len(parameters)} of these inputs")
        real = [Spec(np.dtype(np.float32), (weights.shape[0], weights.shape[2], weights.shape[1])) for weights in (w, r)]
        every, last = self.infer_recurrent(x, *real, b, sequence_lens, initial_h=initial_h, initial_c=initial_c)
        require_shape("p", p, (self.directions, 3 * r.shape[1]))
        for weights, scale, zero_point in ((w, *parameters[:2]), (r, *parameters[2:])):
            require_dtype(weights, BYTES, "the weights")
            require(scale.dtype == np.float32, f"scales must be float32; one is {scale}")
            require(zero_point.dtype == weights.dtype, f"zero points must be of the weights' dtype {weights.dtype}; one is {zero_point}")
            for parameter in (scale, zero_point):
                require_shape("scales and zero points", parameter, weights.shape[:1], (weights.shape[0], weights.shape[2]))
        return every, last, last
