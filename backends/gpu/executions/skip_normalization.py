"""Normalizations of residual sums on GPUs."""

from __future__ import annotations

import math

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.normalization import record_rows, steps_of_rows
from mnnx.backends.gpu.executions.rows import Rows
from mnnx.backends.gpu.floats import one_float_only
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.skip_normalization import SkipLayerNormalization, SkipSimplifiedLayerNormalization


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    if any(spec is not None for spec in outputs[1:3]):
        return "no kernel for means and deviations of sums"
    return one_float_only(op, inputs, outputs) if inputs[0].shape[-1] else "no kernel for empty rows"


@creator(SkipLayerNormalization, SkipSimplifiedLayerNormalization, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return SkipNormalizationExecution(op, backend)


class SkipNormalizationExecution(GpuExecution):
    """SkipLayerNormalization and SkipSimplifiedLayerNormalization."""

    in_place = (0,)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return steps_of_rows(self.backend, self._rows(inputs[0]))

    def _rows(self, x: Spec | DeviceTensor) -> Rows:
        return Rows.of(self.backend.block_width, math.prod(x.shape[:-1]), x.shape[-1], 1)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, skip, scale, *vectors = (*inputs, None, None)
        center = isinstance(self.op, SkipLayerNormalization)
        bias, shift = vectors[:2] if center else (None, vectors[0])
        y, sums = outputs[0], outputs[3] if len(outputs) > 3 else None
        if x.spec.size == 0:
            return
        options = {"center": center, "epsilon": self.op.epsilon, "skip": (skip, shift, sums)}
        record_rows(self.backend, self._rows(x), "element", x, y, scale, bias, **options)
