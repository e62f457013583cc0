"""Convolutions of float32 with constant weights: as products of matrices, or channel by channel (depthwise)."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import MULTIPLY, PACK, SLIDE_ROWS, Convolution, Slide, Spread, epilogue
from mnnx.backends.cpu.tiling import Tiling
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.convolution import Conv

_FLOAT32 = np.dtype("float32")
#: Packed pixels that meet all weights while they are in cache; what is left of an L2 cache of 512 KiB beside the weights passing by.
_BLOCK_BYTES = 256 * 1024
#: Fewer rows of weights than this read pixels in place rather than to pack them first.
_ROWS_WORTH_PACKING = 40
#: The spread rows that windows slide over at a time, in bytes.
_BAND_BYTES = 16 * 1024


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    x, w, bias = (*inputs, None)[:3]
    if x.dtype != _FLOAT32:
        return "only float32 is native"
    if w.value is None or (bias is not None and bias.value is None):
        return "its weights and bias must be constant"
    return Windows.reason_against(op.geometry(x.shape, w.shape))


@creator(Conv, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    depthwise = inputs[1].shape[1] == 1 and op.group > 1
    return (DepthwiseExecution if depthwise else ConvolutionExecution)(op, backend, inputs, outputs)


class _Base(Execution):
    """What the ways to convolve have in common: x [N, C, …], w [M, C / group, …], the windows, the epilogue."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.x, self.w = inputs[0].shape, inputs[1].shape
        self.windows = Windows.of(op.geometry(self.x, self.w))
        self.tiling = Tiling.of(backend.target)
        self.empty = outputs[0].size == 0
        activation = (op.activation, op.activation_parameters) if hasattr(op, "activation") else ("", ())
        self.kind, parameters = epilogue(*activation)
        self.parameters = np.array(parameters, _FLOAT32)

    def bias(self, tensor: DeviceTensor | None, rows: int) -> np.ndarray:
        """[groups, rows]: the bias of each group's channels, zeros after them and where there is none."""
        groups, channels = self.op.group, self.w[0] // self.op.group

        def pad(bias: np.ndarray) -> np.ndarray:
            padded = np.zeros((groups, rows), _FLOAT32)
            padded[:, :channels] = bias.reshape(groups, channels)
            return padded

        if tensor is None:
            return np.zeros((groups, rows), _FLOAT32)
        return self.backend.packed(("bias rows", groups, rows), tensor.constant, pad)

    def record(self, name: str, block: np.ndarray, chunks: int, keep=None, **parameters) -> None:
        self.backend.commands.record(kernel(name, **parameters), block, chunks, keep)


