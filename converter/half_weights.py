"""Stores large float32 weights as float16 or bfloat16, and a Cast behind each, which is evaluated when the model is loaded.

What is computed stays float32. A weight whose values don't survive (out of range, or nearly all below the smallest float16) is kept.
"""

from __future__ import annotations

import time
from collections import Counter

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.report import PassResult
from mnnx.errors import ConversionError
from mnnx.schema import dtypes
from mnnx.schema.log import log
from mnnx.schema.ops.cast import Cast

#: What reports call it, which comes after all passes.
NAME = "half-weights"
#: What weights may be stored as, with the largest error relative to the largest value of a weight: two roundings.
KINDS = {"float32": 0.0, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: Smaller weights stay as they are.
LEAST_BYTES = 4096


def check_kind(weights: object) -> None:
    """Raises ConversionError where weights can't be stored as that."""
    if not isinstance(weights, str) or weights not in KINDS:
        raise ConversionError(f"weights must be stored as one of {', '.join(KINDS)}; it is {weights!r}")


def store_halves(graph: Graph, weights: str) -> PassResult | None:
    """Replaces the weights of a graph and its subgraphs; None where they stay float32."""
    if weights == "float32":
        return None
    start = time.perf_counter()
    counts: Counter[str] = Counter()
    for part in [graph, *graph.subgraphs()]:
        _store(part, weights, counts)
    return PassResult(NAME, dict(counts), time.perf_counter() - start)


def _store(graph: Graph, weights: str, counts: Counter[str]) -> None:
    casts: dict[int, Value] = {}  # by id of the array: values of one array share one Cast
    for value in list(graph.values()):
        array = value.constant
        if array is None or array.dtype != np.float32 or array.nbytes < LEAST_BYTES or not value.users:
            continue
        if id(array) not in casts:
            half = _half(array, weights)
            if half is None:
                log().warning("the weight %r stays float32: its values don't fit into %s", value.name, weights)
                counts[f"kept as float32, not to be expressed in {weights}"] += 1
                casts[id(array)] = value
                continue
            casts[id(array)] = wide = Value(value.name, np.dtype(np.float32), array.shape)
            graph.nodes.insert(
                0, Node(Cast(to=np.dtype(np.float32)), [Value(f"{value.name}/{weights}", constant=half)], [wide], value.name)
            )
            counts[f"stored as {weights}"] += 1
        if casts[id(array)] is not value:
            graph.replace_value(value, casts[id(array)])


def _half(array: np.ndarray, weights: str) -> np.ndarray | None:
    with np.errstate(over="ignore"):
        half = array.astype(dtypes.from_name(weights))
    finite = np.isfinite(array)
    error = np.abs(np.where(finite, half.astype(np.float32) - array, 0)).max()
    return half if error <= KINDS[weights] * np.abs(array[finite]).max(initial=0.0) else None
