"""Means of bytes that stand for numbers, on GPUs."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Specs, Tensors
from mnnx.backends.gpu.constants import POOL_TEAM, WINDOW_DIMS
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.pooling import three_dims
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.pooling import window_counts
from mnnx.schema.ops.quantized_pooling import QuantizedAveragePool, QuantizedGlobalAveragePool

#: Means of more bytes could have sums beyond int32s.
_MOST_BYTES = (1 << 31) // (2 * 255)


def supports(op: QuantizedAveragePool, inputs: Specs, outputs: Specs) -> str | None:
    if inputs[0].rank > 2 + WINDOW_DIMS:
        return f"more than {WINDOW_DIMS} spatial dims"
    return _reason_against(math.prod(op.kernel_shape))


def supports_whole(op: QuantizedGlobalAveragePool, inputs: Specs, outputs: Specs) -> str | None:
    return _reason_against(math.prod(inputs[0].shape[2:]))


def _reason_against(count: int) -> str | None:
    return "it has sums beyond int32s" if count > _MOST_BYTES else None


@creator(QuantizedAveragePool, supports=supports)
def create(op: QuantizedAveragePool, backend, inputs: Specs, outputs: Specs) -> GpuExecution:
    return MeanExecution(op, backend)


@creator(QuantizedGlobalAveragePool, supports=supports_whole)
def create_whole(op: QuantizedGlobalAveragePool, backend, inputs: Specs, outputs: Specs) -> GpuExecution:
    return WholeMeanExecution(op, backend)


class MeanExecution(GpuExecution):
    """A work item per window."""

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return nested(*self.op.kernel_shape)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        (x,), (y,), op, total = inputs, outputs, self.op, outputs[0].spec.size
        if not total:
            return
        geometry = op.geometry(x.shape)
        factors = op.factors(window_counts(geometry, op.count_include_pad)).reshape(-1)
        several = factors.min() < factors.max()
        params = [total, *three_dims(geometry), int(several), op.x_zero, float(op.y_zero)]
        table = self.backend.table(factors if several else factors[:1])
        self.backend.commands.record(_kernel("mean", self.backend, x, y), [x, table, y], params, (total,))


class WholeMeanExecution(GpuExecution):
    """A work group per channel."""

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return nested(-(-math.prod(inputs[0].shape[2:]) // POOL_TEAM))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        (x,), (y,), op = inputs, outputs, self.op
        rows, columns = y.spec.size, math.prod(x.shape[2:])
        if rows:
            params = [rows, columns, op.x_zero, float(np.float32(op.factors(columns))), float(op.y_zero)]
            self.backend.commands.record(_kernel("whole", self.backend, x, y), [x, y], params, (rows * POOL_TEAM,), (POOL_TEAM, 1, 1))


def _kernel(name: str, backend, x: DeviceTensor, y: DeviceTensor) -> Kernel:
    return kernel(f"quantized_pooling.{name}", storage=backend.storage(x.dtype), result=backend.storage(y.dtype))
