"""The GPUs' factory of executions: `executions/<family>.py` registers them, where <family> is the file that defines the op."""

from __future__ import annotations

import importlib
import importlib.util

from mnnx.backends.backend import Creator, Creators, Support
from mnnx.schema.ops.base import Op

creator = Creators()
_LOADED: set[str] = set()


def find(op_class: type[Op]) -> tuple[Creator, Support] | None:
    """How to make executions of an op class, and the check whether that serves given Specs; None where there is none."""
    _load(op_class.__module__.rpartition(".")[2])
    found = creator.find(op_class)
    if found is None:
        from mnnx.backends import elementwise

        if op_class in elementwise.TABLE:
            from mnnx.backends.gpu.executions import elementwise as execution

            return execution.create, execution.supports
    return found


def _load(name: str) -> None:
    if name not in _LOADED:
        module = f"{__package__}.executions.{name}"
        if importlib.util.find_spec(module):
            importlib.import_module(module)
        _LOADED.add(name)
