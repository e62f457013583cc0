"""Means of bytes that stand for numbers."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.sliding import ByteWindows
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import ByteMeans
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.pooling import window_counts
from mnnx.schema.ops.quantized_pooling import QuantizedAveragePool, QuantizedGlobalAveragePool, QuantizedMean

#: Windows of more taps could have sums that floats don't hold exactly.
_MOST_TAPS = (1 << 24) // (2 * 255)
#: Larger channels could have sums beyond int32s.
_LARGEST_CHANNEL = (1 << 31) // 255


def supports(op: QuantizedAveragePool, inputs: Specs, outputs: Specs) -> str | None:
    geometry = op.geometry(inputs[0].shape)
    if math.prod(geometry.kernel) > _MOST_TAPS:
        return "its windows are too large for exact sums"
    return Windows.reason_against(geometry)


def supports_whole(op: QuantizedGlobalAveragePool, inputs: Specs, outputs: Specs) -> str | None:
    return "its channels are too large for exact sums" if math.prod(inputs[0].shape[2:]) >= _LARGEST_CHANNEL else None


@creator(QuantizedAveragePool, supports=supports)
def create(op: QuantizedAveragePool, backend, inputs: Specs, outputs: Specs) -> Execution:
    return MeanExecution(op, backend, inputs)


@creator(QuantizedGlobalAveragePool, supports=supports_whole)
def create_whole(op: QuantizedGlobalAveragePool, backend, inputs: Specs, outputs: Specs) -> Execution:
    return WholeMeanExecution(op, backend)


def _zero(op: QuantizedMean) -> np.ndarray:
    return np.array([op.y_zero], op.made)


class MeanExecution(Execution):
    """Means of windows: x's zero point lies in the padding, and what it adds to every sum is taken off by the bias."""

    def __init__(self, op: QuantizedAveragePool, backend, inputs: Specs):
        super().__init__(op, backend)
        x = inputs[0].shape
        self.geometry = op.geometry(x)
        self.slide = ByteWindows(backend, Windows.of(self.geometry), *x[:2])

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.slide.scratch_bytes

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        op, taps = self.op, self.slide.windows.taps
        factors = np.ascontiguousarray(op.factors(window_counts(self.geometry, op.count_include_pad))).reshape(-1)
        alike = factors.min() == factors.max()
        self.slide.record(
            "dot", inputs[0], outputs[0], scratch,
            fill=float(op.x_zero),
            scales=factors[:1] if alike else np.ones(1, np.float32),
            zero=_zero(op),
            weights=self.slide.pack(np.ones((1, taps), np.float32)),
            bias=np.array([-op.x_zero * taps], np.float32),
            factors=None if alike else factors,
        )  # fmt: skip


class WholeMeanExecution(Execution):
    """Means of whole channels."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        (x,), (y,) = inputs, outputs
        rows, columns, lanes = math.prod(x.shape[:2]), math.prod(x.shape[2:]), Tiling.of(self.backend.target).lanes
        if not rows:
            return
        scale, zero = self.op.factors(columns).reshape(1), _zero(self.op)
        block = ByteMeans(address_of(x), address_of(y), rows, columns, columns * self.op.x_zero, address_of(scale), address_of(zero))
        means = kernel("byte_windows.means", lanes=lanes, source=x.dtype.name, target=y.dtype.name)
        self.backend.commands.record(means, arguments(*block), self.backend.chunks(rows * (columns / lanes + 8)), (scale, zero))
