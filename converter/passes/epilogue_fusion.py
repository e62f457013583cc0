"""Fuses what follows a convolution or matrix product into it: a factor, a bias, a residual sum of the same shape, and an activation.

They become `mnnx::FusedConv`, `mnnx::FusedConvTranspose` and `mnnx::FusedMatMul`, which compute activation(alpha * product + bias +
residual).
"""

from __future__ import annotations

import numpy as np

from mnnx.converter.graph import Graph, Node, Value
from mnnx.converter.passes.affine_products import holds_scaled
from mnnx.converter.passes.affine_values import affine_of, argument_of
from mnnx.converter.passes.base import Rule, RulePass, SearchRule, made_by, only_user, scalar, substitute
from mnnx.converter.passes.dims import rank_of
from mnnx.converter.passes.flattened_products import FlattenedProduct
from mnnx.schema.ops.activation import Elu, Gelu, HardSigmoid, HardSwish, LeakyRelu, Mish, Relu, Sigmoid, Swish
from mnnx.schema.ops.arithmetic import Add, Clip, Div, Mul, Sub, Tanh
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.fused import FusedConv, FusedConvTranspose, FusedMatMul
from mnnx.schema.ops.matmul import Gemm, MatMul

FUSED = (FusedConv, FusedConvTranspose, FusedMatMul)
_HARD_SWISHES = ("HardSwish", "ScaledHardSwish")
#: What `activation_of` has names for.
ACTIVATIONS = (Relu, HardSwish, Sigmoid, Tanh, Mish, Elu, LeakyRelu, Swish, HardSigmoid, Gelu, Clip)


def vector(bias: Value) -> Value:
    """A constant bias of rank 1; another tensor than the model's own has another name."""
    return bias if bias.rank == 1 else Value(f"{bias.name}/flat", constant=bias.constant.reshape(-1))


def _as_fused(op: Op) -> Op:
    """The fused op that computes the same as a plain one."""
    if isinstance(op, FUSED):
        return op
    if isinstance(op, MatMul):
        return FusedMatMul()
    base = FusedConv if isinstance(op, Conv) else FusedConvTranspose
    return base(**{key: getattr(op, key) for key in op.fields})


def _floats(value: Value | None) -> bool:
    return (
        value is not None and value.dtype is not None and value.dtype in (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))
    )


def activation_of(node: Node) -> tuple[str, tuple[float, ...]] | None:
    """How a fused op names the activation that `node`, one of ACTIVATIONS, is; None where its parameters are computed."""
    match node.op:
        case Relu() | HardSwish() | Sigmoid() | Tanh() | Mish():
            return node.op.name, ()
        case LeakyRelu(alpha=alpha) | Elu(alpha=alpha) | Swish(alpha=alpha):
            return node.op.name, (alpha,)
        case HardSigmoid(alpha=alpha, beta=beta):
            return "HardSigmoid", (alpha, beta)
        case Gelu(approximate=approximate):
            return "Gelu" if approximate == "none" else "GeluTanh", ()
        case Clip():
            bounds = [*node.inputs[1:3], None, None][:2]
            low, high = (scalar(b) if b is not None else default for b, default in zip(bounds, (-np.inf, np.inf), strict=True))
            return None if low is None or high is None else ("Clip", (low, high))
    return None


class GemmToMatMul(Rule):
    """Gemm with a bias per column (or none) is a FusedMatMul."""

    name = "Gemm to MatMul"
    ops = (Gemm,)

    def match(self, node: Node, graph: Graph) -> str | None:
        if not _floats(node.inputs[0]):
            return "not known to be of floats"
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is None:
            return None
        columns = node.inputs[1].shape[0 if node.op.transB else 1] if node.inputs[1].shape else None
        if node.op.beta != 1.0 or bias.shape is None or bias.shape not in ((columns,), (1, columns)) or not isinstance(columns, int):
            return "its third input is no bias per column"
        return "the bias is computed" if bias.constant is None else None

    def rewrite(self, node: Node, graph: Graph) -> None:
        inputs = list(node.inputs)
        if len(inputs) > 2 and inputs[2] is not None:
            inputs[2] = vector(inputs[2])
        op = FusedMatMul(transpose_a=node.op.transA, transpose_b=node.op.transB, alpha=node.op.alpha)
        substitute(graph, node, Node(op, inputs, node.outputs, node.name))


class FuseScale(SearchRule):
    """MatMul times (or divided by) a constant number: the alpha of a FusedMatMul."""

    name = "scale into MatMul"
    ops = (Mul, Div)

    def find(self, node: Node, graph: Graph) -> tuple[Node, float] | str:
        """The product, and the alpha that it gets."""
        for result, operand in [node.inputs] if isinstance(node.op, Div) else (node.inputs, node.inputs[::-1]):
            product, number = made_by(result, MatMul, FusedMatMul), scalar(operand, beside=result)
            if product is None or not number or not _floats(product.inputs[0]) or only_user(result, graph) is not node:
                continue
            if len(product.inputs) > 2 or getattr(product.op, "activation", ""):
                continue
            alpha = getattr(product.op, "alpha", 1.0)
            alpha = alpha * number if isinstance(node.op, Mul) else alpha / number
            weights = product.inputs[1].constant
            if weights is None or holds_scaled(weights, alpha):
                return product, alpha
        return "not a matrix product times a number"

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, float]) -> None:
        product, alpha = found
        op = _as_fused(product.op).replace(alpha=alpha)
        substitute(graph, node, Node(op, product.inputs, node.outputs, product.name))
        graph.remove(product)


