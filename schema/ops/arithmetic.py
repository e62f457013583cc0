"""Arithmetic and mathematical functions, element by element. ONNX Add-14, Div-14, Mod-28, Pow-15, Clip-13, Max-13, Erf-13, … ."""

from mnnx.schema.ops.base import Spec, op, require
from mnnx.schema.ops.elementwise import FLOATS, NUMERIC, SIGNED, Binary, Elementwise, FloatUnary, broadcast, require_dtype, require_inputs

#: The most inputs that Max, Min, Sum and Mean take; importers chain them where ONNX gives more.
MAX_VARIADIC = 8


@op("Add")
class Add(Binary):
    """a + b; integers wrap."""


@op("Sub")
class Sub(Binary):
    """a - b; integers wrap."""


@op("Mul")
class Mul(Binary):
    """a * b; integers wrap."""


@op("Div")
class Div(Binary):
    """a / b; integers are truncated towards zero, and 0 where b is 0."""


@op("Mod")
class Mod(Binary):
    """The remainder of a / b: with the sign of b, or of a where `fmod`. Integers: 0 where b is 0."""

    fmod: bool = False


@op("Pow")
class Pow(Elementwise):
    """x ** y in the dtype of x; y may be of another one. An integer x: truncated, and wraps."""

    def infer(self, *inputs):
        require_inputs(inputs, 2)
        x, y = inputs
        require_dtype(x, NUMERIC, "the base")
        require_dtype(y, NUMERIC, "the exponent")
        return Spec(x.dtype, broadcast(x.shape, y.shape))


class Variadic(Elementwise):
    """An Elementwise of 1 to MAX_VARIADIC inputs."""

    def infer(self, *inputs):
        require_inputs(inputs, 1, MAX_VARIADIC)
        require_inputs(inputs, len(inputs))
        require_dtype(inputs[0], self.accepts)
        require(len({spec.dtype for spec in inputs}) == 1, f"inputs must be of one dtype; found {', '.join(map(str, inputs))}")
        return Spec(inputs[0].dtype, broadcast(*(spec.shape for spec in inputs)))


@op("Max")
class Max(Variadic):
    """The largest of the inputs; NaN where one of them is."""


@op("Min")
class Min(Variadic):
    """The smallest of the inputs; NaN where one of them is."""


@op("Sum")
class Sum(Variadic):
    """The sum of the inputs."""

    accepts = FLOATS


@op("Mean")
class Mean(Variadic):
    """The mean of the inputs."""

    accepts = FLOATS


@op("Clip")
class Clip(Elementwise):
    """min(max(x, low), high); `low` and `high` are scalars, either may be left out. NaN stays NaN."""

    def infer(self, *inputs):
        require_inputs(inputs, 1, 3)
        x = inputs[0]
        require_dtype(x, NUMERIC)
        for bound in inputs[1:]:
            require(
                bound is None or (bound.size == 1 and bound.rank <= max(x.rank, 1) and bound.dtype == x.dtype),
                f"bounds must be scalars of x's dtype; found {bound} beside {x}",
            )
        return Spec(x.dtype, x.shape)


@op("Neg")
class Neg(Elementwise):
    """-x."""

    accepts = FLOATS | SIGNED


@op("Abs")
class Abs(Elementwise):
    """|x|; the most negative integer stays itself."""


@op("Sign")
class Sign(Elementwise):
    """-1, 0 or 1; NaN stays NaN."""


@op("Erf")
class Erf(Elementwise):
    """The Gauss error function; truncated for integers."""


@op("Sqrt")
class Sqrt(FloatUnary):
    """The square root; NaN for negative x."""


@op("Reciprocal")
class Reciprocal(FloatUnary):
    """1 / x."""


@op("Exp")
class Exp(FloatUnary):
    """e ** x."""


@op("Log")
class Log(FloatUnary):
    """The natural logarithm; NaN for negative x."""


@op("Ceil")
class Ceil(FloatUnary):
    """The smallest integer not below x."""


@op("Floor")
class Floor(FloatUnary):
    """The largest integer not above x."""


@op("Round")
class Round(FloatUnary):
    """The nearest integer, halves to even."""


@op("Sin")
class Sin(FloatUnary):
    """The sine of x radians."""


@op("Cos")
class Cos(FloatUnary):
    """The cosine of x radians."""


@op("Tan")
class Tan(FloatUnary):
    """The tangent of x radians."""


@op("Asin")
class Asin(FloatUnary):
    """The arcsine, in radians."""


@op("Acos")
class Acos(FloatUnary):
    """The arccosine, in radians."""


@op("Atan")
class Atan(FloatUnary):
    """The arctangent, in radians."""


@op("Sinh")
class Sinh(FloatUnary):
    """The hyperbolic sine."""


@op("Cosh")
class Cosh(FloatUnary):
    """The hyperbolic cosine."""


@op("Tanh")
class Tanh(FloatUnary):
    """The hyperbolic tangent."""


@op("Asinh")
class Asinh(FloatUnary):
    """The inverse hyperbolic sine."""


@op("Acosh")
class Acosh(FloatUnary):
    """The inverse hyperbolic cosine."""


@op("Atanh")
class Atanh(FloatUnary):
    """The inverse hyperbolic tangent."""
