"""A tensor on a device: what it is (a Spec) and where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.schema.ops.base import Spec

if TYPE_CHECKING:
    from mnnx.backends.backend import Backend


class DeviceTensor:
    """A tensor of fixed dtype and shape in a device's memory.

    `memory` is the device's own handle (on the CPU a uint8 ndarray, elsewhere a buffer object), `offset` the tensor's first byte in
    it. `constant` is the host array of a weight (None for what is computed): an execution may pack it anew, once for all
    sessions, with the backend's SharedWeights. `layout` is how its elements lie there: 0 for row-major, else the width of blocks
    (`backends/blocked.py`); its `shape` is the op's, whatever the layout.
    """

    __slots__ = ("array", "backend", "constant", "layout", "memory", "name", "offset", "spec")

    def __init__(
        self,
        name: str,
        spec: Spec,
        backend: Backend,
        memory: Any,
        offset: int = 0,
        constant: np.ndarray | None = None,
        layout: int = 0,
    ):
        self.name = name
        self.spec = spec
        self.backend = backend
        self.memory = memory
        self.offset = offset
        self.constant = constant
        self.layout = layout
        self.array: np.ndarray | None = None  # a backend's own note of the tensor as an array in its memory

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype:
        return self.spec.dtype

    def reshaped(self, spec: Spec) -> DeviceTensor:
        """The same memory under another shape, for a plain tensor."""
        constant = None if self.constant is None else self.constant.reshape(spec.shape)
        return DeviceTensor(self.name, spec, self.backend, self.memory, self.offset, constant)

    def copy_from_host(self, array: np.ndarray) -> None:
        """Writes `array` (this tensor's dtype and shape) to the device."""
        self.backend.upload(array, self)

    def copy_to_host(self) -> np.ndarray:
        """A fresh host array with this tensor's values; waits for the device."""
        return self.backend.download(self)

    def __repr__(self) -> str:
        return f"DeviceTensor({self.name!r}, {self.spec}, {self.backend.name})"
