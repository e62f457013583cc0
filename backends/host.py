"""Ops on host values: constants, shape arithmetic, and what depends on data. They run as the CPU's NumPy executions."""

from __future__ import annotations

from typing import Any

from mnnx.backends.cpu.numpy_executions import registry
from mnnx.schema.ops.base import Op


def supports(op: Op) -> bool:
    """Whether the op can run on host values."""
    return registry.find(type(op)) is not None


def run(op: Op, inputs: list[Any]) -> tuple[Any, ...]:
    """The op's outputs on host values (ndarrays, lists for sequences, None for what is left out). Raises KeyError: see `supports`."""
    return registry.run(op, inputs)
