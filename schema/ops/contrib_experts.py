"""Mixtures of experts, which ONNX Runtime adds to ONNX."""

import math

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.rules import LIMIT, require_floats, require_shape


@op("com.microsoft::MoE")
class MoE(Op):
    """Each token's k best experts, weighted: sum of w * (fc2(f(fc1(x))) + b2); fc(x) = x · W transposed + b. ORT's contrib op MoE.

    x [T, H] or [N, L, H]; router [T, E]: scores, whose softmax weights the experts (`normalize_routing_weights`: that of the k best);
    W1 [E, I, H], b1? [E, I], W2 [E, H, I], b2? [E, H]; W3? and b3?, as W1 and b1: f's result is multiplied with fc3(x);
    router_weights? [T, E]: the weights, in place of the softmax.

    `activation_type` f: relu, gelu (by tanh), silu, identity, or swiglu: from gate g and linear part l, both cut off at swiglu_limit,
    g * sigmoid(activation_alpha * g) * (l + activation_beta). g and l are, by `swiglu_fusion`, fc1 and fc3 (0), in turns in fc1, which
    is twice as wide then (1), or one behind the other in it (2).
    """

    k: int = 1
    activation_type: str = "relu"
    normalize_routing_weights: bool = False
    swiglu_fusion: int = 0
    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    swiglu_limit: float = math.inf

    def check(self):
        known = ("relu", "gelu", "silu", "identity", "swiglu")
        require(self.activation_type in known, f"activation_type must be one of {', '.join(known)}; it is {self.activation_type!r}")
        require(0 < self.k < LIMIT, f"k must be positive; it is {self.k}")
        require(self.swiglu_fusion in (0, 1, 2), f"swiglu_fusion must be 0, 1 or 2; it is {self.swiglu_fusion}")

    def infer(
        self,
        x: Spec,
        router: Spec,
        w1: Spec,
        b1: Spec | None,
        w2: Spec,
        b2: Spec | None = None,
        w3: Spec | None = None,
        b3: Spec | None = None,
        router_weights: Spec | None = None,
    ) -> Spec:
        require_floats(x=x, router=router, w1=w1, b1=b1, w2=w2, b2=b2, w3=w3, b3=b3, router_weights=router_weights)
        require(x.rank in (2, 3), f"x must be [T, H] or [N, L, H]; it is {x}")
        tokens, hidden = math.prod(x.shape[:-1]), x.shape[-1]
        require(w2.rank == 3 and w2.shape[1] == hidden, f"W2 must be [E, {hidden}, I]; it is {w2}")
        experts, inner = w2.shape[0], w2.shape[2]
        require(self.k <= experts, f"there must be {self.k} experts or more; there are {experts}")
        fused = self.activation_type == "swiglu" and self.swiglu_fusion > 0
        wide = 2 * inner if fused else inner
        for name, spec in (("router", router), ("router_weights", router_weights)):
            require_shape(name, spec, (tokens, experts))
        for name, spec, shape in (("W1", w1, (wide, hidden)), ("b1", b1, (wide,)), ("b2", b2, (hidden,)), ("b3", b3, (inner,))):
            require_shape(name, spec, (experts, *shape))
        require_shape("W3", w3, (experts, inner, hidden))
        paired = self.activation_type != "swiglu" or fused != (w3 is not None)
        require(paired, "swiglu needs W3, or where swiglu_fusion is set, W1 with both parts alone")
        return Spec(x.dtype, x.shape)

    def flops(self, inputs, outputs) -> int:
        x, w1, w2 = inputs[0], inputs[2], inputs[4]
        products = sum(math.prod(w.shape[1:]) for w in (w1, w2, inputs[6] if len(inputs) > 6 else None) if w is not None)
        return 2 * math.prod(x.shape[:-1]) * self.k * products
