"""A Step: what becomes a Unit once layouts are chosen and memory is planned."""

from __future__ import annotations

from collections.abc import Sequence

from mnnx.backends.backend import Backend, Execution, Specs
from mnnx.backends.tensor import DeviceTensor
from mnnx.interpreter.memory import Buffer
from mnnx.schema.model import Node
from mnnx.schema.ops.base import Op
from mnnx.schema.records import Record


class Movement(Record):
    """What a Raster was made of: a node's op with its Specs, and which of its outputs the Raster is."""

    op: Op
    inputs: Specs
    outputs: Specs
    slot: int


class Step(Record):
    """`op` is the node's own, or what it was rewritten into; inputs and outputs are values, -1 for those left out.

    Steps of one `wave` run at the same time but for those of one `lane` (`waves.py`).
    """

    node: Node
    op: Op
    inputs: Sequence[int]
    outputs: Sequence[int]
    backend: Backend
    reason: str
    execution: Execution
    movement: Movement | None = None
    working_memory: Buffer | None = None
    scratch: DeviceTensor | None = None
    wave: int = 0
    lane: int = 0
