"""RoiAlign on GPUs."""

from __future__ import annotations

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.indexing import words_of
from mnnx.backends.gpu.floats import FLOATS
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.steps import ENDLESS, nested
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.detection import RoiAlign


def supports(op: RoiAlign, inputs: Specs, outputs: Specs) -> str | None:
    x, rois, _ = inputs
    return None if x.dtype in FLOATS and rois.dtype == x.dtype else f"no kernels for {x.dtype} and regions of {rois.dtype}"


@creator(RoiAlign, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return RoiAlignExecution(op, backend)


class RoiAlignExecution(GpuExecution):
    """A work item per element of the result."""

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        ratio = self.op.sampling_ratio
        return nested(ratio, ratio) if ratio > 0 else ENDLESS

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x, rois, images), y, op = inputs, outputs[0], self.op
        total = y.spec.size
        if not total:
            return
        faults, slot = self.backend.commands.fault(
            f"the batch index of region {{}} is outside [-{x.shape[0]}, {x.shape[0]}), or its corners aren't finite"
        )
        found = kernel("image.regions", storage=self.backend.storage(x.dtype), largest=op.mode == "max")
        half_pixel = op.coordinate_transformation_mode == "half_pixel"
        params = [total, *x.shape, op.output_height, op.output_width, op.sampling_ratio, int(not half_pixel), op.spatial_scale]
        params += [0.5 if half_pixel else 0.0, words_of(images.spec), slot]
        self.backend.commands.record(found, [x, rois, images, y, faults], params, (total,))
