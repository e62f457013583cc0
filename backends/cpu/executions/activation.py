"""Activations along an axis on the CPU; those of single elements are in elementwise.py."""

from __future__ import annotations

import math

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import arguments
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.schema.ops.activation import LogSoftmax, Softmax
from mnnx.schema.ops.base import Op


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    return None if inputs[0].dtype == np.float32 else f"no kernel for {inputs[0].dtype}"


@creator(Softmax, LogSoftmax, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return SoftmaxExecution(op, backend)


class SoftmaxExecution(Execution):
    """Softmax and LogSoftmax of [outer, n, inner] over n."""

    in_place = (0,)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        shape = outputs[0].shape
        if outputs[0].spec.size == 0:
            return
        axis = self.op.axis % len(shape) if shape else 0
        outer, n, inner = math.prod(shape[:axis]), math.prod(shape[axis : axis + 1]), math.prod(shape[axis + 1 :])
        function = kernel("softmax.rows" if inner == 1 else "softmax.columns", logarithm=isinstance(self.op, LogSoftmax))
        chunks = self.backend.chunks(outer * n * inner * 2)
        self.backend.commands.record(function, arguments(inputs[0], outputs[0], outer, n, inner), chunks)
