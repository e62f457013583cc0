"""A Unit: one op of a plan with its execution, its tensors, and its part of the backend's command list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mnnx.backends.backend import Execution
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.model import Node
from mnnx.schema.ops.base import Op


class CallbackStop(Exception):
    """A callback returned False: the run ends here."""


class OperatorInfo(NamedTuple):
    """What a callback is told of the op that is about to run, or has run."""

    name: str
    type: str
    backend: str


class Placement(NamedTuple):
    """Where an op runs. dtype: of its first output; reason: why it isn't on the session's main backend, empty where it is."""

    op: str
    op_type: str
    dtype: str
    backend: str
    reason: str


@dataclass(slots=True, eq=False)
class Unit:
    """`op` is the node's own, or what it was rewritten into (Raster). first … last-1 are its commands."""

    node: Node
    op: Op
    execution: Execution
    inputs: list[DeviceTensor | None]
    outputs: list[DeviceTensor | None]
    scratch: DeviceTensor | None
    reason: str = ""
    first: int = 0
    last: int = 0

    @property
    def info(self) -> OperatorInfo:
        return OperatorInfo(self.node.name, self.node.op.name, self.execution.backend.name)
