"""Open sizes as formulas of the dims that they follow from, so that equal ones have equal names: "(h + 1)//2".

A name that reads as such a formula is taken for one, and any other for a symbol, so that names stay plain text. What windows do to a size
is in ONNX's Conv, ConvTranspose and MaxPool.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from mnnx.converter.graph import Node, Value
from mnnx.converter.shape_values import DimOf, elements
from mnnx.schema.model import Dim
from mnnx.schema.ops.convolution import Conv
from mnnx.schema.ops.pooling import Pooling
from mnnx.schema.ops.resize import Resize
from mnnx.schema.ops.windows import extents, per_dim

_QUOTIENT = re.compile(r"\((.+)\)//([1-9]\d{0,8})")
_SUM = re.compile(r"(.+) ([+-]) (\d{1,9})")
_PRODUCT = re.compile(r"([1-9]\d{0,8})\*(.+)")
#: What is added to sizes and multiplied with them in real networks; more is a coincidence.
_MOST_TIMES, _MOST_MORE = 2**12, 2**20
#: A longer name is a symbol: nothing cancels in it any more.
_LONGEST = 512


class Size(NamedTuple):
    """⌊(factor * symbol + shift) / divisor⌋."""

    symbol: str
    factor: int = 1
    shift: int = 0
    divisor: int = 1

    @classmethod
    def of(cls, name: str) -> Size:
        """What a dim's name says."""
        if len(name) > _LONGEST:
            return cls(name)
        rest, divisor, shift, factor = name, 1, 0, 1
        if (found := _QUOTIENT.fullmatch(rest)) and _is_group(f"({found[1]})"):
            rest, divisor = found[1], int(found[2])
        if found := _SUM.fullmatch(rest):
            rest, shift = found[1], int(found[2] + found[3])
        if (found := _PRODUCT.fullmatch(rest)) and _is_operand(found[2]):
            rest, factor = found[2], int(found[1])
        return cls(rest, factor, shift, divisor)

    @property
    def name(self) -> str:
        text = self.symbol if self.factor == 1 else f"{self.factor}*{self.symbol}"
        if self.shift:
            text = f"{text} {'+' if self.shift > 0 else '-'} {abs(self.shift)}"
        return text if self.divisor == 1 else f"({text})//{self.divisor}"

    def plus(self, number: int) -> Size:
        return self._replace(shift=self.shift + number * self.divisor)

    def times(self, number: int) -> Size:
        if number == 1:
            return self
        whole = self if self.divisor == 1 and _is_operand(self.symbol) else Size(f"({self.name})")
        return whole._replace(factor=whole.factor * number, shift=whole.shift * number)

    def over(self, number: int) -> Size:
        """⌊self / number⌋, without what cancels: ⌊⌊a / b⌋ / c⌋ = ⌊a / (b c)⌋."""
        divisor = self.divisor * number
        common = math.gcd(self.factor, divisor)
        factor, shift, divisor = self.factor // common, self.shift // common, divisor // common
        if factor == 1 and len(self.symbol) <= _LONGEST and _is_group(self.symbol):
            return Size.of(self.symbol[1:-1]).plus(shift).over(divisor)
        return Size(self.symbol, factor, shift, divisor)


def _is_group(text: str) -> bool:
    """Whether a text is something in parentheses, of which the last closes the first."""
    depths = list(itertools.accumulate((char == "(") - (char == ")") for char in text))
    return len(text) > 2 and text[0] == "(" and depths[-1] == 0 and min(depths[:-1]) > 0


def _is_operand(text: str) -> bool:
    """Whether a text is all that a factor before it multiplies: "2*a + b" is another size than "2*(a + b)"."""
    return re.search(r"[-+*/ ]", text) is None or _is_group(text)


def open_dim(value: str, place: int) -> str:
    """What a dim is called of which nothing is known but its place in the value of that name."""
    return f"{value}.{place}"


def dim_name(value: Value, place: int) -> Dim:
    """A value's dim, one without a name called by its place."""
    dim = value.shape[place]
    return open_dim(value.name, place) if dim is None else dim


def refine(value: Value, dims: Sequence[Dim]) -> None:
    """Gives a value what is known of its dims: sizes, names of dims that they equal, or None. What it has is kept where it says more: a
    size, or a name where None is known."""
    if value.shape is None:
        value.shape = tuple(open_dim(value.name, place) if dim is None else dim for place, dim in enumerate(dims))
    elif len(value.shape) == len(dims):
        pairs = zip(value.shape, dims, strict=True)
        value.shape = tuple(own if dim is None or isinstance(own, int) else dim for own, dim in pairs)


def size_of_result(node: Node, place: int) -> Dim:
    """A dim that windows slide over, or that is resized, as a formula; None for all others, and where it isn't known."""
    x = node.inputs[0]
    if isinstance(node.op, Resize):
        return _resized(node, place)
    if not isinstance(node.op, (Conv, Pooling)) or place < 2 or isinstance(dim := dim_name(x, place), int):
        return None
    size = Size.of(dim)
    found = _windows(node, size, place - 2)
    return dim if found == size else found and found.name


def _windows(node: Node, size: Size, place: int) -> Size | None:
    """How many windows of a Conv or pooling a spatial dim has."""
    op, spatial = node.op, node.inputs[0].rank - 2
    stride = per_dim(op.strides, spatial, 1, "strides")[place]
    if op.auto_pad.startswith("SAME"):
        return size.plus(stride - 1).over(stride)
    if getattr(op, "ceil_mode", False) and stride > 1:
        return None
    kernel = node.inputs[1].shape[2:] if isinstance(op, Conv) else op.kernel_shape
    if not all(isinstance(dim, int) for dim in kernel):
        return None
    extent = extents(kernel, per_dim(op.dilations, spatial, 1, "dilations"))[place]
    pads = (0,) * 2 * spatial if op.auto_pad == "VALID" else per_dim(op.pads, 2 * spatial, 0, "pads")
    return size.plus(pads[place] + pads[place + spatial] - extent + stride).over(stride)


def _resized(node: Node, place: int) -> Dim:
    """A dim of a Resize to sizes that are dims, or by whole factors."""
    x, _, scales, sizes = (*node.inputs, None, None, None)[:4]
    axes = range(x.rank) if node.op.axes is None else [axis % x.rank for axis in node.op.axes]
    dim = dim_name(x, place)
    if place not in axes:
        return dim
    at = list(axes).index(place)
    if sizes is not None and sizes.shape != (0,):
        found = elements(sizes)
        item = found.items[at] if found is not None and node.op.keep_aspect_ratio_policy == "stretch" and len(found.items) > at else None
        return dim_name(*item) if isinstance(item, DimOf) else item
    factor = None if scales is None or scales.constant is None or scales.constant.size != len(axes) else float(scales.constant[at])
    if factor is None or not factor.is_integer() or not 1 <= factor <= _MOST_TIMES:
        return None
    return dim * int(factor) if isinstance(dim, int) else _linear(dim, int(factor), 0)


def linear(name: str, samples: tuple[tuple[int, int], tuple[int, int]]) -> str | None:
    """The name of a size that is factor * dim + number, where that is so for two sizes of the dim: pairs of the dim and the size."""
    (x, y), (further, then) = samples
    factor, rest = divmod(then - y, further - x)
    number = y - factor * x
    if rest or not 1 <= factor <= _MOST_TIMES or abs(number) > _MOST_MORE:
        return None
    return _linear(name, factor, number)


def _linear(name: str, factor: int, number: int) -> str:
    return name if (factor, number) == (1, 0) else Size.of(name).times(factor).plus(number).name
