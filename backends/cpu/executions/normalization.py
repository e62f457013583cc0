"""Normalizations on the CPU, in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import blocked_shape
from mnnx.backends.cpu.arguments import arguments, float32_bits
from mnnx.backends.cpu.chaining import Elements, Operand
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)

_FLOAT32 = np.dtype("float32")


def float32_only(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    foreign = {spec.dtype for spec in (*inputs, *outputs) if spec is not None} - {_FLOAT32}
    return f"no kernel for {', '.join(map(str, foreign))}" if foreign else None


def supports_rows(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    shape = inputs[0].shape
    n = math.prod(shape[op.axis % len(shape) :])
    if any(spec is not None and spec.size != n for spec in inputs[1:]):
        return "no kernel for a scale or bias that is broadcast"
    return float32_only(op, inputs, outputs) if n else "no kernel for empty rows"


@creator(LayerNormalization, RMSNormalization, supports=supports_rows)
def create_rows(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RowNormalizationExecution(op, backend)


class RowNormalizationExecution(Execution):
    """LayerNormalization and RMSNormalization of rows, all dims from `axis` on."""

    in_place = (0,)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, scale, bias = (*inputs, None)[:3]
        if x.spec.size == 0:
            return
        axis = self.op.axis % x.spec.rank
        rows, n = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
        center = isinstance(self.op, LayerNormalization)
        mean, deviation = (*outputs[1:], None, None)[:2] if center else (None, (*outputs[1:], None)[0])
        block = arguments(x, outputs[0], rows, n, scale, bias or 0, float32_bits(self.op.epsilon), mean or 0, deviation or 0)
        function = kernel("normalization.rows", center=center, bias=bias is not None)
        self.backend.commands.record(function, block, self.backend.chunks(x.spec.size / 2))


@creator(InstanceNormalization, GroupNormalization, supports=float32_only)
def create_groups(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return GroupNormalizationExecution(op, backend)


class GroupNormalizationExecution(Execution):
    """InstanceNormalization and GroupNormalization: an instance is a group of one channel."""

    in_place = (0,)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, scale, bias = inputs
        if x.spec.size == 0:
            return
        batch, channels = x.shape[:2]
        groups = self.op.num_groups if isinstance(self.op, GroupNormalization) else channels
        block = arguments(
            x, outputs[0], batch * groups, channels // groups, math.prod(x.shape[2:]), scale, bias, float32_bits(self.op.epsilon), groups
        )
        self.backend.commands.record(kernel("normalization.groups"), block, self.backend.chunks(x.spec.size / 2))


def supports_affine(op: BatchNormalization, inputs: Specs, outputs: Specs) -> str | None:
    return "no kernel for the training mode" if op.training_mode else float32_only(op, inputs, outputs)


@creator(BatchNormalization, supports=supports_affine)
def create_affine(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return BatchNormalizationExecution(op, backend)


class BatchNormalizationExecution(Execution):
    """BatchNormalization at inference: a factor and a shift per channel."""

    in_place = (0,)

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return Layouts.of_images(inputs, outputs, lanes) if all(spec.value is not None for spec in inputs[1:]) else ()

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, *parameters = inputs
        spec: Spec = x.spec
        if spec.size == 0:
            return
        channels = x.shape[1] if spec.rank > 1 else 1
        n = math.prod(x.shape[2:])
        if x.layout:
            self._record_blocked(x, outputs[0], [tensor.constant for tensor in parameters])
            return
        block = arguments(x, outputs[0], spec.size // n, channels, n, *parameters, float32_bits(self.op.epsilon))
        self.backend.commands.record(kernel("normalization.affine"), block, self.backend.chunks(spec.size / 4))

    def _record_blocked(self, x: DeviceTensor, y: DeviceTensor, parameters: Sequence[np.ndarray]) -> None:
        scale, bias, mean, variance = (array.astype(np.float64) for array in parameters)
        factor = scale / np.sqrt(variance + self.op.epsilon)
        images, blocks, *_ = shape = blocked_shape(x.shape, x.layout)
        tables = np.zeros((2, blocks * x.layout), _FLOAT32)
        tables[:, : x.shape[1]] = factor, bias - mean * factor
        block = arguments(x, y, images, blocks, math.prod(x.shape[2:]), *tables)
        affine, work = kernel("blocked_affine", lanes=x.layout, fma=self.backend.target.fma), 2 * x.spec.size / x.layout
        count = math.prod(shape)
        read = Operand.of(x, shape, count), Operand.of(tables, tables.shape, 0)
        elements = Elements(count, Operand.of(y, shape, count), read, work)
        self.backend.commands.record(affine, block, self.backend.chunks(work), tables, elements)


def supports_lrn(op: LRN, inputs: Specs, outputs: Specs) -> str | None:
    return float32_only(op, inputs, outputs) if op.bias > 0 and op.alpha >= 0 else "no kernel for a denominator that may be negative"


@creator(LRN, supports=supports_lrn)
def create_lrn(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return LocalResponseNormalizationExecution(op, backend)


class LocalResponseNormalizationExecution(Execution):
    """LRN over neighbouring channels of [batch, channels, n]."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, op = inputs[0], self.op
        if x.spec.size == 0:
            return
        batch, channels = x.shape[:2]
        bits = map(float32_bits, (op.alpha / op.size, op.beta, op.bias))
        block = arguments(x, outputs[0], batch, channels, math.prod(x.shape[2:]), (op.size - 1) // 2, op.size // 2, *bits)
        self.backend.commands.record(kernel("lrn"), block, self.backend.chunks(x.spec.size * 2))
