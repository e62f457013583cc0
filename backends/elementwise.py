"""Ops that compute each element from the elements of their broadcast inputs: one table that every backend reads.

`expression(op, inputs)` gives the Expression of an op for such inputs. The CPU backend makes numba kernels of it, GPU backends kernel
source, and `evaluate` runs it with NumPy for any dtype. What its text may hold, and means:

* Names: the inputs, by the letters of `inputs` in their order (an input that was left out has no letter); the op's attributes of type
  int, float and bool; the functions below.
* Types. The inputs are converted to the compute dtype (`compute_dtype`) before anything else, and so are attributes and literals; the
  booleans among inputs of other dtypes (the condition of Where) stay booleans. The result is converted as C does it to the dtype that
  `op.infer` gives: floats are truncated to integers (out of range: any value, but no trap), anything but zero is true, integers wrap.
* Operators, in Python's and C's common meaning, with parentheses wherever the two languages' precedences differ:
  `+ - *` and unary `-` (integers wrap); `/` (floats only, IEEE); `< <= > >= == !=` (boolean results; false with NaN, but `!=` true);
  `& | ^` (integers and booleans); `~` (integers only).
* Functions (`FUNCTIONS`); floats only unless said otherwise, with C's results for NaN, infinities and arguments out of range:

  where(c, a, b)      a where the boolean c is true, else b; any dtype
  min(a, b) max(a, b) any dtype; NaN where a or b is NaN
  abs(x)              any signed or unsigned dtype; the most negative integer stays itself
  sign(x)             -1, 0, 1 in the compute dtype; any dtype; NaN stays NaN
  isnan(x) isinf(x)   booleans
  div(a, b)           floats: a / b; integers: truncated towards zero, 0 where b is 0, wraps for the most negative integer by -1
  mod(a, b)           a - floor(a / b) * b, with the sign of b (Python's %); integers: 0 where b is 0; floats: NaN where b is 0,
                      ±0 with the sign of b where a is 0; b where b is infinite and a of the other sign
  rem(a, b)           a - trunc(a / b) * b, with the sign of a (C's % and fmod); integers: 0 where b is 0 or -1
  pow(a, b)           floats: C's pow; integers: wraps; for negative b the truncated real result, and 0 where a is 0
  shl(a, b) shr(a, b) integers: bits moved up, or down (with the sign, where a is signed); b outside [0, bits): 0, or -1 from shr of a
                      negative a
  floor ceil          as in C
  round(x)            to the nearest integer, halves to even (C's rint)
  sigmoid(x)          1 / (1 + e^-x) within 1e-7 (float32) or a few units in the last place (float64)
  sqrt exp log expm1 log1p erf sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh    as in C, to a few units in the last place
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CodeType

import numpy as np

from mnnx.backends import elementwise_functions as functions
from mnnx.schema.ops import activation, arithmetic, cast, comparison, quantized_arithmetic
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.elementwise import BOOL, FLOATS, INTEGERS, SMALL_FLOATS, SMALL_INTEGERS
from mnnx.schema.records import Row


class Expression(Row):
    """`text` over inputs named by the letters of `inputs`; `compute` overrides the compute dtype that follows from the inputs."""

    text: str
    inputs: str = "x"
    compute: np.dtype | None = None


#: What an expression may call, with its NumPy meaning.
FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "where": np.where,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "sign": np.sign,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "div": functions.div,
    "mod": np.mod,
    "rem": np.fmod,
    "pow": functions.power,
    "shl": functions.shift_left,
    "shr": functions.shift_right,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "erf": functions.erf,
    "sigmoid": functions.sigmoid,
    **{name: getattr(np, name) for name in ("sqrt", "exp", "log", "expm1", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: getattr(np, name.replace("a", "arc", 1)) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
}

_FLOAT32 = np.dtype("float32")
_FLOAT64 = np.dtype("float64")


def _chain(function: str) -> Callable[..., Expression]:
    def row(op: Op, inputs: Sequence[Spec | None]) -> Expression:
        letters = "abcdefgh"[: len(inputs)]
        return Expression(functools.reduce(lambda left, right: f"{function}({left}, {right})", letters), letters)

    return row


def _sum(op: Op, inputs: Sequence[Spec | None]) -> Expression:
    letters = "abcdefgh"[: len(inputs)]
    total = " + ".join(letters)
    return Expression(f"({total}) / {len(inputs)}" if isinstance(op, arithmetic.Mean) else total, letters)


def _clip(op: Op, inputs: Sequence[Spec | None]) -> Expression:
    low, high = (len(inputs) > index and inputs[index] is not None for index in (1, 2))
    text = "max(x, l)" if low else "x"
    return Expression(f"min({text}, h)" if high else text, "x" + "l" * low + "h" * high)


def _pow(op: Op, inputs: Sequence[Spec | None]) -> Expression:
    base, exponent = inputs[0].dtype, inputs[1].dtype
    if base in INTEGERS and base != exponent:
        return Expression("pow(a, b)", "ab", _FLOAT64 if exponent in FLOATS else np.dtype("int64"))
    return Expression("pow(a, b)", "ab", _working(base))


def _is_inf(op: comparison.IsInf, inputs: Sequence[Spec | None]) -> Expression:
    if op.detect_negative and op.detect_positive:
        return Expression("isinf(x)")
    if op.detect_negative or op.detect_positive:
        return Expression(f"isinf(x) & (x {'<' if op.detect_negative else '>'} 0)")
    return Expression("isinf(x) & isnan(x)")  # asked for neither: false everywhere


def _cast(op: cast.Cast, inputs: Sequence[Spec | None]) -> Expression | None:
    plain = FLOATS | INTEGERS | {BOOL}
    return Expression("x") if inputs[0].dtype in plain and op.to in plain else None


def _quantized(real: str) -> Callable[..., Expression]:
    def row(op: quantized_arithmetic.QuantizedBinary, inputs: Sequence[Spec | None]) -> Expression:
        low, high = (-128, 127) if op.made == np.int8 else (0, 255)
        return Expression(f"min(max(round(({real}) / y_scale) + y_zero, {low}), {high})", "ab", _FLOAT32)

    return row


_NORMAL = "0.5 * x * (1 + erf(x * 0.7071067811865476))"
_NORMAL_BY_TANH = "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))"

Row = Expression | Callable[..., Expression | None]

#: Op → its expression, or a function (op, inputs) → Expression where that depends on them; None: only a NumPy execution does it.
TABLE: dict[type[Op], Row] = {
    arithmetic.Add: Expression("a + b", "ab"),
    arithmetic.Sub: Expression("a - b", "ab"),
    arithmetic.Mul: Expression("a * b", "ab"),
    arithmetic.Div: Expression("div(a, b)", "ab"),
    arithmetic.Mod: lambda op, inputs: Expression("rem(a, b)" if op.fmod else "mod(a, b)", "ab"),
    arithmetic.Pow: _pow,
    arithmetic.Max: _chain("max"),
    arithmetic.Min: _chain("min"),
    arithmetic.Sum: _sum,
    arithmetic.Mean: _sum,
    arithmetic.Clip: _clip,
    arithmetic.Neg: Expression("-x"),
    arithmetic.Abs: Expression("abs(x)"),
    arithmetic.Sign: Expression("sign(x)"),
    arithmetic.Erf: lambda op, inputs: Expression("erf(x)", compute=_FLOAT64 if inputs[0].dtype in INTEGERS else None),
    arithmetic.Reciprocal: Expression("1 / x"),
    **{
        op: Expression(f"{op.name.lower()}(x)")
        for op in (
            arithmetic.Sqrt,
            arithmetic.Exp,
            arithmetic.Log,
            arithmetic.Ceil,
            arithmetic.Floor,
            arithmetic.Round,
            arithmetic.Sin,
            arithmetic.Cos,
            arithmetic.Tan,
            arithmetic.Asin,
            arithmetic.Acos,
            arithmetic.Atan,
            arithmetic.Sinh,
            arithmetic.Cosh,
            arithmetic.Tanh,
            arithmetic.Asinh,
            arithmetic.Acosh,
            arithmetic.Atanh,
        )
    },
    comparison.Equal: Expression("a == b", "ab"),
    comparison.Greater: Expression("a > b", "ab"),
    comparison.GreaterOrEqual: Expression("a >= b", "ab"),
    comparison.Less: Expression("a < b", "ab"),
    comparison.LessOrEqual: Expression("a <= b", "ab"),
    comparison.And: Expression("a & b", "ab"),
    comparison.Or: Expression("a | b", "ab"),
    comparison.Xor: Expression("a ^ b", "ab"),
    comparison.Not: Expression("x == 0"),
    comparison.BitwiseAnd: Expression("a & b", "ab"),
    comparison.BitwiseOr: Expression("a | b", "ab"),
    comparison.BitwiseXor: Expression("a ^ b", "ab"),
    comparison.BitwiseNot: Expression("~x"),
    comparison.BitShift: lambda op, inputs: Expression("shl(a, b)" if op.direction == "LEFT" else "shr(a, b)", "ab"),
    comparison.IsNaN: Expression("isnan(x)"),
    comparison.IsInf: _is_inf,
    comparison.Where: Expression("where(c, a, b)", "cab"),
    cast.Cast: _cast,
    activation.Relu: Expression("max(x, 0)"),
    activation.LeakyRelu: Expression("where(x >= 0, x, alpha * x)"),
    activation.PRelu: Expression("where(x >= 0, x, s * x)", "xs"),
    activation.Elu: Expression("where(x >= 0, x, alpha * expm1(x))"),
    activation.Selu: Expression("gamma * where(x > 0, x, alpha * expm1(x))"),
    activation.Celu: Expression("max(x, 0) + min(alpha * expm1(x / alpha), 0)"),
    activation.ThresholdedRelu: Expression("where(x > alpha, x, 0)"),
    activation.HardSigmoid: Expression("max(min(alpha * x + beta, 1), 0)"),
    activation.HardSwish: Expression("x * max(min(x / 6 + 0.5, 1), 0)"),
    activation.Sigmoid: Expression("sigmoid(x)"),
    activation.Softplus: Expression("max(x, 0) + log1p(exp(-abs(x)))"),
    activation.Softsign: Expression("x / (1 + abs(x))"),
    activation.Gelu: lambda op, inputs: Expression(_NORMAL_BY_TANH if op.approximate == "tanh" else _NORMAL),
    activation.Mish: Expression("x * tanh(max(x, 0) + log1p(exp(-abs(x))))"),
    activation.Swish: Expression("x * sigmoid(alpha * x)"),
    activation.SwiGLU: Expression("a * sigmoid(alpha * a) * b", "ab"),
    quantized_arithmetic.QuantizedAdd: _quantized("(a - a_zero) * a_scale + (b - b_zero) * b_scale"),
    quantized_arithmetic.QuantizedMul: _quantized("(a - a_zero) * a_scale * ((b - b_zero) * b_scale)"),
    activation.Shrink: lambda op, inputs: _shrink(inputs[0].dtype),
}


def _shrink(dtype: np.dtype) -> Expression:
    text = "where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))"
    return Expression(text, compute=_FLOAT64 if dtype in INTEGERS else None)


def expression(op: Op, inputs: Sequence[Spec | None]) -> Expression | None:
    """The expression of `op` on such inputs; None where it has none."""
    row = TABLE.get(type(op))
    return row(op, inputs) if callable(row) else row


def _working(dtype: np.dtype) -> np.dtype:
    """The dtype that elements of `dtype` are computed in."""
    if (dtype.itemsize < 4 and dtype in FLOATS) or dtype in SMALL_FLOATS:
        return _FLOAT32
    if dtype in SMALL_INTEGERS:
        return np.dtype("uint8" if dtype.name.startswith("u") else "int8")
    return dtype


def compute_dtype(expression: Expression, inputs: Sequence[Spec | None]) -> np.dtype:
    """The dtype that an expression is computed in: its own choice, else that of its inputs (the first that isn't bool), where float16,
    bfloat16 and smaller floats are float32, and int4, int2, uint4, uint2 are int8 and uint8."""
    if expression.compute is not None:
        return expression.compute
    return _working(next((spec.dtype for spec in inputs if spec is not None and spec.dtype != BOOL), BOOL))


def evaluate(op: Op, *inputs: np.ndarray | None) -> np.ndarray:
    """The op's expression on NumPy arrays of any dtype."""
    specs = [None if array is None else Spec(array.dtype, array.shape) for array in inputs]
    found = expression(op, specs)
    result = op.infer(*specs)
    compute = compute_dtype(found, specs)
    given = [array if array.dtype in (compute, BOOL) else array.astype(compute) for array in inputs if array is not None]
    attributes = {key: value for key in op.fields if isinstance(value := getattr(op, key), (int, float))}
    names = FUNCTIONS | attributes | dict(zip(found.inputs, given, strict=True))
    with np.errstate(all="ignore"):
        array = np.asarray(eval(_compiled(found.text), {"__builtins__": {}}, names))
        return array.astype(result.dtype, copy=False).reshape(result.shape)


@functools.cache
def names_of(text: str) -> frozenset[str]:
    """The names in an expression, its functions' included."""
    return frozenset(_compiled(text).co_names)


@functools.cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<expression>", "eval")


__all__ = ["FUNCTIONS", "TABLE", "Expression", "compute_dtype", "evaluate", "expression", "names_of"]
