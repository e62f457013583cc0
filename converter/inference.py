"""Shapes and dtypes in the converter: exact where the inputs are fully known, by the names of dims elsewhere; ONNX's hints stand.

Where dims have names, an op's own rule is asked twice, with different sizes in the place of the names. What comes out as the size of a
name both times is the dim of that name; what is the same both times is that size; a multiple of a name's size, or one that is larger or
smaller by a number, is named by that formula, and so is what windows make of a size (`sizes.py`). What is found takes the place of a hint,
which is a name of its own for every result; anything else keeps its hint. That holds for ops whose result's dims are dims of their inputs,
products, quotients and sums of them. A Slice compares sizes: where it cuts an open dim, nothing is known of the result's. Dims of different
names that broadcast may be equal, which no rule is asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mnnx.backends import elementwise
from mnnx.converter.dims_of_layers import result_of_layer
from mnnx.converter.dims_of_results import broadcast, dims_of_result
from mnnx.converter.graph import Node, Value
from mnnx.converter.sizes import dim_name, linear, refine, size_of_result
from mnnx.converter.subgraph_shapes import infer_subgraphs
from mnnx.errors import ConversionError
from mnnx.schema.layout import MAX_RANK
from mnnx.schema.model import Dim
from mnnx.schema.ops.activation import LogSoftmax, Softmax
from mnnx.schema.ops.attention import RotaryEmbedding
from mnnx.schema.ops.base import DataDependent, RuleError, Spec
from mnnx.schema.ops.contrib_quantization import DequantizeBits
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.dynamic_quantization import FusedDynamicQuantizeMatMul
from mnnx.schema.ops.generation import ConstantOfShape
from mnnx.schema.ops.indexing import Gather, GatherElements
from mnnx.schema.ops.matmul import Einsum, Gemm, MatMul
from mnnx.schema.ops.normalization import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    LayerNormalization,
    RMSNormalization,
)
from mnnx.schema.ops.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, LpPool, MaxPool
from mnnx.schema.ops.quantization import DequantizeLinear, DynamicQuantizeLinear, MatMulInteger, QLinearMatMul, QuantizeLinear
from mnnx.schema.ops.reduction import CumSum, ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceSum
from mnnx.schema.ops.shape import Concat, DepthToSpace, Flatten, Identity, Reshape, Shape, Split, Squeeze, Transpose, Unsqueeze
from mnnx.schema.ops.slicing import Pad, Slice

#: Ops that may be asked with sizes in the place of names, beside elementwise ones.
_ASKED = (
    *(AveragePool, BatchNormalization, Concat, Conv, ConvTranspose, CumSum, DepthToSpace, DequantizeBits, DequantizeLinear),
    *(DynamicQuantizeLinear, Einsum, Flatten, FusedDynamicQuantizeMatMul, Gather, GatherElements, Gemm, GlobalAveragePool, GlobalMaxPool),
    *(GroupNormalization, Identity, InstanceNormalization, LayerNormalization, LogSoftmax, LpPool, MatMul, MatMulInteger, MaxPool, Pad),
    *(QLinearMatMul, QuantizeLinear, ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceSum, Reshape, RMSNormalization, RotaryEmbedding),
    *(Shape, Slice, Softmax, Split, Squeeze, Transpose, Unsqueeze),
)
#: Sizes have many small divisors, so that a Reshape can split them.
_COMPOSITE = 2**6 * 3**3 * 5**2 * 7 * 11 * 13
#: The rest of them are numbers of the minimal standard generator (Park and Miller, 1988), from two starts on: sizes in a row would be sums
#: of each other.
_STARTS = (1_000_003, 2_000_003)
_FACTOR, _MODULUS = 48271, 2**31 - 1


def spec_of(value: Value) -> Spec | None:
    """The Spec of a value whose dtype and every dim are known, else None."""
    if value.kind != "tensor" or value.dtype is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return Spec(value.dtype, value.shape, value.constant)


def infer_node(node: Node) -> tuple[Spec | None, ...]:
    """The Specs of a node's outputs, which take over what they don't know yet; () where the inputs aren't known well enough."""
    if node.op.subgraphs:
        infer_subgraphs(node, infer_node)
        return ()
    known = _known(node)
    if node.inferred is None or node.inferred[0] != known:
        results = _results_by_sizes(node)
        if results is None:
            _infer_by_names(node)
            known = _known(node)
        node.inferred = known, results
    results = node.inferred[1]
    if not results:
        _take_computed_dims(node)
        return ()
    for value, spec in zip(node.outputs, results, strict=False):
        if value is not None and spec is not None:
            value.dtype = value.dtype if value.dtype is not None else spec.dtype
            value.shape = value.shape if value.shape is not None and all(isinstance(d, int) for d in value.shape) else spec.shape
    return results


def _results_by_sizes(node: Node) -> tuple[Spec | None, ...] | None:
    """The Specs of a node's outputs where all of its inputs are known, () where they don't tell; None where an input isn't known."""
    specs = [None if value is None else spec_of(value) for value in node.inputs]
    if any(spec is None and value is not None for spec, value in zip(specs, node.inputs, strict=True)):
        return None
    return _results(node, specs)


def _results(node: Node, specs: list[Spec | None]) -> tuple[Spec | None, ...]:
    try:
        return node.op.infer_all(*specs)
    except (DataDependent, RuleError):
        return ()  # a rule that is broken is reported where the node runs, with the shapes of that run
    except Exception as error:  # more or fewer inputs than the op has, attributes that fit no input
        raise ConversionError(f"node {node.name!r} ({node.op.name}) is broken: {error or type(error).__name__}") from error


