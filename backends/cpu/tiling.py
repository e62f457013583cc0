"""The shape of the register tiles, and how weights are packed for them: the one place that chooses both."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.cpu.arguments import aligned, aligned_copy
from mnnx.backends.cpu.target import Target
from mnnx.schema.records import Row

_TINY = np.finfo(np.float32).tiny


def flushed(weights: np.ndarray) -> np.ndarray:
    """float32 weights without subnormal numbers, with which some CPUs multiply a hundred times slower. Trained weights hold many."""
    if weights.dtype == np.float32 and weights.size:
        weights[np.abs(weights) < _TINY] = 0
    return weights


def block_bytes(target: Target) -> int:
    """How much is packed to meet all weights while it is in the L2 cache, beside the weights that pass by."""
    return min(256 * 1024, target.caches[1] // 2)


class Tiling(Row):
    """A tile is `rows` rows × `vectors` vectors of `lanes` floats; `fma`: whether multiply-adds are one instruction.

    `dot`: how products of bytes are made (a mode of kernels/dot.py).
    """

    rows: int
    vectors: int
    lanes: int
    fma: bool
    dot: str = "pairs"

    @classmethod
    def of(cls, target: Target) -> Tiling:
        """The tile that fills the target's vector registers: its sums, one row of b and one element of a stay in them.

        With vectors of four, whose lanes NEON multiplies by, that is a vector of each row of a.
        """
        lanes = target.vector_bytes // 4
        dot = {"avx512vnni": "vnni", "avxvnni": "vnni", "dotprod": "dotprod"}.get(target.dot_product or "", "pairs")
        if dot == "pairs" and target.level.name.startswith("x86-64"):
            dot = "madd"
        if target.vector_registers >= 32:
            return cls(8, 2 if lanes == 4 else 3, lanes, target.fma, dot)
        return cls(4, 3, lanes, True, dot) if target.fma else cls(4, 2, lanes, False, dot)

    @classmethod
    def choices(cls, target: Target) -> tuple[Tiling, ...]:
        """That of `of`, and one of another width, which wastes less where a matrix is narrow or the last panel is."""
        usual = cls.of(target)
        if usual.lanes == 4 and usual.fma:
            return usual, usual._replace(rows=6, vectors=3)
        return usual, usual._replace(rows=usual.rows * 3 // 2, vectors=2)

    @property
    def columns(self) -> int:
        """The width of a panel of b."""
        return self.vectors * self.lanes

    def rows_of(self, vectors: int) -> int:
        """The rows of a tile of so many vectors that needs no more registers, up to 8."""
        return max(1, min(8, self.rows * self.vectors // vectors))

    @property
    def parameters(self) -> dict[str, int | bool]:
        """What kernel factories take."""
        return {"rows": self.rows, "vectors": self.vectors, "lanes": self.lanes, "fma": self.fma}

    @property
    def dot_parameters(self) -> dict[str, int | str]:
        """What factories of kernels for bytes take."""
        return {"rows": self.rows, "vectors": self.vectors, "lanes": self.lanes, "mode": self.dot}

    @property
    def dot_group(self) -> int:
        """Elements per 32-bit word of a product of bytes."""
        return 2 if self.dot in ("madd", "pairs") else 4

    @property
    def element_size(self) -> int:
        """Bytes of an element of such a word."""
        return 4 // self.dot_group

    def words(self, depth: int) -> int:
        return -(-depth // self.dot_group)

    def flip(self, dtype: np.dtype) -> bool:
        """Whether the left operand (pixels, rows of a) must change its signedness for the mode."""
        signed = dtype == np.int8
        return {"vnni": signed, "dotprod": not signed}.get(self.dot, False)

    def signed_words(self, b: np.ndarray) -> np.ndarray:
        """Bytes [..., depth] → int32 words [..., words]; uint8s less 128 where elements are bytes."""
        *batch, depth = b.shape
        wide = np.zeros((*batch, self.words(depth) * self.dot_group), np.int16)
        wide[..., :depth] = b
        if self.dot_group == 4 and b.dtype == np.uint8:
            wide[..., :depth] -= 128
        return wide.astype(np.int16 if self.dot_group == 2 else np.int8).view(np.int32)

    def signed_zero(self, zero: np.ndarray) -> np.ndarray:
        """Zero points of the right operand, as they are among `signed_words`, in int32."""
        return zero.astype(np.int32) - (128 if self.dot_group == 4 and zero.dtype == np.uint8 else 0)

    def pack_rows(self, a: np.ndarray) -> np.ndarray:
        """a [..., M, K] → [..., M / rows, K, rows], missing rows zero: how convolution weights are read."""
        *batch, m, k = a.shape
        panels = -(-m // self.rows)
        packed = np.zeros((*batch, panels * self.rows, k), a.dtype)
        packed[..., :m, :] = a
        return aligned_copy(np.swapaxes(flushed(packed).reshape(*batch, panels, self.rows, k), -1, -2))

    def pack_columns(self, b: np.ndarray) -> np.ndarray:
        """b [..., K, N] → [..., N / columns, K, columns], missing columns zero: how the right operand of a product is read."""
        *batch, k, n = b.shape
        panels = -(-n // self.columns)
        shape = (*batch, panels, k, self.columns)
        packed = aligned(math.prod(shape) * b.itemsize).view(b.dtype).reshape(shape)
        for panel in range(panels):  # one at a time: what is copied once more stays in the cache
            part = b[..., panel * self.columns : (panel + 1) * self.columns]
            packed[..., panel, :, : part.shape[-1]] = flushed(part.copy("K"))
        return packed
