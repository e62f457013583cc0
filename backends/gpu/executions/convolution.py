"""Convolutions on GPUs, plain and fused: blocked where the planner chooses so."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.epilogue import activation_params
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.convolution import Conv

_FLOAT16, _FLOAT32 = np.dtype("float16"), np.dtype("float32")


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    x, w = inputs[:2]
    if x.dtype not in (_FLOAT16, _FLOAT32):
        return f"no kernels for {x.dtype}"
    return "it has more than 3 spatial dims" if Windows.of(op.geometry(x.shape, w.shape)) is None else None


@creator(Conv, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ConvolutionExecution(op, backend, inputs, outputs)


def pack_weights(w: np.ndarray, groups: int, source: int, block: int) -> np.ndarray:
    """[M, C / groups, *kernel] → [blocks of M, taps, blocks of C / groups, source, block], each group's blocks begun anew."""
    outputs, inputs = w.shape[0] // groups, w.shape[1]
    out_blocks, in_blocks = -(-outputs // block), -(-inputs // source)
    padded = np.zeros((groups, out_blocks * block, in_blocks * source, w[0, 0].size), w.dtype)
    padded[:, :outputs, :inputs] = w.reshape(groups, outputs, inputs, -1)
    return np.ascontiguousarray(padded.reshape(groups, out_blocks, block, in_blocks, source, -1).transpose(0, 1, 5, 3, 4, 2))


def pack_bias(bias: np.ndarray | None, groups: int, channels: int, block: int) -> np.ndarray:
    """[M] → [blocks of M, block] in float32, zeros where there is none."""
    blocks = -(-(channels // groups) // block)
    padded = np.zeros((groups, blocks * block), np.float32)
    if bias is not None:
        padded[:, : channels // groups] = bias.reshape(groups, -1)
    return padded


class ConvolutionExecution(GpuExecution):
    """Conv and FusedConv."""

    def __init__(self, op: Op, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        x, w, bias, residual = (*inputs, None, None)[:4]
        self.x, self.w = x.shape, w.shape
        self.windows = Windows.of(op.geometry(x.shape, w.shape))
        self.channels = outputs[0].shape[1]
        self.constant = w.value is not None and (bias is None or bias.value is not None)
        self.storage = backend.storage(x.dtype)
        self.in_place = () if residual is None else (3,)
        self.depthwise = op.group > 1 and w.shape[:2] == (op.group, 1)

    # ---- layouts
    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        saves = self.op.flops(inputs, outputs) * (1.0 if self.depthwise else 0.3)
        residual = len(inputs) > 3 and inputs[3] is not None
        rest = [lanes if i == 3 and residual else 0 for i in range(1, len(inputs))]
        return [Layouts((source, *rest), (lanes,), saves) for source in self._sources(inputs[0], lanes)]

    def _sources(self, x: Spec, lanes: int) -> list[int]:
        """The layouts of x that give a blocked result."""
        groups = self.op.group
        if not self.constant or x.dtype != _FLOAT32:
            return []
        if self.depthwise:
            return [lanes]
        if groups == 1:
            return [0, lanes]
        return [] if self.channels // groups % lanes else [0] if self.w[1] % lanes else [0, lanes]

    @property
    def blocked(self) -> bool:
        return self.way is not None and self.way.outputs[0] > 0

    # ---- padding
    @property
    def _source(self) -> int:
        """Width of the blocks in which x lies."""
        return self.way.inputs[0] or 1 if self.way is not None else 1

    @property
    def _padded(self) -> bool:
        """Whether the windows are laid over a copy of x that has its padding."""
        return self.backend.device.profile.pads and self.windows.padded and self._as_product

    @property
    def _as_product(self) -> bool:
        if self.blocked:
            return not self.depthwise
        return self.constant and 2 * self.channels // self.op.group >= self.backend.block_width

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        if not self._padded:
            return 0
        blocks = -(-self.x[1] // self._source)
        return self.x[0] * blocks * self._source * self.windows.after_padding().in_pixels * (2 if self.storage == "half" else 4)

    # ---- work
    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if outputs[0].spec.size == 0:
            return
        if self._as_product:
            self._record_product(inputs, outputs[0], scratch)
        elif self.blocked:
            self._record_depthwise(inputs, outputs[0])
        else:
            self._record_direct(inputs, outputs[0])

    @property
    def _activation(self) -> list[int | float]:
        op = self.op
        return activation_params(op.activation, op.activation_parameters) if hasattr(op, "activation") else activation_params("", ())

    def _bias(self, bias: DeviceTensor | None) -> Memory:
        constant = None if bias is None else bias.constant
        return self.backend.table(pack_bias(constant, self.op.group, self.channels, self.backend.block_width))

    def _record_product(self, inputs: Tensors, y: DeviceTensor, scratch: DeviceTensor | None) -> None:
        x, w, bias, residual = (*inputs, None, None)[:4]
        backend, windows, source, block, groups = self.backend, self.windows, self._source, self.backend.block_width, self.op.group
        in_blocks = -(-self.x[1] // source)
        if self._padded:
            windows = self.windows.after_padding()
            pad = kernel("convolution.pad", storage=self.storage, width=source)
            params = [*self.windows.input, *windows.input, *self.windows.begin]
            backend.commands.record(pad, [x, scratch], params, (windows.in_pixels, self.x[0] * in_blocks))
            x = scratch
        pack = functools.partial(pack_weights, groups=groups, source=source, block=block)
        weights = backend.packed(("convolution", groups, source, block), w.constant, pack)
        group_out_blocks = -(-(self.channels // groups) // block)
        out_blocks = groups * group_out_blocks
        profile = backend.device.profile
        rows, vectors = profile.rows, profile.vectors
        if group_out_blocks % vectors and groups > 1:
            vectors = 1
        product = kernel(
            "convolution.product",
            storage=self.storage,
            source=source,
            block=block,
            target=block if self.blocked else 1,
            rows=rows,
            vectors=vectors,
            inside=profile.pads,
        )
        params = [
            *windows.params, in_blocks, in_blocks // groups, out_blocks, group_out_blocks, self.channels // groups, 0,
            int(residual is not None), *self._activation,
        ]  # fmt: skip
        size = (-(-windows.out_pixels // rows), -(-out_blocks // vectors), self.x[0])
        buffers = [x, weights, self._bias(bias), y if residual is None else residual, y]
        backend.commands.record(product, buffers, params, size, profile.tile_group)

    def _record_depthwise(self, inputs: Tensors, y: DeviceTensor) -> None:
        x, w, bias, residual = (*inputs, None, None)[:4]
        backend, windows, block = self.backend, self.windows, self.backend.block_width
        blocks = -(-self.channels // block)

        def pack(w: np.ndarray) -> np.ndarray:
            return np.ascontiguousarray(pack_weights(w.reshape(1, len(w), -1).swapaxes(0, 1), 1, 1, block))

        weights = backend.packed(("depthwise", block), w.constant, pack)
        memory = backend.table(pack_bias(None if bias is None else bias.constant, 1, self.channels, block))
        columns = 4
        found = kernel("convolution_depthwise", storage=self.storage, block=block, columns=columns)
        out_d, out_h, out_w = windows.output
        planes = self.x[0] * blocks
        params = [*windows.params, blocks, planes, int(residual is not None), *self._activation]
        buffers = [x, weights, memory, y if residual is None else residual, y]
        size = (-(-out_w // columns), out_d * out_h, planes)
        backend.commands.record(found, buffers, params, size, backend.device.profile.tile_group)

    def _record_direct(self, inputs: Tensors, y: DeviceTensor) -> None:
        x, w, bias, residual = (*inputs, None, None)[:4]
        found = kernel("convolution_direct", storage=self.storage, transposed=False)
        params = [
            *self.windows.params, self.channels, self.w[1], self.channels // self.op.group,
            int(bias is not None), int(residual is not None), *self._activation,
        ]  # fmt: skip
        buffers = [x, w, y if bias is None else bias, y if residual is None else residual, y]
        self.backend.commands.record(found, buffers, params, (self.windows.out_pixels, self.channels, self.x[0]))
