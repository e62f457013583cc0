"""Lets constants of equal content be one, so that nodes that compute the same with them are found to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.base import Pass
from mnnx.schema import dtypes

#: Elements of a constant that are looked at before all are.
_SAMPLE = 64


class ConstantSharing(Pass):
    """Makes one constant of those with equal content."""

    name = "constant-sharing"

    def run(self, graph: Graph, counts: Counter[str]) -> None:
        seen: dict[Hashable, list[Value]] = {}
        for value in list(graph.values()):
            if value.constant is None or value.constant.dtype == dtypes.STRING or graph.is_output(value):
                continue
            alike = seen.setdefault(_key(value.constant), [])
            first = next((other for other in alike if _equal(other.constant, value.constant)), None)
            if first is None:
                alike.append(value)
            else:
                graph.replace_value(value, first)
                counts["constant"] += 1

    def reasons(self, node: Node, graph: Graph) -> Iterator[tuple[str, str]]:
        if any(value is not None and value.constant is not None for value in node.inputs):
            yield "sharing", "its constants are shared already, or differ from all others"


def _key(array: np.ndarray) -> Hashable:
    """Equal for equal constants, and rarely for others."""
    return array.dtype, array.shape, array.reshape(-1)[:: max(1, array.size // _SAMPLE)].tobytes()


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two constants of one dtype and shape have the same bits."""
    if one is other:
        return True
    return np.array_equal(*(np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other)))
