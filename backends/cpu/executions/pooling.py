"""Poolings of float32 images: over windows, and over whole channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import blocked_shape
from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.sliding import ByteWindows, band_of, slide_block, slot_bytes
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import BlockedPooling, Reduction
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool, window_counts
from mnnx.schema.ops.quantization import BYTES
from mnnx.schema.ops.windows import ConvGeometry

_FLOAT32 = np.dtype("float32")


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].dtype != _FLOAT32 and not (isinstance(op, MaxPool) and inputs[0].dtype in BYTES):
        return "only float32 is native, and MaxPool of bytes"
    if len(outputs) > 1 and outputs[1] is not None:
        return "indices are not native"
    return Windows.reason_against(op.geometry(inputs[0].shape))


def supports_whole(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    return None if inputs[0].dtype == _FLOAT32 else "only float32 is native"


@creator(MaxPool, AveragePool, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return PoolExecution(op, backend, inputs) if inputs[0].dtype == _FLOAT32 else BytePoolExecution(op, backend, inputs)


@creator(GlobalAveragePool, GlobalMaxPool, supports=supports_whole)
def create_whole(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return WholePoolExecution(op, backend)


class PoolExecution(Execution):
    """MaxPool and AveragePool: windows over each channel on its own."""

    def __init__(self, op: Op, backend, inputs: Specs):
        super().__init__(op, backend)
        self.geometry = op.geometry(inputs[0].shape)
        self.windows = Windows.of(self.geometry)
        self.band = band_of(self.windows)
        self.tiling = Tiling.of(backend.target)

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return Layouts.of_images(inputs, outputs, lanes) if inputs[0].shape[1] % lanes == 0 or self.geometry.all_see_the_input else ()

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 0 if self.way else self.backend.threads * slot_bytes(self.windows, self.band, self.tiling)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, y = inputs[0], outputs[0]
        channels = x.shape[0] * x.shape[1]
        if not channels:
            return
        largest = isinstance(self.op, MaxPool)
        factor, factors = (1.0, None) if largest else mean_factors(self.geometry, self.op.count_include_pad)
        weights = np.array([factor], _FLOAT32)
        if x.layout:
            self._record_blocked(x, y, weights if factors is None else factors)
            return
        words, keep = slide_block(
            self.windows, self.band, self.backend, address_of(scratch), channels,
            source=address_of(x),
            fill=-math.inf if largest else 0.0,
            weights=address_of(weights),
            bias=0,
            outputs=0,
            multiplier=1,
            target=address_of(y),
            residual=0,
            parameters=0,
            factors=0 if factors is None else address_of(factors),
        )  # fmt: skip
        chunks = min(channels, self.backend.chunks(channels * self.windows.taps * self.windows.pixels / self.tiling.lanes))
        pooling = kernel("pooling.slide", lanes=self.tiling.lanes, combine="max" if largest else "sum")
        self.backend.commands.record(pooling, arguments(*words), chunks, (keep, weights, factors))

    def _record_blocked(self, x: DeviceTensor, y: DeviceTensor, factors: np.ndarray) -> None:
        windows, blocks = self.windows, math.prod(blocked_shape(x.shape, x.layout)[:2])
        block = BlockedPooling(
            address_of(x), address_of(y), blocks, *windows.input, *windows.kernel, *windows.strides, *windows.dilations, *windows.begin,
            *windows.output, address_of(factors), 4 if factors.size > 1 else 0,
        )  # fmt: skip
        chunks = self.backend.chunks(blocks * windows.pixels * (2 + 2 * windows.taps))
        pooling = kernel("blocked_pooling.windows", lanes=x.layout, combine="max" if isinstance(self.op, MaxPool) else "sum")
        self.backend.commands.record(pooling, arguments(*block), chunks, factors)


class BytePoolExecution(Execution):
    """MaxPool of bytes. A window that sees nothing but padding gives their lowest number."""

    def __init__(self, op: Op, backend, inputs: Specs):
        super().__init__(op, backend)
        x = inputs[0].shape
        self.slide = ByteWindows(backend, Windows.of(op.geometry(x)), *x[:2])

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.slide.scratch_bytes

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, y = inputs[0], outputs[0]
        self.slide.record("max", x, y, scratch, -math.inf, np.ones(1, np.float32), np.zeros(1, x.dtype))


class WholePoolExecution(Execution):
    """GlobalAveragePool and GlobalMaxPool."""

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return Layouts.of_images(inputs, outputs, lanes)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        x, y = inputs[0], outputs[0]
        rows, columns = math.prod(x.shape[:2]), math.prod(x.shape[2:])
        if not rows:
            return
        largest, lanes = isinstance(self.op, GlobalMaxPool), x.layout or Tiling.of(self.backend.target).lanes
        if x.layout:
            rows = math.prod(blocked_shape(x.shape, lanes)[:2])
        block = Reduction(address_of(x), address_of(y), rows, columns, float32_bits(1.0 if largest else 1.0 / columns))
        work = rows * columns / (1 if x.layout else lanes)
        pooling = kernel("blocked_pooling.whole" if x.layout else "pooling.whole", lanes=lanes, combine="max" if largest else "sum")
        self.backend.commands.record(pooling, arguments(*block), min(rows, self.backend.chunks(work)))


def mean_factors(geometry: ConvGeometry, include_pad: bool) -> tuple[float, np.ndarray | None]:
    """What a window's sum is multiplied by: one number for all windows, or an array with one per window (0 where nothing counts)."""
    count = window_counts(geometry, include_pad)
    with np.errstate(divide="ignore"):
        factors = np.where(count > 0, 1.0 / count, 0.0).astype(_FLOAT32)
    if factors.min() == factors.max():
        return float(factors.flat[0]), None
    return 1.0, np.ascontiguousarray(factors)