def _known(node: Node) -> list:
    """What results are inferred from. Passes ask again and again, mostly about nodes that are as they were."""
    known: list = [node.op]
    for value in node.inputs:
        known += (None,) if value is None else (value, value.dtype is None, value.dtype, value.shape)
    known.append(None)
    for value in node.outputs:
        known += (None,) if value is None else (value, value.dtype is None, value.shape is None)
    return known


def _infer_by_names(node: Node) -> None:
    """Gives outputs the dims that follow from those of the inputs, where the inputs' ranks are known."""
    if all(v is None or spec_of(v) is not None for v in node.outputs):
        return
    is_elementwise = type(node.op) in elementwise.TABLE
    if not isinstance(node.op, _ASKED) and not is_elementwise:
        return
    if isinstance(node.op, Squeeze) and (len(node.inputs) < 2 or node.inputs[1] is None):  # whether a dim is 1 is a comparison, too
        return
    if any(v is not None and (v.kind != "tensor" or v.dtype is None or v.shape is None) for v in node.inputs):
        return
    given = [None if v is None else _named(v) for v in node.inputs]
    symbols = dict.fromkeys(dim for dims in given if dims is not None for dim in dims if isinstance(dim, str))
    first, one = _answer(node, given, symbols, _STARTS[0])
    result = node.outputs[0]
    if not one and result is not None:
        _infer_dtype(node)
    if is_elementwise:
        if result is not None:
            result.dtype = one[0].dtype if one and result.dtype is None else result.dtype
            refine(result, broadcast([dims for dims in given if dims is not None]))
        return
    second, two = _answer(node, given, symbols, _STARTS[1])
    if not one and result is not None and isinstance(node.op, MatMul) and (dims := _product(*given)):
        refine(result, dims)
    cut = _cut_dims(node) if isinstance(node.op, Slice) else set()
    for value, a, b in zip(node.outputs, one, two, strict=False):
        if value is not None and a is not None and b is not None and a.rank == b.rank <= MAX_RANK:
            value.dtype = value.dtype if value.dtype is not None else a.dtype
            dims = enumerate(zip(a.shape, b.shape, strict=True))
            refine(value, [None if place in cut else _found_dim(node, place, sizes, first, second) for place, sizes in dims])


def _infer_dtype(node: Node) -> None:
    """Gives the first result of an op that broadcasts its dtype, where dims of different names refuse other sizes than 1."""
    ones = [v and Spec(v.dtype, (1,) * v.rank) for v in node.inputs]
    result = node.outputs[0]
    if result.dtype is None and (found := _results(node, ones)):
        result.dtype = found[0].dtype


def _answer(
    node: Node, given: Sequence[list[Dim] | None], symbols: Iterable[str], start: int
) -> tuple[dict[str, int], tuple[Spec | None, ...]]:
    """Sizes in the place of the names in `given`, the dims of a node's inputs, and what the op's rule makes of them."""
    sizes = {symbol: _COMPOSITE * (start * pow(_FACTOR, place, _MODULUS) % _MODULUS) for place, symbol in enumerate(symbols)}
    pairs = zip(node.inputs, given, strict=True)
    specs = [v and Spec(v.dtype, tuple([sizes.get(d, d) for d in dims]), v.constant) for v, dims in pairs]
    return sizes, _results(node, specs)


def _found_dim(node: Node, place: int, sizes: tuple[int, int], first: Mapping[str, int], second: Mapping[str, int]) -> Dim:
    """A dim of a node's results, which is of these two sizes where names are of the `first` and the `second` ones."""
    if sizes[0] == sizes[1]:
        return sizes[0]
    if (windows := size_of_result(node, place)) is not None:
        return windows
    names = (linear(name, ((first[name], sizes[0]), (second[name], sizes[1]))) for name in first)
    return next((name for name in names if name is not None), None)


def _product(a: list[Dim], b: list[Dim]) -> list[Dim] | None:
    """The dims of a matrix product of tensors with these."""
    return [*broadcast([a[:-2], b[:-2]]), a[-2], b[-1]] if len(a) >= 2 and len(b) >= 2 else None


def _take_computed_dims(node: Node) -> None:
    """Gives a node's result the dims that are known of a computed shape, length, end or factor, or of a layer's result."""
    result = node.outputs[0] if node.outputs else None
    if result is None:
        return
    dtype, dims = result_of_layer(node) or (None, dims_of_result(node))
    if dims is None or len(dims) > MAX_RANK:
        return
    if result.dtype is None:
        result.dtype = dtype or node.inputs[0].dtype
        if isinstance(node.op, ConstantOfShape):
            result.dtype = np.dtype(np.float32) if node.op.value is None else node.op.value.dtype
    refine(result, dims)


def _cut_dims(node: Node) -> set[int]:
    """The open dims along which a Slice cuts, as places; it has all axes where they are computed."""
    x, axes = node.inputs[0], node.inputs[3] if len(node.inputs) > 3 else None
    constant = None if axes is None else axes.constant
    places = range(x.rank) if constant is None else [int(axis) % max(1, x.rank) for axis in constant.reshape(-1)]
    return {place for place in places if not isinstance(x.shape[place], int)}


def _named(value: Value) -> list[Dim]:
    """A value's dims, those without a name called by their place in it."""
    return [dim_name(value, place) for place in range(value.rank)]
