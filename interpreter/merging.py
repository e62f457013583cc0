"""Lets ops write straight into the tensor that their results are copied to: the parts of a Concat lie side by side from the start."""

from __future__ import annotations

from collections.abc import Sequence

from mnnx.interpreter.step import Step
from mnnx.interpreter.values import Values
from mnnx.schema.ops.raster import FILL, Raster, Region


def merge_copies(values: Values, steps: Sequence[Step]) -> list[Step]:
    """The steps without the copies of whole values that can be views of the copy instead: one dense, aligned piece of it each."""
    makers = {index: step for step in steps for index in step.outputs}
    rest: list[Step] = []
    for step in steps:
        if isinstance(step.op, Raster):
            regions = [region for region in step.op.regions if not _lies_there(values, makers, step, region)]
            if step.op.regions and not regions:
                continue
            if len(regions) < len(step.op.regions):
                step.op = Raster(step.op.dtype, step.op.shape, regions, step.op.fill)
                specs = [None if i < 0 else values.specs[i] for i in step.inputs]
                way, step.execution = step.execution.way, step.backend.create(step.op, specs, [values.specs[step.outputs[0]]])
                step.execution.way = way
        rest.append(step)
    return rest


def _lies_there(values: Values, makers: dict[int, Step], step: Step, region: Region) -> bool:
    """Makes the source of a region a view of the target where that is possible."""
    if region.source_index == FILL or region.source_strides != (1,) or region.target_strides != (1,):
        return False
    source, target = step.inputs[region.source_index], step.outputs[0]
    itemsize = values.specs[target].dtype.itemsize
    offset = region.target_offset * itemsize
    if region.source_offset or offset % step.backend.alignment or region.count * itemsize != values.nbytes(source):
        return False
    root = values.root(source)
    if root not in makers or makers[root].backend is not step.backend or root == target:
        return False
    if values.nbytes(root) != values.nbytes(source):  # a part of something
        return False
    values.views[root] = (target, offset)
    return True
