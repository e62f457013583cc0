"""GridSample and AffineGrid on GPUs."""

from __future__ import annotations

import math

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.floats import FLOATS, floats_only
from mnnx.backends.gpu.kernel import kernel
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.image import AffineGrid, GridSample

_MODES, _PADDINGS = ("nearest", "linear", "cubic"), ("zeros", "border", "reflection")


def supports_sample(op: GridSample, inputs: Specs, outputs: Specs) -> str | None:
    if foreign := {spec.dtype for spec in inputs} - FLOATS:
        return f"no kernels for {', '.join(sorted(map(str, foreign)))}"
    return "more than 3 spatial dims" if inputs[0].rank > 5 else None


@creator(GridSample, supports=supports_sample)
def create_sample(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return GridSampleExecution(op, backend)


class GridSampleExecution(GpuExecution):
    """A work item per element of the result."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, grid), (y,), total = inputs, outputs, outputs[0].spec.size
        if not total:
            return
        op, dims = self.op, x.spec.rank - 2
        found = kernel("image.sample", storage=self.backend.storage(x.dtype), grid=self.backend.storage(grid.dtype))
        params = [total, x.shape[1], math.prod(y.shape[2:]), dims, *_three(x.shape[2:])]
        params += [_MODES.index(op.mode), _PADDINGS.index(op.padding_mode), int(op.align_corners)]
        self.backend.commands.record(found, [x, grid, y], params, (total,))


def _three(sizes: tuple[int, ...]) -> list[int]:
    return [1] * (3 - len(sizes)) + list(sizes)


@creator(AffineGrid, supports=floats_only)
def create_grid(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return AffineGridExecution(op, backend)


class AffineGridExecution(GpuExecution):
    """A work item per coordinate."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        theta, y, total = inputs[0], outputs[0], outputs[0].spec.size
        if total:
            found = kernel("image.affine_grid", storage=self.backend.storage(theta.dtype))
            params = [total, y.shape[-1], *_three(y.shape[1:-1]), int(self.op.align_corners)]
            self.backend.commands.record(found, [theta, y], params, (total,))
