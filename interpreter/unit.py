"""A Unit: one op of a plan with its execution, its tensors, and its part of the backend's command list."""

from __future__ import annotations

from typing import Any

import numpy as np

from mnnx.backends.backend import Execution
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.model import Node
from mnnx.schema.ops.base import Op
from mnnx.schema.records import Record, Row


class CallbackStop(Exception):
    """A callback returned False, or raised `error`: the run ends here."""

    error: Exception | None = None


class HostValue:
    """A value on the host, as a callback sees it. `dtype` is None and `shape` () for what is no array."""

    def __init__(self, name: str, value: Any):
        self.name = name
        self.shape: tuple[int, ...] = getattr(value, "shape", ())
        self.dtype: np.dtype | None = getattr(value, "dtype", None)
        self._value = value

    def copy_to_host(self) -> Any:
        return self._value.copy() if isinstance(self._value, np.ndarray) else self._value


class OperatorInfo(Row):
    """What a callback is told of the op that is about to run, or has run. flops: see `Op.flops`. nanoseconds: how long
    the device was at it, where it has run on one."""

    name: str
    type: str
    backend: str
    flops: int = 0
    nanoseconds: int = 0

    def getName(self) -> str:  # noqa: N802 - PyMNN's names
        return self.name

    def getType(self) -> str:  # noqa: N802
        return self.type


class Placement(Row):
    """Where an op runs. dtype: of its first output; reason: why it isn't on the session's main backend, empty where it is."""

    op: str
    op_type: str
    dtype: str
    backend: str
    reason: str


class Unit(Record):
    """`op` is the node's own, or what it was rewritten into (Raster). first … last-1 are its commands.

    Units of one `wave` but of different `lane`s may run at the same time.
    """

    node: Node
    op: Op
    execution: Execution
    inputs: list[DeviceTensor | None]
    outputs: list[DeviceTensor | None]
    scratch: DeviceTensor | None
    reason: str = ""
    wave: int = 0
    lane: int = 0
    first: int = 0
    last: int = 0

    @property
    def info(self) -> OperatorInfo:
        specs, results = ([tensor and tensor.spec for tensor in tensors] for tensors in (self.inputs, self.outputs))
        return OperatorInfo(self.node.name, self.node.op.name, self.execution.backend.name, self.node.op.flops(specs, results))
