"""The table of op cases that every backend runs: one file per op family, each row an op with its inputs.

case(LeakyRelu(alpha=0.2), f32(2, 3, 5))

The right values come from the ONNX reference implementation of the op of the same name in the newest opset; a row for an op that ONNX
doesn't have gives `reference`, a naive function of the inputs written from the op's specification.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mnnx.schema.ops import Op


@dataclass(frozen=True, eq=False)
class Case:
    """One op on given inputs. `rtol`, `atol` default by dtype; `outputs` is the number of outputs asked for."""

    op: Op
    inputs: tuple[Any, ...]
    reference: Callable[..., Any] | None
    outputs: int
    rtol: float | None
    atol: float | None
    name: str


CASES: list[Case] = []
_RNG = np.random.default_rng(7)


def case(
    op: Op,
    *inputs: Any,
    reference: Callable[..., Any] | None = None,
    outputs: int = 1,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Adds a row. An input is an ndarray, None (left out), or a list (a sequence)."""
    shapes = "-".join("x".join(map(str, i.shape)) or "scalar" if isinstance(i, np.ndarray) else type(i).__name__ for i in inputs)
    dtype = next((i.dtype.name for i in inputs if isinstance(i, np.ndarray)), "")
    name = f"{op.name.replace('::', '.')}-{dtype}-{shapes}-{len(CASES)}"
    CASES.append(Case(op, inputs, reference, outputs, rtol, atol, name))


def f32(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Seeded uniform float32 values."""
    return _RNG.uniform(low, high, shape).astype(np.float32)


def f16(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return f32(*shape, low=low, high=high).astype(np.float16)


def f64(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return _RNG.uniform(low, high, shape)


def integers(dtype: str, *shape: int, low: int = 0, high: int = 10) -> np.ndarray:
    """Seeded integers low … high-1 of an integer dtype."""
    return _RNG.integers(low, high, shape).astype(dtype)


def booleans(*shape: int) -> np.ndarray:
    return np.asarray(_RNG.random(shape) > 0.5)


def i64(*values: int) -> np.ndarray:
    """A 1-D int64 tensor of these values."""
    return np.array(values, np.int64)


def load_all() -> list[Case]:
    """The rows of all families."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return CASES
