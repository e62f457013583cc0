"""Activation functions, element by element or along one axis. ONNX Relu-14, Gelu-20, PRelu-16, Softmax-13, SwiGLU-28, … ."""

from mnnx.schema.ops.axes import normalize_axis
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import FLOATS, SIGNED, Elementwise, FloatUnary, broadcast, require_dtype, require_inputs


@op("Relu")
class Relu(Elementwise):
    """max(x, 0); NaN stays NaN."""

    accepts = FLOATS | SIGNED


@op("LeakyRelu")
class LeakyRelu(FloatUnary):
    """x where x >= 0, else alpha * x."""

    alpha: float = 0.01


@op("PRelu")
class PRelu(Elementwise):
    """x where x >= 0, else slope * x; the second input, slope, broadcasts to x's shape."""

    def infer(self, *inputs):
        require_inputs(inputs, 2)
        x, slope = inputs
        require_dtype(x, self.accepts)
        require(
            slope.dtype == x.dtype and broadcast(x.shape, slope.shape) == x.shape,
            f"slope must be of x's dtype and broadcast to its shape; found {slope} beside {x}",
        )
        return Spec(x.dtype, x.shape)


@op("Elu")
class Elu(FloatUnary):
    """x where x >= 0, else alpha * (e ** x - 1)."""

    alpha: float = 1.0


@op("Selu")
class Selu(FloatUnary):
    """gamma * x where x > 0, else gamma * alpha * (e ** x - 1)."""

    alpha: float = 1.6732632423543772
    gamma: float = 1.0507009873554805


@op("Celu")
class Celu(FloatUnary):
    """max(0, x) + min(0, alpha * (e ** (x / alpha) - 1))."""

    alpha: float = 1.0


@op("ThresholdedRelu")
class ThresholdedRelu(FloatUnary):
    """x where x > alpha, else 0."""

    alpha: float = 1.0


@op("HardSigmoid")
class HardSigmoid(FloatUnary):
    """alpha * x + beta, limited to [0, 1]."""

    alpha: float = 0.2
    beta: float = 0.5


@op("HardSwish")
class HardSwish(FloatUnary):
    """x * HardSigmoid(x, 1/6, 1/2)."""


@op("Sigmoid")
class Sigmoid(FloatUnary):
    """1 / (1 + e ** -x)."""


@op("Softplus")
class Softplus(FloatUnary):
    """log(1 + e ** x)."""


@op("Softsign")
class Softsign(FloatUnary):
    """x / (1 + |x|)."""


@op("Gelu")
class Gelu(FloatUnary):
    """x times the normal distribution function of x: by erf, or by ONNX's tanh formula where `approximate` is "tanh"."""

    approximate: str = "none"

    def check(self):
        require(self.approximate in ("none", "tanh"), f"approximate must be none or tanh; found {self.approximate!r}")


@op("Mish")
class Mish(FloatUnary):
    """x * tanh(Softplus(x))."""


@op("Swish")
class Swish(FloatUnary):
    """x * Sigmoid(alpha * x)."""

    alpha: float = 1.0


@op("SwiGLU")
class SwiGLU(Elementwise):
    """Swish(a, alpha) * b; a and b of one shape."""

    alpha: float = 1.0
    arity = 2
    accepts = FLOATS

    def infer(self, *inputs):
        result = super().infer(*inputs)
        require(inputs[0].shape == inputs[1].shape, f"inputs must be of one shape; found {inputs[0]} and {inputs[1]}")
        return result


@op("Shrink")
class Shrink(Elementwise):
    """x + bias where x < -lambd, x - bias where x > lambd, else 0."""

    lambd: float = 0.5
    bias: float = 0.0


class AlongAxis(Op):
    """An op over the vectors along `axis` of a float tensor; the result has its shape."""

    axis: int = -1

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        require_dtype(inputs[0], FLOATS)
        normalize_axis(self.axis, max(inputs[0].rank, 1))
        return Spec(inputs[0].dtype, inputs[0].shape)


@op("Softmax")
class Softmax(AlongAxis):
    """e ** x over its sum along `axis`."""


@op("LogSoftmax")
class LogSoftmax(AlongAxis):
    """The logarithm of Softmax."""


@op("Hardmax")
class Hardmax(AlongAxis):
    """1 at the first largest element along `axis`, 0 elsewhere."""
