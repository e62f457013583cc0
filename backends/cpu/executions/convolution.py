"""Convolutions of float32 with constant weights: as products of matrices, or channel by channel (depthwise); and transposed ones."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments, round_up
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions.blocked_convolution import BlockableConvolution, BlockableTransposed, activation_of
from mnnx.backends.cpu.executions.matmul import Operands, ProductExecution
from mnnx.backends.cpu.executions.pixel_product import PixelProduct
from mnnx.backends.cpu.executions.sliding import band_of, slide_block, slot_bytes
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import Gather, epilogue
from mnnx.backends.cpu.tiling import Tiling, flushed
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.convolution import Conv, ConvTranspose

_FLOAT32 = np.dtype("float32")
#: What a transposed convolution may keep of terms (floats) in working memory.
_MOST_TERMS = 1 << 28


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    return _reason_against_operands(*inputs) or Windows.reason_against(op.geometry(inputs[0].shape, inputs[1].shape))


def supports_transposed(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    if reason := _reason_against_operands(*inputs):
        return reason
    x, w = inputs[:2]
    if Windows.of(op.geometry(x.shape, w.shape)) is None:
        return "it has more than 3 spatial dims"
    terms = x.size // max(1, x.shape[1]) * w.size // w.shape[0] * op.group
    return "its kernel is far larger than the image" if terms > _MOST_TERMS else None


def _reason_against_operands(x: Spec, w: Spec, bias: Spec | None = None, residual: Spec | None = None) -> str | None:
    if x.dtype != _FLOAT32:
        return "only float32 is native"
    if w.value is None or (bias is not None and bias.value is None):
        return "its weights and bias must be constant"
    return None


@creator(Conv, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    x, w = inputs[:2]
    whole = op.group == 1 and x.shape[2:] == w.shape[2:] and outputs[0].size == x.shape[0] * w.shape[0]
    if whole and not Windows.of(op.geometry(x.shape, w.shape)).padded:
        return WholeExecution(op, backend, inputs, outputs)
    depthwise = w.shape[1] == 1 and op.group > 1
    plain = (DepthwiseExecution if depthwise else ConvolutionExecution)(op, backend, inputs, outputs)
    return BlockableConvolution(plain, inputs, outputs)


@creator(ConvTranspose, supports=supports_transposed)
def create_transposed(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return BlockableTransposed(TransposedExecution(op, backend, inputs, outputs), inputs, outputs)


class _Base(Execution):
    """What all have in common: x [N, C, …], the weights' shape, the windows, the epilogue."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.x, self.w = inputs[0].shape, inputs[1].shape
        self.channels = outputs[0].shape[1]
        self.windows = Windows.of(op.geometry(self.x, self.w))
        self.tiling = Tiling.of(backend.target)
        self.empty = outputs[0].size == 0
        self.kind, parameters = epilogue(*activation_of(op))
        self.parameters = np.array(parameters, _FLOAT32)

    def bias(self, tensor: DeviceTensor | None, rows: int) -> np.ndarray:
        """[groups, rows]: the bias of each group's channels, zeros after them and where there is none."""
        groups, channels = self.op.group, self.channels // self.op.group

        def pad(bias: np.ndarray) -> np.ndarray:
            padded = np.zeros((groups, rows), _FLOAT32)
            padded[:, :channels] = bias.reshape(groups, channels)
            return padded

        if tensor is None:
            return np.zeros((groups, rows), _FLOAT32)
        return self.backend.packed(("bias rows", groups, rows), tensor.constant, pad)


class ConvolutionExecution(_Base):
    """A product of matrices, the pixels packed on the fly."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend, inputs, outputs)
        self.in_place = (3,) if len(inputs) > 3 and inputs[3] is not None else ()
        self.product = PixelProduct(backend, self.windows, self.x[0], op.group, self.w[1], self.w[0] // op.group)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 0 if self.empty else self.product.scratch_bytes

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.empty:
            return
        x, w, bias, residual = (*inputs, None, None)[:4]
        weights = self.backend.packed(("convolution", self.op.group, self.tiling.rows), w.constant, self.product.pack_weights)
        self.product.record(
            address_of(x),
            weights,
            self.bias(bias, self.product.tile_rows),
            address_of(outputs[0]),
            0 if residual is None else address_of(residual),
            (self.kind, self.parameters),
            address_of(scratch),
        )


class WholeExecution(ProductExecution):
    """Each window is a whole image: the product x [N, C * pixels] @ w' [C * pixels, M]."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        _, _, bias, residual = (*inputs, None, None)[:4]
        activation, parameters = activation_of(op)
        operands = Operands(
            transpose_b=True,
            bias=None if bias is None else 2,
            residual=None if residual is None else 3,
            activation=activation,
            activation_parameters=parameters,
        )
        super().__init__(op, backend, operands, [_flat(spec) for spec in inputs], [_flat(spec) for spec in outputs])

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        super().on_resize([_flat_tensor(tensor) for tensor in inputs], [_flat_tensor(outputs[0])], scratch)


