"""How products end: their activation, chosen at run time, so that no kernel needs a variant for each."""

from __future__ import annotations

import re
from collections.abc import Collection

from mnnx.backends.gpu.logistic import logistic
from mnnx.schema.ops.fused import ACTIVATIONS

#: The parameters that a kernel with `activate` takes, in this order, from `activation_params`.
PARAMS = "int activation, float activation_a, float activation_b"

_NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}
_CASE = re.compile(r"(?m)^(?=    if \(kind == @)")
_NAME = re.compile(r"@(\w+)")

# erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: within 1.5e-7.
# tanh for |x| up to 0.625: a relative minimax polynomial, within 5e-9 of the result. e^x - 1 near 0: the first terms of its series, within
# 1e-7 of the result for |x| up to 1/4.
_TEXT = """
T near_tanh(T x) {
    T s = x * x;
    return x + x * s * (-0.333332819f + s * (0.133314422f + s * (-0.053739715f + s * (0.020639087f + s * -0.00570498677f))));
}
T near_expm1(T x) {
    T s = 0.0083333333f + x * (0.0013888889f + x * 0.00019841270f);
    return x * (1.0f + x * (0.5f + x * (0.16666667f + x * (0.041666667f + x * s))));
}
T plain_activate(int kind, float a, float b, T v) {
    if (kind == @Relu) return max(v, 0.0f);
    if (kind == @Clip) return min(max(v, a), b);
    if (kind == @LeakyRelu) return max(v, 0.0f) + a * min(v, 0.0f);
    if (kind == @HardSigmoid) return clamp(a * v + b, 0.0f, 1.0f);
    if (kind == @HardSwish) return v * clamp(v * 0.16666667f + 0.5f, 0.0f, 1.0f);
    if (kind == @ScaledHardSwish) return v * clamp(v * 0.16666667f + 0.5f, 0.0f, 1.0f) * a + b;
    if (kind == @Sigmoid) return near_sigmoid(v);
    if (kind == @Swish) return v * near_sigmoid(a * v);
    if (kind == @Tanh) {
        T far = step(0.625f, abs_of(v));
        return far * (1.0f - 2.0f / (exp(2.0f * v) + 1.0f)) + (1.0f - far) * near_tanh(clamp(v, -0.625f, 0.625f));
    }
    if (kind == @Elu) {
        T x = min(v, 0.0f);
        T far = step(0.25f, -x);
        return max(v, 0.0f) + a * (far * (exp(x) - 1.0f) + (1.0f - far) * near_expm1(max(x, -0.25f)));
    }
    if (kind == @Gelu) {
        T x = abs_of(v) * 0.70710678f;
        T t = 1.0f / (1.0f + 0.3275911f * x);
        T tail = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f)))) * exp(-x * x);
        return max(v, 0.0f) - 0.5f * abs_of(v) * tail;
    }
    if (kind == @GeluTanh) {
        T u = 0.79788456f * (v + 0.044715f * v * v * v);
        return v / (1.0f + exp(-2.0f * u));
    }
    if (kind == @Mish) {
        T e = exp(min(v, 20.0f));
        return v * (e * (e + 2.0f)) / (e * (e + 2.0f) + 2.0f);
    }
    return v;
}
T activate(int kind, float a, float b, T v) { return keep_nan(plain_activate(kind, a, b, v), v); }
"""


def activate(width: int, names: Collection[str] = tuple(ACTIVATIONS)) -> str:
    """The function `activate(activation, activation_a, activation_b, v)` for vectors of that width, which knows the activations `names`."""
    head, *cases = _CASE.split(_TEXT)
    last, end = cases.pop().split("    return v;")
    cases = [case for case in (*cases, last) if _NAME.search(case)[1] in names]
    text = "".join((head, *cases, "    return v;", end)).replace("T ", "float " if width == 1 else f"float{width} ")
    text = logistic("near_sigmoid", "madd", width) + text
    return _NAME.sub(lambda found: str(_NUMBERS[found[1]]), text)


def activation_params(activation: str, parameters: tuple[float, ...]) -> list[int | float]:
    """What a kernel takes as PARAMS. Raises KeyError for an activation that `activate` doesn't know."""
    a, b = (*parameters, 0.0, 0.0)[:2]
    return [_NUMBERS[activation], float(a), float(b)]
