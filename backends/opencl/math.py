"""The functions of expressions in OpenCL C. Its own are accurate to a few units in the last place, as its specification demands."""

from __future__ import annotations

from mnnx.backends.gpu.logistic import logistic

_TEXT = """\
#define m_abs(x) fabs(x)
#define m_floor(x) floor(x)
#define m_ceil(x) ceil(x)
#define m_round(x) rint(x)
#define m_sqrt(x) sqrt(x)
#define m_exp(x) exp(x)
#define m_log(x) log(x)
#define m_expm1(x) expm1(x)
#define m_log1p(x) log1p(x)
#define m_erf(x) erf(x)
#define m_sin(x) sin(x)
#define m_cos(x) cos(x)
#define m_tan(x) tan(x)
#define m_asin(x) asin(x)
#define m_acos(x) acos(x)
#define m_atan(x) atan(x)
#define m_sinh(x) sinh(x)
#define m_cosh(x) cosh(x)
#define m_tanh(x) tanh(x)
#define m_asinh(x) asinh(x)
#define m_acosh(x) acosh(x)
#define m_atanh(x) atanh(x)
#define m_isnan(x) isnan(x)
#define m_isinf(x) isinf(x)
#define m_div(a, b) ((a) / (b))
#define m_rem(a, b) fmod(a, b)
#define m_pow(a, b) pow(a, b)
float m_sign(float x) { return isnan(x) ? x : sign(x); }
float m_min(float a, float b) { return isnan(a) ? a : isnan(b) ? b : fmin(a, b); }
float m_max(float a, float b) { return isnan(a) ? a : isnan(b) ? b : fmax(a, b); }
float m_sigmoid(float x) { return keep_nan(fitted_sigmoid(x), x); }
float m_mod(float a, float b) {
    if (isinf(b) && !isinf(a) && !isnan(a)) return a == 0.0f ? copysign(0.0f, b) : (a < 0.0f) == (b < 0.0f) ? a : b;
    float r = fmod(a, b);
    if (r == 0.0f) return copysign(r, b);
    return (r < 0.0f) == (b < 0.0f) ? r : r + b;
}
int i_abs(int x) { return (int)abs(x); }
int i_sign(int x) { return (x > 0) - (x < 0); }
int i_min(int a, int b) { return a < b ? a : b; }
int i_max(int a, int b) { return a > b ? a : b; }
int i_div(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0u - (uint)a) : a / b; }
int i_rem(int a, int b) { return b == 0 || b == -1 ? 0 : a % b; }
int i_mod(int a, int b) { int r = i_rem(a, b); return r != 0 && (r < 0) != (b < 0) ? r + b : r; }
int i_shl(int a, int b) { return b < 0 || b > 31 ? 0 : (int)((uint)a << b); }
int i_shr(int a, int b) { return b < 0 || b > 31 ? (a < 0 ? -1 : 0) : a >> b; }
int i_pow(int a, int b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) != 0 ? -1 : 1) : 0;
    uint result = 1u, base = (uint)a;
    for (; b != 0; b >>= 1) { if ((b & 1) != 0) result *= base; base *= base; }
    return (int)result;
}
"""

FUNCTIONS = logistic("fitted_sigmoid", "fused") + _TEXT
