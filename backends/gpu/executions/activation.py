"""Activations along an axis on GPUs; those of single elements are in elementwise.py."""

from __future__ import annotations

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.rows import Rows, around, items
from mnnx.backends.gpu.floats import floats_only
from mnnx.backends.gpu.kernel import kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.activation import Hardmax, LogSoftmax, Softmax
from mnnx.schema.ops.base import Op, Spec


def record_softmax(
    backend, storage: str, rows: Rows, x: DeviceTensor | Memory, y: DeviceTensor | Memory, logarithm: bool = False, blind: bool = False
) -> None:
    """blind: rows of nothing but -inf become 0; only for rows of neighbours."""
    team = rows.team(backend)
    found = kernel("softmax.rows", storage=storage, team=team, **rows.form)
    backend.commands.record(found, [x, y], [*rows.params, int(logarithm), int(blind)], *items(rows.rows, team, backend))


def steps_of_softmax(backend, rows: Rows) -> int:
    return rows.steps(backend, sums=1, walks=2)


@creator(Softmax, LogSoftmax, supports=floats_only)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return SoftmaxExecution(op, backend)


class SoftmaxExecution(GpuExecution):
    in_place = (0,)

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return steps_of_softmax(self.backend, self._rows(outputs[0]))

    def _rows(self, y: Spec | DeviceTensor) -> Rows:
        return Rows.of(self.backend.block_width, *around(y.shape, self.op.axis))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if y.spec.size:
            record_softmax(self.backend, self.backend.storage(x.dtype), self._rows(y), x, y, isinstance(self.op, LogSoftmax))


@creator(Hardmax, supports=floats_only)
def create_hard(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return HardmaxExecution(op, backend)


class HardmaxExecution(GpuExecution):
    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        _, n, _ = around(outputs[0].shape, self.op.axis)
        return 2 * nested(n)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, y = inputs[0], outputs[0]
        if y.spec.size:
            outer, n, inner = around(y.shape, self.op.axis)
            found = kernel("softmax.hard", storage=self.backend.storage(x.dtype))
            self.backend.commands.record(found, [x, y], [outer * inner, n, inner], (outer * inner,))