class ConvolutionExecution(_Base):
    """A product of matrices, the pixels packed on the fly."""

    in_place = (3,)

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend, inputs, outputs)
        windows, tiling = self.windows, self.tiling
        self.rows, self.depth = self.w[0] // op.group, self.w[1] * windows.taps
        self.items = self.x[0] * op.group
        self.tiles, panels = -(-self.rows // tiling.rows), -(-windows.pixels // tiling.columns)
        self.panel_bytes = 4 * tiling.columns * self.depth
        self.direct = not windows.spread_needed
        self.reads_in_place = windows.pointwise and self.rows < _ROWS_WORTH_PACKING
        threads, wanted = backend.threads, 4 * backend.threads
        self.block = max(1, min(panels, _BLOCK_BYTES // self.panel_bytes))
        if threads > 1:  # enough blocks for all threads, if there are as many panels
            self.block = max(1, min(self.block, self.items * panels // wanted))
        tasks = self.items * -(-panels // self.block)
        self.packs_first = threads > 1 and tasks < wanted and not self.reads_in_place
        self.row_chunks = min(self.tiles, -(-wanted // max(1, tasks))) if self.packs_first or self.reads_in_place else 1
        self.tasks = tasks * self.row_chunks
        self.item_bytes = panels * self.panel_bytes
        self.slot_bytes = self.block * self.panel_bytes
        self.spread_bytes = 0 if self.direct else _round_up(4 * (self.x[0] * self.x[1] * windows.spread_size + tiling.lanes))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return (
            0
            if self.empty
            else self.spread_bytes + (self.items * self.item_bytes if self.packs_first else self.backend.threads * self.slot_bytes)
        )

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.empty:
            return
        x, w, bias, residual = (*inputs, None, None)[:4]
        windows, tiling, op, threads = self.windows, self.tiling, self.op, self.backend.threads
        scratch_start = address_of(scratch)
        source, channel_size, (_, source_rows, source_columns) = address_of(x), math.prod(windows.input), windows.input
        if not self.direct:
            source, channel_size, (_, source_rows, source_columns) = scratch_start, windows.spread_size, windows.spread
            block = spread_block(windows, address_of(x), source, self.x[0] * self.x[1], 0.0)
            chunks = self.backend.chunks(self.x[0] * self.x[1] * windows.spread_size / tiling.lanes)
            self.record("spread.images", block, chunks, lanes=tiling.lanes)
        weights = self.backend.packed(
            ("convolution rows", op.group, tiling.rows), w.constant, lambda a: tiling.pack_rows(a.reshape(op.group, self.rows, self.depth))
        )
        offsets = (4 * (np.arange(self.w[1])[:, None] * channel_size + windows.tap_offsets())).astype(np.int64).ravel()
        bias_rows = self.bias(bias, self.tiles * tiling.rows)
        flags = np.zeros(threads, np.int64)
        height, width = (1, windows.pixels) if windows.pointwise else windows.output[1:]
        values = Convolution(
            source=source,
            image_bytes=4 * self.x[1] * channel_size,
            group_bytes=4 * self.w[1] * channel_size,
            offsets=address_of(offsets),
            width=width,
            height=height,
            row_stride=4 * source_columns,
            plane_stride=4 * source_rows * source_columns,
            slack=not self.direct,
            weights=address_of(weights),
            weight_bytes=weights[0].nbytes,
            bias=address_of(bias_rows),
            target=address_of(outputs[0]),
            residual=0 if residual is None else address_of(residual),
            parameters=address_of(self.parameters),
            images=self.x[0],
            groups=op.group,
            rows=self.rows,
            depth=self.depth,
            pixels=windows.pixels,
            block_panels=self.block,
            row_chunks=1,
            packed=scratch_start + self.spread_bytes,
            packed_bytes=self.item_bytes if self.packs_first else 0,
            flags=address_of(flags),
            slots=threads,
            slot_bytes=self.slot_bytes,
            to_do=PACK | MULTIPLY,
            in_place=4 * channel_size if self.reads_in_place else 0,
        )
        keep = (weights, bias_rows, offsets, flags, self.parameters)
        if self.packs_first:
            pack = values._replace(to_do=PACK, block_panels=1)
            panels = self.item_bytes // self.panel_bytes
            self._record(pack, self.backend.chunks(self.items * self.item_bytes / tiling.lanes), keep, self.items * panels)
            values = values._replace(to_do=MULTIPLY)
        values = values._replace(row_chunks=self.row_chunks)
        work = self.items * self.tiles * tiling.rows * self.depth * windows.pixels / tiling.lanes
        self._record(values, self.backend.chunks(work), keep, self.tasks)

    def _record(self, values: Convolution, chunks: int, keep, tasks: int) -> None:
        self.record("convolution.product", arguments(*values), min(chunks, tasks), keep, kind=self.kind, **self.tiling.parameters)


class DepthwiseExecution(_Base):
    """One input channel per group: windows over each channel on its own."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend, inputs, outputs)
        self.band = band_of(self.windows)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.backend.threads * slot_bytes(self.band, self.tiling)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.empty:
            return
        x, w, bias, residual = (*inputs, None, None)[:4]
        channels = self.x[0] * self.x[1]
        multiplier = self.w[0] // self.op.group
        bias_rows = self.bias(bias, multiplier)
        block, keep = slide_block(
            self.windows, self.band, self.backend, scratch, channels,
            source=address_of(x),
            fill=0.0,
            weights=address_of(w),
            bias=address_of(bias_rows),
            outputs=self.w[0],
            multiplier=multiplier,
            target=address_of(outputs[0]),
            residual=0 if residual is None else address_of(residual),
            parameters=address_of(self.parameters),
        )  # fmt: skip
        work = channels * (self.windows.spread_size + multiplier * self.windows.taps * self.windows.pixels) / self.tiling.lanes
        chunks = min(channels, self.backend.chunks(work))
        self.record(
            "convolution.depthwise",
            block,
            chunks,
            (keep, bias_rows, self.parameters),
            lanes=self.tiling.lanes,
            fma=self.tiling.fma,
            kind=self.kind,
        )


def spread_block(windows: Windows, source: int, target: int, channels: int, fill: float) -> np.ndarray:
    """The argument block of spread.images."""
    size = math.prod(windows.input)
    spread = Spread(source, target, channels, 4 * size, 4 * windows.spread_size, windows.spread_rows, float32_bits(fill))
    return arguments(*spread, *windows.geometry)


def band_of(windows: Windows) -> Windows:
    """The windows of as many rows as a kernel that slides over single channels does together: their spread image stays in the L1 cache."""
    row_bytes = 4 * math.prod(windows.phases) * windows.spread[0] * windows.spread[2]
    halo = windows.spread[1] - windows.output[1]
    rows = (_BAND_BYTES // row_bytes - halo) // SLIDE_ROWS * SLIDE_ROWS
    return windows.band(min(windows.output[1], max(SLIDE_ROWS, rows)))


def slot_bytes(band: Windows, tiling: Tiling) -> int:
    """Working memory per thread of a kernel that slides windows over single channels, `band` by band."""
    return _round_up(4 * (band.spread_size + 2 * tiling.lanes))


def slide_block(
    windows: Windows, band: Windows, backend, scratch: DeviceTensor, channels: int, *, fill: float, factors: int = 0, **values: int
):
    """The argument block of a kernel that slides windows over single channels, and what it refers to."""
    offsets, flags = 4 * band.tap_offsets(), np.zeros(backend.threads, np.int64)
    planes, height, width = windows.output
    slide = Slide(
        channels=channels,
        channel_bytes=4 * math.prod(windows.input),
        band=band.output[1],
        spread_rows=band.spread_rows,
        fill=float32_bits(fill),
        offsets=address_of(offsets),
        taps=windows.taps,
        planes=planes,
        height=height,
        width=width,
        row_stride=4 * band.spread[2],
        plane_stride=4 * band.spread[1] * band.spread[2],
        factors=factors,
        flags=address_of(flags),
        slots=backend.threads,
        memory=address_of(scratch),
        slot_bytes=slot_bytes(band, Tiling.of(backend.target)),
        **values,
    )
    return arguments(*slide, *band.geometry), (offsets, flags)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
