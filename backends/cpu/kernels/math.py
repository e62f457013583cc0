"""The functions of `elementwise.FUNCTIONS` for kernels, by compute dtype.

The float32 ones below have no branches and no tables, so that loops over them vectorise on any target. Their polynomials are minimax
fits (weighted least squares, iterated) to the reduced function. Bounds in units in the last place, against the true value, found by
trying every 1021st float32 on a machine with FMA: exp 1, expm1 1.4, log 0.9, log1p 1.5, tanh 1.3, erf 2; sigmoid: see there. Infinities,
NaN and subnormal results as in C.
The other functions and float64 call libm.
"""

import math

import numpy as np

from mnnx.backends.cpu.kernels.integer_math import integer_functions
from mnnx.backends.cpu.kernels.intrinsics import (
    absolute,
    bits_of_f32,
    ceiling,
    copy_sign,
    f32_of_bits,
    float_remainder,
    floor,
    fmuladd,
    inlined,
    maximum,
    minimum,
    round_even,
    select,
    square_root,
)

F = np.float32
LOG2_E, LN2_HIGH, LN2_LOW = F(1.4426950408889634), F(0.693359375), F(-2.1219444e-04)
#: Added to a float32 below 2^22, it rounds to an integer, which stands in the low bits of the sum.
ROUNDER = F(12582912.0)
ROUNDER_BITS = np.int32(0x4B400000)
INF = F(np.inf)
NAN = F(np.nan)


@inlined
def _power_of_two(n):
    """2^n for an int32 n in [-126, 127]."""
    return f32_of_bits(np.int32((n + np.int32(127)) << np.int32(23)))


@inlined
def _reduce(x):
    """n, r with x = n ln 2 + r, n a whole int32, |r| <= ln 2 / 2."""
    shifted = fmuladd(x, LOG2_E, ROUNDER)
    whole = shifted - ROUNDER
    r = fmuladd(whole, -LN2_LOW, fmuladd(whole, -LN2_HIGH, x))
    return np.int32(bits_of_f32(shifted) - ROUNDER_BITS), r


@inlined
def _expm1_reduced(r):
    """e^r - 1 for |r| <= ln 2 / 2."""
    q = fmuladd(F(0.0001991852477658540), r, F(0.0013946176040917635))
    q = fmuladd(q, r, F(0.008333263918757439))
    q = fmuladd(q, r, F(0.041666269302368164))
    q = fmuladd(q, r, F(0.1666666716337204))
    q = fmuladd(q, r, F(0.5))
    return fmuladd(q * r, r, r)


@inlined
def exp_f32(x):
    bounded = select(x > F(89.0), F(89.0), select(x < F(-104.0), F(-104.0), x))
    n, r = _reduce(bounded)
    half = np.int32(n >> np.int32(1))
    value = _expm1_reduced(r) + F(1.0)
    return value * _power_of_two(half) * _power_of_two(np.int32(n - half))


@inlined
def expm1_f32(x):
    bounded = select(x > F(89.0), F(89.0), select(x < F(-20.0), F(-20.0), x))
    n, r = _reduce(bounded)
    half = _power_of_two(np.int32(n - np.int32(1)))
    value = fmuladd(half, _expm1_reduced(r), half - F(0.5))
    return select(absolute(x) < F(1e-7), x, value + value)


@inlined
def _log_finite(x):
    """log x for positive, finite, normal x."""
    bits = bits_of_f32(x)
    exponent = np.int32((bits - np.int32(0x3F3504F3)) >> np.int32(23))
    f = f32_of_bits(np.int32(bits - np.int32(exponent << np.int32(23)))) - F(1.0)
    p = fmuladd(F(0.0691542699933052), f, F(-0.1178983598947525))
    p = fmuladd(p, f, F(0.11872964352369308))
    p = fmuladd(p, f, F(-0.12384343147277832))
    p = fmuladd(p, f, F(0.14218659698963165))
    p = fmuladd(p, f, F(-0.16669251024723053))
    p = fmuladd(p, f, F(0.20002226531505585))
    p = fmuladd(p, f, F(-0.24999986588954926))
    p = fmuladd(p, f, F(0.3333331048488617))
    square = f * f
    scale = F(exponent)
    return fmuladd(scale, LN2_HIGH, f + fmuladd(scale, LN2_LOW, fmuladd(p * f, square, F(-0.5) * square)))


@inlined
def log_f32(x):
    small = x < F(1.1754944e-38)
    value = _log_finite(select(small, x * F(8388608.0), x))
    value = select(small, value - F(15.942385152878742), value)
    value = select(x == F(0.0), -INF, select(x < F(0.0), NAN, value))
    return select(x < INF, value, x)  # infinity and NaN stay


@inlined
def log1p_f32(x):
    u = x + F(1.0)
    value = log_f32(u) + (x - (u - F(1.0))) / u
    return select((x < INF) & (x > F(-1.0)), value, log_f32(u))


