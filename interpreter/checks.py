"""Checks of what scripts give: each returns the value as it is wanted, or raises InputError saying what is wanted and what came."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from mnnx.errors import InputError


def is_one_of(value: Any, known: Iterable[str | int]) -> bool:
    """Whether a value of any kind (an array has no single truth) is one of these names or numbers."""
    return isinstance(value, str | Integral) and value in known


def whole(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{what} must be a whole number, got {value!r}") from None


def number(value: Any, what: str) -> float:
    array = numbers(value) if isinstance(value, Real | np.ndarray) else None
    if array is None or array.ndim:
        raise InputError(f"{what} must be a number, got {value!r}")
    return float(array)


def numbers(values: Any) -> np.ndarray | None:
    """A float64 array of a number, or of numbers in sequences; None for anything else."""
    try:
        return None if values is None else np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError, MemoryError):
        return None


def dtype(value: Any, what: str) -> np.dtype:
    try:
        return np.dtype(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be a dtype, got {value!r}: {error}") from error


def names(values: Any, what: str) -> tuple[str, ...]:
    """A list of names as a tuple; a lone string's letters would pass for names."""
    try:
        found = None if isinstance(values, str | bytes) else tuple(values)
    except TypeError:
        found = None
    if found is None or not all(isinstance(name, str) for name in found):
        raise InputError(f"{what} must be a list of names; it is {values!r}")
    return found


def thread_count(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 256:
        raise InputError(f"{what} must be 0 (all CPUs) … 256; it is {value!r}")
    return value


def cpu_ids(values: Any, what: str) -> tuple[int, ...]:
    try:
        ids = tuple(operator.index(value) for value in values)
    except TypeError:
        ids = (-1,)
    if any(i < 0 for i in ids):
        raise InputError(f"{what} must be a sequence of CPU numbers, 0 or more; it is {values!r}")
    return ids