def _flat(spec: Spec | None) -> Spec | None:
    """[N, …] as a matrix; a bias stays a vector."""
    if spec is None or spec.rank == 1:
        return spec
    shape = (spec.shape[0], math.prod(spec.shape[1:]))
    return Spec(spec.dtype, shape, None if spec.value is None else spec.value.reshape(shape))


def _flat_tensor(tensor: DeviceTensor | None) -> DeviceTensor | None:
    return None if tensor is None else tensor.reshaped(_flat(tensor.spec))


class DepthwiseExecution(_Base):
    """One input channel per group: windows over each channel on its own."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend, inputs, outputs)
        self.band = band_of(self.windows)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.backend.threads * slot_bytes(self.windows, self.band, self.tiling)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.empty:
            return
        x, w, bias, residual = (*inputs, None, None)[:4]
        channels, multiplier = self.x[0] * self.x[1], self.w[0] // self.op.group
        bias_rows = self.bias(bias, multiplier)
        order = self.band.runs()[2]
        weights = self.backend.packed(("depthwise", *order), w.constant, lambda a: flushed(np.take(a.reshape(len(a), -1), order, 1)))
        words, keep = slide_block(
            self.windows, self.band, self.backend, address_of(scratch), channels,
            source=address_of(x),
            fill=0.0,
            weights=address_of(weights),
            bias=address_of(bias_rows),
            outputs=self.w[0],
            multiplier=multiplier,
            target=address_of(outputs[0]),
            residual=0 if residual is None else address_of(residual),
            parameters=address_of(self.parameters),
        )  # fmt: skip
        lanes, fma = self.tiling.lanes, self.tiling.fma
        work = channels * (self.windows.spread_size + multiplier * self.windows.taps * self.windows.pixels) / lanes
        depthwise = kernel("convolution.depthwise", lanes=lanes, fma=fma, kind=self.kind)
        self.backend.commands.record(
            depthwise, arguments(*words), min(channels, self.backend.chunks(work)), (keep, weights, bias_rows, self.parameters)
        )


class TransposedExecution(_Base):
    """A product of matrices gives what each input pixel adds to the output through each tap; then every output pixel gathers its terms."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend, inputs, outputs)
        self.rows = self.w[1] * self.windows.taps
        self.product = PixelProduct(
            backend, Windows.pointwise_over(self.windows.input), self.x[0], op.group, self.x[1] // op.group, self.rows
        )
        self.terms_bytes = round_up(4 * self.x[0] * op.group * self.rows * math.prod(self.windows.input))
        width, stride = self.windows.output[2], self.windows.strides[2]
        self.row_bytes = round_up(4 * stride * -(-width // stride))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        if self.empty:
            return 0
        return self.terms_bytes + self.backend.threads * self.row_bytes + self.product.scratch_bytes

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.empty:
            return
        x, w, bias, residual = (*inputs, None, None)[:4]
        windows, backend, groups = self.windows, self.backend, self.op.group
        terms = address_of(scratch)
        rows_memory = terms + self.terms_bytes

        def pack(w: np.ndarray) -> np.ndarray:
            return self.product.pack_weights(np.swapaxes(w.reshape(groups, -1, self.rows), 1, 2))

        weights = backend.packed(("transposed convolution", groups, self.tiling.rows), w.constant, pack)
        no_bias = np.zeros((groups, self.product.tile_rows), _FLOAT32)
        kind, parameters = epilogue("", ())
        plain = (kind, np.array(parameters, _FLOAT32))
        self.product.record(address_of(x), weights, no_bias, terms, 0, plain, rows_memory + backend.threads * self.row_bytes)
        bias_rows, flags = self.bias(bias, self.channels // groups), np.zeros(backend.threads, np.int64)
        channels = self.x[0] * self.channels
        gather = Gather(
            terms, address_of(bias_rows), self.channels, address_of(outputs[0]), 0 if residual is None else address_of(residual),
            address_of(self.parameters), channels, *windows.input, *windows.kernel, *windows.strides, *windows.dilations, *windows.begin,
            *windows.output, address_of(flags), backend.threads, rows_memory, self.row_bytes,
        )  # fmt: skip
        chunks = min(
            channels * windows.output[0] * windows.output[1], backend.chunks(channels * windows.taps * math.prod(windows.input) / 4)
        )
        record = kernel("convolution.gather", lanes=self.tiling.lanes, fma=self.tiling.fma, kind=self.kind)
        backend.commands.record(record, arguments(*gather), chunks, (bias_rows, flags, self.parameters))
