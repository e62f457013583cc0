"""Normalizations on GPUs."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.blocked import blocked_shape
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.rows import Rows, around, items
from mnnx.backends.gpu.floats import one_float_only
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.normalization import (
    LRN,
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    LpNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)


def record_rows(
    backend,
    rows: Rows,
    per: str,
    x: DeviceTensor,
    y: DeviceTensor,
    scale: DeviceTensor | Memory | None = None,
    bias: DeviceTensor | Memory | None = None,
    means: DeviceTensor | None = None,
    factors: DeviceTensor | None = None,
    groups: tuple[int, int, int] = (1, 1, 1),
    center: bool = True,
    epsilon: float = 0.0,
    outside: float = 0.0,
    skip: tuple[DeviceTensor, DeviceTensor | None, DeviceTensor | None] | None = None,
) -> None:
    """groups: their number, the channels of one, and the vectors of a channel in it; skip: what is added to x, a tensor and a vector,
    and where the sums go."""
    team, n = rows.team(backend), rows.count * (rows.width if rows.along else 1)
    found = kernel("normalization.rows", storage=backend.storage(x.dtype), width=rows.width, per=per, team=team, skip=skip is not None)
    buffers: list[DeviceTensor | Memory] = [x, scale or x, bias or x, y]
    params: list[float] = [*rows.params, *groups, int(scale is not None), int(bias is not None)]
    if skip is None:
        buffers += [means or y, factors or y]
        params += [int(means is not None), int(factors is not None)]
    else:
        other, shift, sums = skip
        buffers += [other, shift or x, sums or y]
        params += [int(shift is not None), int(sums is not None), other.spec.size // n]
    size, local = items(rows.rows, team, backend)
    backend.commands.record(found, buffers, [*params, float(center), 1.0 / n, epsilon, outside], size, local)


def steps_of_rows(backend, rows: Rows) -> int:
    """Of a work item of what `record_rows` records."""
    return rows.steps(backend, sums=2, walks=1)


def supports_rows(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    shape = inputs[0].shape
    n = math.prod(shape[op.axis % len(shape) :])
    if any(spec is not None and spec.size != n for spec in inputs[1:]):
        return "no kernel for a scale or bias that is broadcast"
    return one_float_only(op, inputs, outputs) if n else "no kernel for empty rows"


@creator(LayerNormalization, RMSNormalization, supports=supports_rows)
def create_rows(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RowNormalizationExecution(op, backend)


class RowNormalizationExecution(GpuExecution):
    """LayerNormalization and RMSNormalization of rows, all dims from `axis` on."""

    in_place = (0,)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return steps_of_rows(self.backend, self._rows(inputs[0]))

    def _rows(self, x: Spec | DeviceTensor) -> Rows:
        axis = self.op.axis % len(x.shape)
        return Rows.of(self.backend.block_width, math.prod(x.shape[:axis]), math.prod(x.shape[axis:]), 1)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, scale, bias), y = (*inputs, None)[:3], outputs[0]
        if x.spec.size == 0:
            return
        rows = self._rows(x)
        center = isinstance(self.op, LayerNormalization)
        means, factors = (*outputs[1:], None, None)[:2] if center else (None, (*outputs[1:], None)[0])
        record_rows(self.backend, rows, "element", x, y, scale, bias, means, factors, center=center, epsilon=self.op.epsilon)


@creator(InstanceNormalization, GroupNormalization, supports=one_float_only)
def create_groups(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return GroupNormalizationExecution(op, backend)


class GroupNormalizationExecution(GpuExecution):
    """InstanceNormalization and GroupNormalization: an instance is a group of one channel."""

    in_place = (0,)

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        known = isinstance(self.op, InstanceNormalization) and all(spec.value is not None for spec in inputs[1:])
        return Layouts.of_images(inputs, outputs, lanes) if known else ()

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return steps_of_rows(self.backend, self._rows(inputs[0].shape, self.way is not None)[0]) if inputs[0].size else 0

    def _rows(self, shape: tuple[int, ...], blocked: bool) -> tuple[Rows, tuple[int, int, int]]:
        """The rows, and their groups as `record_rows` takes them."""
        (batch, channels), pixels, block = shape[:2], math.prod(shape[2:]), self.backend.block_width
        if blocked:
            blocks = -(-channels // block)
            return Rows(batch * blocks, pixels, 1, block, False), (blocks, 1, 1)
        groups = self.op.num_groups if isinstance(self.op, GroupNormalization) else channels
        each = channels // groups
        width = block if pixels % block == 0 else 1
        return Rows(batch * groups, each * pixels // width, 1, width, width > 1), (groups, each, pixels // width)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, scale, bias), y, backend = inputs, outputs[0], self.backend
        if x.spec.size == 0:
            return
        rows, groups = self._rows(x.shape, x.layout > 0)
        if x.layout:
            scale, bias = (_padded(backend, tensor, groups[0] * rows.width) for tensor in (scale, bias))
        per = "lane" if x.layout else "channel"
        record_rows(backend, rows, per, x, y, scale, bias, groups=groups, epsilon=self.op.epsilon)


def _padded(backend, tensor: DeviceTensor, count: int, value: float = 0.0) -> Memory:
    """A constant per channel with a value for lanes past the last channel."""
    return backend.packed(("channels", count, value), tensor.constant, functools.partial(_pad, count=count, value=value))


def _pad(array: np.ndarray, count: int, value: float) -> np.ndarray:
    padded = np.full(count, value, array.dtype)
    padded[: len(array)] = array
    return padded


def supports_affine(op: BatchNormalization, inputs: Specs, outputs: Specs) -> str | None:
    return "no kernel for the training mode" if op.training_mode else one_float_only(op, inputs, outputs)


@creator(BatchNormalization, supports=supports_affine)
def create_affine(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return BatchNormalizationExecution(op, backend)


class BatchNormalizationExecution(GpuExecution):
    """BatchNormalization at inference."""

    in_place = (0,)

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        return Layouts.of_images(inputs, outputs, lanes) if all(spec.value is not None for spec in inputs[1:]) else ()

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, *parameters), y, backend = inputs, outputs[0], self.backend
        if x.spec.size == 0:
            return
        images, channels, *_ = (*x.shape, 1) if x.spec.rank > 1 else (x.shape[0], 1)
        pixels, block = math.prod(x.shape[2:]), backend.block_width
        width = block if x.layout or pixels % block == 0 else 1
        if x.layout:
            channels = blocked_shape(x.shape, x.layout)[1]
            parameters = [_padded(backend, p, channels * block, 1.0) for p in parameters]
        else:
            pixels //= width
        found = kernel("normalization.affine", storage=backend.storage(x.dtype), width=width, blocked=bool(x.layout))
        params = [pixels, images * channels, channels, self.op.epsilon]
        backend.commands.record(found, [x, *parameters, y], params, (pixels, images * channels))


@creator(LpNormalization, supports=one_float_only)
def create_norm(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return NormExecution(op, backend)


class NormExecution(GpuExecution):
    """LpNormalization."""

    in_place = (0,)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return self._rows(inputs[0]).steps(self.backend, sums=1, walks=1)

    def _rows(self, x: Spec | DeviceTensor) -> Rows:
        return Rows.of(self.backend.block_width, *around(x.shape, self.op.axis))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if x.spec.size == 0:
            return
        rows = self._rows(x)
        team = rows.team(self.backend)
        found = kernel("normalization.norm", storage=self.backend.storage(x.dtype), team=team, **rows.form)
        self.backend.commands.record(found, [x, y], [*rows.params, int(self.op.p == 2)], *items(rows.rows, team, self.backend))


def supports_lrn(op: LRN, inputs: Specs, outputs: Specs) -> str | None:
    return one_float_only(op, inputs, outputs) if op.bias > 0 and op.alpha >= 0 else "no kernel for a denominator that may be negative"


@creator(LRN, supports=supports_lrn)
def create_lrn(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return LocalResponseNormalizationExecution(op, backend)


class LocalResponseNormalizationExecution(GpuExecution):
    """LRN over neighbouring channels."""

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return nested(min(self.op.size, inputs[0].shape[1]))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y, op = inputs[0], outputs[0], self.op
        if x.spec.size == 0:
            return
        (batch, channels), pixels, block = x.shape[:2], math.prod(x.shape[2:]), self.backend.block_width
        width = block if pixels % block == 0 else 1
        found = kernel("normalization.lrn", storage=self.backend.storage(x.dtype), width=width)
        params = [pixels // width, channels, (op.size - 1) // 2, op.size // 2, op.alpha / op.size, op.beta, op.bias]
        self.backend.commands.record(found, [x, y], params, (pixels // width, channels, batch))


def _instances(op: MeanVarianceNormalization, shape: tuple[int, ...]) -> int | None:
    """How many rows of neighbours it normalizes; None where others than dims of 1 stand behind an axis."""
    axes = {axis % len(shape) for axis in op.axes}
    kept = [axis for axis, size in enumerate(shape) if size != 1 and axis not in axes]
    last = max(kept, default=-1)
    return None if any(axis < last and shape[axis] != 1 for axis in axes) else math.prod(shape[axis] for axis in kept)


def supports_variance(op: MeanVarianceNormalization, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].size and _instances(op, inputs[0].shape) is None:
        return "no kernel for axes before others that stay"
    return one_float_only(op, inputs, outputs)


@creator(MeanVarianceNormalization, supports=supports_variance)
def create_variance(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return MeanVarianceExecution(op, backend)


class MeanVarianceExecution(GpuExecution):
    """MeanVarianceNormalization of rows."""

    in_place = (0,)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return steps_of_rows(self.backend, self._rows(inputs[0])) if inputs[0].size else 0

    def _rows(self, x: Spec) -> Rows:
        outer = _instances(self.op, x.shape)
        return Rows.of(self.backend.block_width, outer, x.size // outer, 1)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if x.spec.size == 0:
            return
        record_rows(self.backend, self._rows(x.spec), "element", x, y, outside=1e-9)
