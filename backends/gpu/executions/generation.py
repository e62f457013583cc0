"""EyeLike on GPUs."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.indexing import unmovable
from mnnx.backends.gpu.kernel import kernel
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.generation import EyeLike


@creator(EyeLike, supports=lambda op, inputs, outputs: unmovable(outputs[0]))
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return EyeLikeExecution(op, backend)


class EyeLikeExecution(GpuExecution):
    """A work item per element: one of two values."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        y, total = outputs[0], outputs[0].spec.size
        if total:
            rows, columns = y.shape
            storage, width, _ = self.backend.raw_storage(y.dtype)
            values = self.backend.table(self.backend.to_storage(np.array([0, 1]).astype(y.dtype)))
            params = [total, columns, min(max(self.op.k, -rows), columns)]
            self.backend.commands.record(kernel("generation.eye", storage=storage, width=width), [values, y], params, (total,))
