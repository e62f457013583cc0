"""An op without a native kernel: its NumPy execution on views of the tensors, called between native units."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Execution, Tensors
from mnnx.backends.cpu.arguments import array_of
from mnnx.backends.cpu.numpy_executions import registry
from mnnx.errors import BackendError
from mnnx.schema import dtypes


class HostExecution(Execution):
    """Copies what the NumPy execution returns into the output tensors."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        arrays = [None if tensor is None else array_of(tensor) for tensor in inputs]
        targets = [None if tensor is None else array_of(tensor) for tensor in outputs]
        op = self.op

        def run() -> None:
            with np.errstate(all="ignore"):
                results = registry.run(op, list(arrays))
            for index, target in enumerate(targets):
                if target is not None:
                    target[...] = _checked(op.name, index, results[index] if index < len(results) else None, target)

        self.backend.commands.record_host(run)


def _checked(name: str, index: int, result: object, target: np.ndarray) -> np.ndarray:
    if not isinstance(result, np.ndarray) or result.dtype != target.dtype or result.shape != target.shape:
        found = f"{dtypes.name(result.dtype)}{list(result.shape)}" if isinstance(result, np.ndarray) else repr(result)
        raise BackendError(
            f"the NumPy execution of {name} gave {found} as output {index}, not {dtypes.name(target.dtype)}{list(target.shape)}"
        )
    return result
