"""Turns what goes wrong inside one op into an error that names the op, the shapes it got and the rule that broke."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mnnx.errors import BackendError, InputError, LimitExceeded, MnnxError
from mnnx.interpreter.config import Limits
from mnnx.interpreter.unit import CallbackStop
from mnnx.schema import dtypes
from mnnx.schema.layout import MAX_RANK
from mnnx.schema.model import Node
from mnnx.schema.ops.base import DataDependent, RuleError, Spec


def describe(value: Any) -> str:
    """A Spec or host value in a few words."""
    if isinstance(value, np.ndarray):
        return f"{dtypes.name(value.dtype)}{list(value.shape)}"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    return "none" if value is None else str(value)


@contextmanager
def blaming(node: Node, inputs: Sequence[Any], kind: type[MnnxError] = InputError) -> Iterator[None]:
    """Whatever an op's inference or execution raises becomes an error of `kind` about `node`; errors of ours pass through."""
    try:
        yield
    except (MnnxError, DataDependent, CallbackStop):
        raise
    except Exception as error:  # a damaged model makes executions fail in any way that Python and NumPy know
        raise blamed(error, node, inputs, kind) from error


def blamed(error: Exception, node: Node, inputs: Sequence[Any], kind: type[MnnxError] = InputError) -> MnnxError:
    """The error that tells of `error` and of the op in which it arose; one of ours keeps its class."""
    op = f"op {node.name!r} ({node.op.name})"
    if isinstance(error, MnnxError):
        return type(error)(f"{op}: {error}")
    if isinstance(error, MemoryError):
        return LimitExceeded(f"{op}: not enough memory ({error})")
    what = str(error) if isinstance(error, RuleError) else f"{type(error).__name__}{f': {error}' if str(error) else ''}"
    return kind(f"{op} can't run on inputs {', '.join(describe(i) for i in inputs)}: {what}")


def check_limits(node: Node, specs: Sequence[Spec | None], limits: Limits) -> None:
    """Raises LimitExceeded where an output is larger, or of a higher rank, than one tensor may be."""
    for spec in specs:
        if spec is not None and len(spec.shape) > MAX_RANK:
            raise LimitExceeded(
                f"op {node.name!r} ({node.op.name}) wants to make a tensor of {len(spec.shape)} dims; the limit is {MAX_RANK}"
            )
        if spec is not None and spec.nbytes > limits.tensor_bytes:
            raise LimitExceeded(
                f"op {node.name!r} ({node.op.name}) wants to make a tensor {spec} of {spec.nbytes >> 20} MiB; the limit is "
                f"{limits.tensor_bytes >> 20} MiB. Check the input's shape, or raise Limits.tensor_bytes (MNNX_MAX_TENSOR_MB)"
            )


def check_values(node: Node, results: Sequence[Any]) -> None:
    """Raises BackendError where an execution, which may be a user's own, gave what is no value of a model."""
    for place, value in enumerate(results):
        is_array = isinstance(value, np.ndarray) and dtypes.is_known(value.dtype)
        if is_array and value.dtype == dtypes.STRING and not all(isinstance(text, str) for text in value.flat):
            what = "an array of objects that aren't all text"
        elif is_array or value is None or isinstance(value, list | dict):
            continue
        else:
            what = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"{type(value).__name__}, which is no array,"
        raise BackendError(f"op {node.name!r} ({node.op.name}): its NumPy execution gave {what} as output {place}")


def check_text(node: Node, results: Sequence[Any], limits: Limits) -> None:
    """Raises LimitExceeded where a tensor of strings, whose size its shape doesn't say, is larger than one tensor may be."""
    for value in results:
        if isinstance(value, np.ndarray) and value.dtype == dtypes.STRING and text_length(value) > limits.tensor_bytes:
            raise LimitExceeded(
                f"op {node.name!r} ({node.op.name}) made strings of more than {limits.tensor_bytes >> 20} MiB; "
                f"raise Limits.tensor_bytes (MNNX_MAX_TENSOR_MB) if that is meant"
            )


def text_length(array: np.ndarray) -> int:
    """The characters of all strings of an array."""
    return sum(map(len, array.flat))
