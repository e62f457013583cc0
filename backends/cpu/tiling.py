"""The shape of the register tiles, and how weights are packed for them: the one place that chooses both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mnnx.backends.cpu.target import Target


@dataclass(frozen=True, slots=True)
class Tiling:
    """A tile is `rows` rows × `vectors` vectors of `lanes` floats; `fma`: whether multiply-adds are one instruction."""

    rows: int
    vectors: int
    lanes: int
    fma: bool

    @classmethod
    def of(cls, target: Target) -> Tiling:
        """The tile that fills the target's vector registers: its sums, one row of b and one element of a stay in them."""
        lanes = target.vector_bytes // 4
        if target.vector_registers >= 32:
            return cls(8, 3, lanes, target.fma)
        return cls(4, 3, lanes, True) if target.fma else cls(4, 2, lanes, False)

    @property
    def columns(self) -> int:
        """The width of a panel of b."""
        return self.vectors * self.lanes

    @property
    def parameters(self) -> dict[str, int | bool]:
        """What kernel factories take."""
        return {"rows": self.rows, "vectors": self.vectors, "lanes": self.lanes, "fma": self.fma}

    def pack_rows(self, a: np.ndarray) -> np.ndarray:
        """a [..., M, K] → [..., M / rows, K, rows], missing rows zero: how convolution weights are read."""
        *batch, m, k = a.shape
        panels = -(-m // self.rows)
        packed = np.zeros((*batch, panels * self.rows, k), a.dtype)
        packed[..., :m, :] = a
        return np.ascontiguousarray(np.swapaxes(packed.reshape(*batch, panels, self.rows, k), -1, -2))

    def pack_columns(self, b: np.ndarray) -> np.ndarray:
        """b [..., K, N] → [..., N / columns, K, columns], missing columns zero: how the right operand of a product is read."""
        *batch, k, n = b.shape
        panels = -(-n // self.columns)
        packed = np.zeros((*batch, k, panels * self.columns), b.dtype)
        packed[..., :n] = b
        return np.ascontiguousarray(np.moveaxis(packed.reshape(*batch, k, panels, self.columns), -2, -3))