@inlined
def tanh_f32(x):
    a = absolute(x)
    t = x * x
    p = fmuladd(F(0.002147539984434843), t, F(-0.008182677440345287))
    p = fmuladd(p, t, F(0.021702969446778297))
    p = fmuladd(p, t, F(-0.05394720286130905))
    p = fmuladd(p, t, F(0.13333210349082947))
    p = fmuladd(p, t, F(-0.3333333134651184))
    near = fmuladd(p * t, x, x)
    far = F(1.0) - F(2.0) / (exp_f32(a + a) + F(1.0))
    return select(a < F(0.625), near, copy_sign(far, x))


@inlined
def erf_f32(x):
    a = absolute(x)
    t = x * x
    p = fmuladd(F(-9.641518772696145e-06), t, F(0.00011256949073867872))
    p = fmuladd(p, t, F(-0.0008482828852720559))
    p = fmuladd(p, t, F(0.005220945458859205))
    p = fmuladd(p, t, F(-0.0268654003739357))
    p = fmuladd(p, t, F(0.11283782124519348))
    p = fmuladd(p, t, F(-0.37612637877464294))
    p = fmuladd(p, t, F(0.12837922573089600))
    near = fmuladd(p, x, x)
    b = select(a > F(4.0), F(4.0), a)
    q = fmuladd(F(-2.1697602278436534e-05), b, F(0.0004414724826347083))
    q = fmuladd(q, b, F(-0.004205283708870411))
    q = fmuladd(q, b, F(0.025210337713360786))
    q = fmuladd(q, b, F(-0.10842209309339523))
    q = fmuladd(q, b, F(-0.633216381072998))
    q = fmuladd(q, b, F(-1.1295802593231201))
    q = fmuladd(q, b, F(0.00018846728198695928))
    far = copy_sign(F(1.0) - exp_f32(q), x)
    return select(a < F(1.0), near, far)


@inlined
def sigmoid_f32(x):
    """A rational fit over [-18, 18], absolute error below 1e-7: x P(x^2) / Q(x^2) + 1/2.

    The coefficients are those of Eigen's logistic function, which other runtimes use as well: quantized networks then round alike.
    """
    x = minimum(maximum(x, F(-18.0)), F(18.0))
    s = x * x
    p = fmuladd(s, F(4.37031012579801e-11), F(1.15627324459942e-07))
    p = fmuladd(p, s, F(6.08574864600143e-05))
    p = fmuladd(p, s, F(8.51377133304701e-03))
    p = fmuladd(p, s, F(2.48287947061529e-01))
    q = fmuladd(s, F(6.10247389755681e-13), F(5.76102136993427e-09))
    q = fmuladd(q, s, F(6.29106785017040e-06))
    q = fmuladd(q, s, F(1.70198817374094e-03))
    q = fmuladd(q, s, F(1.16817656904453e-01))
    q = fmuladd(q, s, F(9.93151921023180e-01))
    return minimum(maximum(p * x / q + F(0.5), F(0.0)), F(1.0))


# ---- float32 and float64
@inlined
def is_nan(x):
    return x != x


@inlined
def quotient_float(a, b):
    return a / b


@inlined
def power_float(a, b):
    return a**b


def _constants(of):
    """Functions that need constants of the type `of`."""
    zero, one, infinity = of(0), of(1), of(np.inf)

    @inlined
    def sign(x):
        return select(x > zero, one, select(x < zero, -one, x))

    @inlined
    def is_infinite(x):
        return absolute(x) == infinity

    @inlined
    def modulo(a, b):
        r = float_remainder(a, b)
        return select(r == zero, copy_sign(r, b), select((r < zero) != (b < zero), r + b, r))

    return {"sign": sign, "isinf": is_infinite, "mod": modulo}


def by_dtype(dtype: str) -> dict[str, object]:
    """The functions by their names in expressions, for arguments of this compute dtype."""
    if dtype == "float32":
        return _FLOATS | _FLOAT32 | _constants(np.float32)
    if dtype == "float64":
        return _FLOATS | _constants(np.float64)
    return integer_functions(dtype)


def _libm(name: str):
    function = getattr(math, name)

    @inlined
    def call(x):
        return function(x)

    return call


_exp = _libm("exp")


@inlined
def sigmoid_float(x):
    one = x * 0 + 1  # in the dtype of x
    return one / (one + _exp(-x))


_FLOATS = {
    "where": select,
    "sigmoid": sigmoid_float,
    "min": minimum,
    "max": maximum,
    "abs": absolute,
    "isnan": is_nan,
    "div": quotient_float,
    "rem": float_remainder,
    "pow": power_float,
    "floor": floor,
    "ceil": ceiling,
    "round": round_even,
    "sqrt": square_root,
    **{
        name: _libm(name)
        for name in (
            "exp", "log", "expm1", "log1p", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
            "acosh", "atanh",
        )
    },
}  # fmt: skip
_FLOAT32 = {
    "exp": exp_f32,
    "expm1": expm1_f32,
    "log": log_f32,
    "log1p": log1p_f32,
    "tanh": tanh_f32,
    "erf": erf_f32,
    "sigmoid": sigmoid_f32,
}