class FuseBias(SearchRule):
    """MatMul + constant vector: the bias of a FusedMatMul, also where a residual sum came first."""

    name = "bias into MatMul"
    ops = (Add,)

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, Value]) -> None:
        product, bias = found
        op = _as_fused(product.op)
        inputs = [*product.inputs[:2], vector(bias), *product.inputs[3:]]
        substitute(graph, node, Node(op, inputs, node.outputs, product.name))
        graph.remove(product)

    def find(self, node: Node, graph: Graph) -> tuple[Node, Value] | str:
        for result, bias in (node.inputs, node.inputs[::-1]):
            product = made_by(result, MatMul, FusedMatMul)
            if product is None or bias.constant is None or not _floats(product.inputs[0]):
                continue
            if isinstance(product.op, FusedMatMul) and (product.op.activation or any(product.inputs[2:3])):
                continue
            b = product.inputs[1]
            rank = result.rank
            columns = b.shape[0 if getattr(product.op, "transpose_b", False) else -1] if b.shape and len(b.shape) > 1 else None
            one_row = bias.constant.size == bias.constant.shape[-1] if bias.constant.ndim else False
            fits = one_row and bias.constant.size == columns and rank is not None and bias.constant.ndim <= rank
            if fits and bias.constant.dtype == product.inputs[0].dtype and only_user(result, graph) is node:
                return product, bias
        return "not a matrix product plus a vector"


class FuseResidual(SearchRule):
    """Product + a tensor of the same shape: its residual input."""

    name = "residual sum"
    ops = (Add,)

    def rewrite_found(self, node: Node, graph: Graph, found: tuple[Node, Value]) -> None:
        product, residual = found
        inputs = [*product.inputs, None][:3]
        new = Node(_as_fused(product.op), [*inputs, residual], node.outputs, product.name)
        substitute(graph, node, new)
        graph.remove(product)

    def find(self, node: Node, graph: Graph) -> tuple[Node, Value] | str:
        if node.inputs[0] is node.inputs[1]:
            return "the sum of a tensor and itself"
        candidates = []
        for result, residual in (node.inputs, node.inputs[::-1]):
            product = made_by(result, *FUSED, Conv, ConvTranspose, MatMul)
            if product is None or residual.constant is not None or not _floats(product.inputs[0]) or only_user(result, graph) is not node:
                continue
            if isinstance(product.op, FUSED) and (product.op.activation or len(product.inputs) > 3):
                continue
            if result.shape is not None and result.shape == residual.shape and None not in result.shape:
                candidates.append((graph.nodes.index(product), product, residual))
        # The later of two products takes the sum in: the earlier one's result is there by then.
        if not candidates:
            return "not a product plus a tensor of its shape"
        _, product, residual = max(candidates, key=lambda c: c[0])
        return product, residual


class FuseActivation(Rule):
    """Product → activation: the fused op ends in it."""

    name = "activation"
    ops = ACTIVATIONS

    def match(self, node: Node, graph: Graph) -> str | None:
        if activation_of(node) is None:
            return "its parameters are computed"
        product = made_by(node.inputs[0], *FUSED, Conv, ConvTranspose, MatMul)
        if product is None or (isinstance(product.op, FUSED) and product.op.activation):
            return "not after a product"
        if not _floats(product.inputs[0]):
            return "not known to be of floats"
        return None if only_user(node.inputs[0], graph) is node else "the product is used elsewhere"

    def rewrite(self, node: Node, graph: Graph) -> None:
        product = node.inputs[0].producer
        activation, parameters = activation_of(node)
        op = _as_fused(product.op).replace(activation=activation, activation_parameters=parameters)
        substitute(graph, node, Node(op, product.inputs, node.outputs, product.name))
        graph.remove(product)


class FuseLearnedScale(Rule):
    """Product with HardSwish → a factor and a shift, one number each: how networks end a layer that learn them."""

    name = "factor and shift of HardSwish"
    ops = (Mul, Div, Add, Sub)

    def match(self, node: Node, graph: Graph) -> str | None:
        result = argument_of(node)
        product = made_by(result, *FUSED)
        if product is None or product.op.activation not in _HARD_SWISHES:
            return "not after a product with HardSwish"
        if only_user(result, graph) is not node:
            return "the product is used elsewhere"
        return None if self._parameters(node, product) is not None else "not by one finite number, or of unknown rank"

    def rewrite(self, node: Node, graph: Graph) -> None:
        product = argument_of(node).producer
        op = product.op.replace(activation="ScaledHardSwish", activation_parameters=self._parameters(node, product))
        substitute(graph, node, Node(op, product.inputs, node.outputs, product.name))
        graph.remove(product)

    def _parameters(self, node: Node, product: Node) -> tuple[float, float] | None:
        """scale and shift of the product's activation and the node together."""
        rank = rank_of(argument_of(node))
        affine = None if rank is None else affine_of(node, rank)
        if affine is None or affine.scale.size != 1 or affine.shift.size != 1:
            return None
        scale, shift = product.op.activation_parameters or (1.0, 0.0)
        factor, further = affine.scale.item(), affine.shift.item()
        return scale * factor, shift * factor + further


class EpilogueFusion(RulePass):
    """Puts bias, residual sum and activation into the Conv, ConvTranspose, MatMul or Gemm before them, and a scale into the MatMul.

    Scale first, then bias, residual and activation: the order in which a fused op computes them.
    """

    name = "epilogue-fusion"
    level = 2
    rules = (GemmToMatMul(), FlattenedProduct(), FuseScale(), FuseBias(), FuseResidual(), FuseActivation(), FuseLearnedScale())
