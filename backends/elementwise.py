"""Ops that compute each element from the elements of their broadcast inputs: one table that every backend reads.

An expression is written in the common subset of Python and C: operators, the op's attributes by name, its inputs by the names in
`inputs`, numbers, and calls of the functions in `FUNCTIONS`. The CPU backend makes numba kernels of it, GPU backends kernel source, and
`evaluate` runs it with NumPy for any dtype.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from mnnx.schema.ops.base import Op


@dataclass(frozen=True, slots=True)
class Expression:
    """`text` over inputs named by the letters of `inputs`; the result has the dtype that the op's `infer` gives."""

    text: str
    inputs: str = "x"


#: What an expression may call, with its NumPy meaning.
FUNCTIONS: dict[str, Any] = {"where": np.where, "min": np.minimum, "max": np.maximum, "exp": np.exp}

TABLE: dict[type[Op], Expression] = {}


def evaluate(op: Op, *inputs: np.ndarray) -> np.ndarray:
    """The op's expression on NumPy arrays."""
    expression = TABLE[type(op)]
    names = FUNCTIONS | {key: getattr(op, key) for key in op.fields} | dict(zip(expression.inputs, inputs, strict=True))
    with np.errstate(all="ignore"):
        return np.asarray(eval(_compiled(expression.text), {"__builtins__": {}}, names))


@functools.cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<expression>", "eval")
