"""Recognises LayerNormalization and RMSNormalization over the last axis that exporters write out, and gives them their γ and β.

LayerNormalization  (x - mean(x)) / √(mean((x - mean(x))²) + ε) * γ + β
RMSNormalization    x / √(mean(x²) + ε) * γ

The root also as a reciprocal or as a power of -1/2. Without γ, the scale is 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.affine_values import Affine, affine_of, argument_of
from mnnx.converter.passes.base import SearchRule, is_close, made_by, only_user, other_input, scalar, substitute
from mnnx.schema.ops.arithmetic import Add, Div, Mul, Pow, Reciprocal, Sqrt, Sub
from mnnx.schema.ops.normalization import LayerNormalization, RMSNormalization
from mnnx.schema.ops.reduction import ReduceMean
from mnnx.schema.records import Row

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class _Quotient(Row):
    """x / √(mean(squared²) + ε); `factor` is what x is divided by or multiplied with."""

    x: Value
    squared: Value
    epsilon: float
    factor: Value


class _Recognition(SearchRule):
    """Starts from the division, or from the product with the reciprocal."""

    ops = (Div, Mul)
    made: type[LayerNormalization | RMSNormalization]
    formula: str

    @abstractmethod
    def _normalized(self, quotient: _Quotient) -> Value | None:
        """What is normalized, where the quotient is of the formula."""

    def find(self, node: Node, graph: Graph) -> _Quotient | str:
        found = self._find(node)
        if found is None:
            return f"not {self.formula}"
        x, y = found.x, node.outputs[0]
        if x.dtype not in _FLOATS:
            return "not known to be of float32 or float64"
        if not x.shape or not isinstance(x.shape[-1], int) or x.shape[-1] == 0:
            return "the size of the last axis isn't known, or 0"
        if y.rank is not None and y.rank != x.rank:
            return "epsilon has more dims than x"
        if not y.users and not graph.is_output(y):
            return "nobody needs its result"
        return found if only_user(found.factor, graph) is node else "the deviation is used elsewhere"

    def rewrite_found(self, node: Node, graph: Graph, found: _Quotient) -> None:
        scale = Value(f"{node.outputs[0].name}/scale", constant=np.ones(found.x.shape[-1], found.x.dtype))
        op = self.made(axis=-1, epsilon=found.epsilon)
        substitute(graph, node, Node(op, [found.x, scale], node.outputs, node.name))

    def _find(self, node: Node) -> _Quotient | None:
        """The quotient that the node is, with what is normalized as x."""
        for quotient in _quotients(node):
            if (x := self._normalized(quotient)) is not None:
                return quotient._replace(x=x)
        return None


class RecognizeLayerNorm(_Recognition):
    name = "LayerNormalization"
    made = LayerNormalization
    formula = "(x - mean) / sqrt(variance + epsilon)"

    def _normalized(self, quotient: _Quotient) -> Value | None:
        x = _centred(quotient.x)
        same = quotient.squared is quotient.x or _centred(quotient.squared) is x  # exporters write the difference twice
        return x if same else None


class RecognizeRmsNorm(_Recognition):
    name = "RMSNormalization"
    made = RMSNormalization
    formula = "x / sqrt(mean(x * x) + epsilon)"

    def _normalized(self, quotient: _Quotient) -> Value | None:
        x = quotient.x
        return x if quotient.squared is x and _centred(x) is None else None


def _quotients(node: Node) -> Iterator[_Quotient]:
    """The quotients by a root of a mean of squares that a node may be read as."""
    x, factor = node.inputs
    if isinstance(node.op, Div):
        pairs = ((x, factor, made_by(factor, Sqrt)),)
    else:
        pairs = ((one, other, _reciprocal_root(other)) for one, other in ((x, factor), (factor, x)))
    for numerator, by, root in pairs:
        total = made_by(root.inputs[0], Add) if root is not None else None
        for mean in total.inputs if total is not None else ():
            epsilon, squares = scalar(other_input(total, mean)), _last_axis_mean(mean)
            squared = None if squares is None else _square_root(squares)
            if epsilon is not None and squared is not None:
                yield _Quotient(numerator, squared, epsilon, by)


def _reciprocal_root(factor: Value) -> Node | None:
    """The node whose input is under the root, where `factor` is a reciprocal of one."""
    if (power := made_by(factor, Pow)) is not None and is_close(power.inputs[1], -0.5):
        return power
    if (inverse := made_by(factor, Reciprocal)) is not None:
        return made_by(inverse.inputs[0], Sqrt)
    division = made_by(factor, Div)
    return made_by(division.inputs[1], Sqrt) if division is not None and is_close(division.inputs[0], 1) else None


def _last_axis_mean(value: Value | None) -> Value | None:
    """x where `value` is the mean of x over its last axis with the axis kept, else None."""
    mean = made_by(value, ReduceMean)
    if mean is None or not mean.op.keepdims or len(mean.inputs) < 2 or mean.inputs[1] is None or mean.inputs[1].constant is None:
        return None
    x = mean.inputs[0]
    axes = mean.inputs[1].constant.reshape(-1).tolist()
    return x if axes == [-1] or (x.rank is not None and axes == [x.rank - 1]) else None


def _square_root(value: Value) -> Value | None:
    """What `value` is the square of, else None."""
    if (power := made_by(value, Pow)) is not None:
        return power.inputs[0] if is_close(power.inputs[1], 2) else None
    product = made_by(value, Mul)
    return product.inputs[0] if product is not None and product.inputs[0] is product.inputs[1] else None


def _centred(value: Value) -> Value | None:
    """x where `value` is x - mean(x) over the last axis, else None."""
    difference = made_by(value, Sub)
    return difference.inputs[0] if difference is not None and _last_axis_mean(difference.inputs[1]) is difference.inputs[0] else None


class FoldScaleAndShift(SearchRule):
    """LayerNormalization → a factor or shift per column: its scale and bias; RMSNormalization → a factor: its scale."""

    name = "scale and bias"
    ops = (Mul, Div, Add, Sub)

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, np.ndarray, np.ndarray]) -> None:
        norm, scale, bias = found
        dtype, name = norm.inputs[1].dtype, node.outputs[0].name
        operands = [Value(f"{name}/scale", constant=scale.astype(dtype))]
        if bias.any():
            operands.append(Value(f"{name}/bias", constant=bias.astype(dtype)))
        substitute(graph, node, Node(norm.op, [norm.inputs[0], *operands], [node.outputs[0], *norm.outputs[1:]], norm.name))
        graph.remove(norm)

    def find(self, node: Node, graph: Graph) -> tuple[Node, np.ndarray, np.ndarray] | str:
        """The normalization, and its scale and bias with the node's."""
        result = argument_of(node)
        norm = made_by(result, LayerNormalization, RMSNormalization)
        if norm is None or only_user(result, graph) is None:
            return "not after a LayerNormalization or RMSNormalization that is used once"
        x, *parameters = norm.inputs
        if x.rank is None or norm.op.axis not in (-1, x.rank - 1):
            return "not known to be over the last axis"
        columns = x.shape[-1]
        if not isinstance(columns, int):
            return "the size of the last axis isn't known"
        if any(one is not None and (one.constant is None or one.constant.dtype not in _FLOATS) for one in parameters):
            return "the scale or bias is computed, or not of float32 or float64"
        affine = affine_of(node, x.rank)
        own = Affine(*(_vector(one, columns, start) for one, start in zip((*parameters, None)[:2], (1.0, 0.0), strict=True)))
        further = affine and affine.per_channel(x.rank - 1, columns)
        if not further or own.scale is None or own.shift is None:
            return "not a finite factor and shift per column by constants"
        with np.errstate(all="ignore"):
            scale, bias = own.scale * further[0], own.shift * further[0] + further[1]
            if not all(np.isfinite(one.astype(norm.inputs[1].dtype)).all() for one in (scale, bias)):
                return "the scale or bias would not be finite"
        if bias.any() and isinstance(norm.op, RMSNormalization):
            return "RMSNormalization has no shift"
        return norm, scale, bias


def _vector(parameter: Value | None, columns: int, start: float) -> np.ndarray | None:
    """A parameter in float64, where it is a vector or is left out."""
    if parameter is None:
        return np.full(columns, start)
    return parameter.constant.astype(np.float64) if parameter.constant.shape == (columns,) else None
