"""The functions of expressions in GLSL.

Vulkan asks little of its own: sine and cosine within 2^-11, e^x within 3 + 2|x| units in the last place, arc tangents within 4,096, no
NaN where one belongs. So here are our own, of additions, products, quotients and square roots alone, which are within
4 units where those are rounded to the nearest; the logistic function is within 1e-7.

Method, with the classical reductions (J.-M. Muller, Elementary Functions): e^x and 2^x by powers of two and a polynomial on half an
octave; the logarithm by the exponent and a polynomial on [sqrt(1/2), sqrt(2)]; sine and cosine by parts of pi / 2 (Cody and Waite), from
2,048 upwards by as many bits of 2 / pi as matter (Payne and Hanek); arc sine and arc tangent on a part of their range, the rest by
identities; hyperbolic functions by e^x - 1; erf by a polynomial up to 1, then by the logarithm of its distance from 1; powers by a
logarithm of two floats. The polynomials are relative minimax fits, each within 4e-8 of its function. `precise` marks what a driver may
not rearrange. Without an instruction for it, a fused multiply-add is made of Dekker's exact product and Knuth's exact sum, which is rounded
as it should be but for rare ties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mnnx.backends.gpu.logistic import logistic

#: Each function begins in the first column; a constant array of it stands inside.
_TEXT = """
bool m_isnan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }
bool m_isinf(float x) { return (floatBitsToUint(x) & 0x7fffffffu) == 0x7f800000u; }
float fused(float a, float b, float c) {
    if (has_fma) return fma(a, b, c);
    float high_a = uintBitsToFloat(floatBitsToUint(a) & 0xfffff000u), high_b = uintBitsToFloat(floatBitsToUint(b) & 0xfffff000u);
    precise float low_a = a - high_a, low_b = b - high_b, p = a * b;
    precise float rest = ((high_a * high_b - p) + high_a * low_b + low_a * high_b) + low_a * low_b;
    precise float sum = p + c, from_c = sum - p;
    precise float lost = (p - (sum - from_c)) + (c - from_c);
    precise float result = sum + (lost + rest);
    return result;
}
float m_signed(float magnitude, float of) {
    return uintBitsToFloat((floatBitsToUint(magnitude) & 0x7fffffffu) | (floatBitsToUint(of) & 0x80000000u));
}
float m_scaled(float x, int n) {
    int half_n = n / 2;
    precise float first = x * intBitsToFloat((half_n + 127) << 23);
    return first * intBitsToFloat((n - half_n + 127) << 23);
}
float m_abs(float x) { return abs(x); }
float m_floor(float x) { return floor(x); }
float m_ceil(float x) { return ceil(x); }
float m_round(float x) { return roundEven(x); }
float m_sqrt(float x) { return x < 0.0f ? NAN : sqrt(x); }
float m_sign(float x) { return m_isnan(x) ? x : sign(x); }
float m_min(float a, float b) { return m_isnan(a) ? a : m_isnan(b) ? b : min(a, b); }
float m_max(float a, float b) { return m_isnan(a) ? a : m_isnan(b) ? b : max(a, b); }
float m_div(float a, float b) { return a / b; }
float m_exp(float x) {
    if (m_isnan(x)) return x;
    float v = clamp(x, -104.0f, 89.0f);
    float n = roundEven(v * 1.44269504f);
    precise float high = v - n * 0.693359375f;
    precise float r = high + n * 2.12194440e-4f;
    float p = 1.39411166e-3f + r * 1.99137066e-4f;
    p = 0.5f + r * (0.166666672f + r * (0.041666355f + r * (8.33327416e-3f + r * p)));
    return m_scaled(1.0f + (r + r * r * p), int(n));
}
float m_expm1(float x) {
    if (m_isnan(x)) return x;
    if (x > 88.8f) return INFINITY;
    float v = max(x, -20.0f);
    float n = roundEven(v * 1.44269504f);
    precise float high = v - n * 0.693359375f;
    precise float r = high + n * 2.12194440e-4f;
    float p = 1.39411166e-3f + r * 1.99137066e-4f;
    p = 0.5f + r * (0.166666672f + r * (0.041666355f + r * (8.33327416e-3f + r * p)));
    p = r + r * r * p;
    if (n == 0.0f) return p == 0.0f ? x : p;
    return m_scaled(p + (1.0f - m_scaled(1.0f, -int(n))), int(n));
}
float m_log(float x) {
    if (m_isnan(x) || x < 0.0f) return NAN;
    if (x == 0.0f) return -INFINITY;
    if (m_isinf(x)) return x;
    float shift = x < 1.17549435e-38f ? 24.0f : 0.0f;
    int bits = floatBitsToInt(shift != 0.0f ? x * 16777216.0f : x);
    int n = (bits - 0x3f3504f3) >> 23;
    float f = intBitsToFloat(bits - (n << 23)) - 1.0f;
    float e = float(n) - shift;
    float p = -0.131322309f + f * (0.129001424f + f * -0.0787285343f);
    p = 0.333333164f + f * (-0.250008255f + f * (0.200023741f + f * (-0.166239977f + f * (0.141788289f + f * p))));
    float tail = e * -2.12194440e-4f + f * f * (f * p - 0.5f);
    precise float sum = f + tail;
    return sum + e * 0.693359375f;
}
float m_log1p(float x) {
    if (m_isinf(x) && x > 0.0f) return x;
    precise float u = 1.0f + x;
    precise float missing = u > 2.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    return u == 1.0f ? x : u == 0.0f ? -INFINITY : m_log(u) + missing / u;
}
float m_sigmoid(float x) { return keep_nan(fitted_sigmoid(x), x); }
float m_tanh(float x) {
    if (m_isnan(x)) return x;
    float a = abs(x);
    if (a > 10.0f) return m_signed(1.0f, x);
    float e = m_expm1(2.0f * a);
    return m_signed(e / (e + 2.0f), x);
}
float m_sinh(float x) {
    float a = abs(x);
    if (a > 80.0f) {
        float h = m_exp(0.5f * a);
        return m_signed(0.5f * h * h, x);
    }
    float e = m_expm1(a);
    return m_isnan(x) ? x : m_signed(0.5f * (e + e / (e + 1.0f)), x);
}
float m_cosh(float x) {
    float a = abs(x);
    if (a > 80.0f) {
        float h = m_exp(0.5f * a);
        return 0.5f * h * h;
    }
    float e = m_exp(a);
    return 0.5f * e + 0.5f / e;
}
float m_asinh(float x) {
    if (m_isnan(x)) return x;
    float a = abs(x);
    if (a > 1e9f) return m_signed(m_log(a) + 0.693147181f, x);
    return m_signed(m_log1p(a + a * a / (1.0f + sqrt(a * a + 1.0f))), x);
}
float m_acosh(float x) {
    if (m_isnan(x) || x < 1.0f) return NAN;
    float t = x - 1.0f;
    return x > 1e9f ? m_log(x) + 0.693147181f : m_log1p(t + sqrt(t * (t + 2.0f)));
}
float m_atanh(float x) {
    float a = abs(x);
    if (m_isnan(x) || a > 1.0f) return NAN;
    return a == 1.0f ? m_signed(INFINITY, x) : m_signed(0.5f * m_log1p(2.0f * a / (1.0f - a)), x);
}
float m_erf(float x) {
    if (m_isnan(x)) return x;
    float a = abs(x), z = x * x;
    if (a < 1.0f) {
        float p = 5.18953521e-3f + z * (-8.02084105e-4f + z * 7.8891193e-5f);
        return x + x * (0.128379166f + z * (-0.37612626f + z * (0.112836003f + z * (-0.0268544443f + z * p))));
    }
    if (a > 4.0f) return m_signed(1.0f, x);
    float p = -0.0239973515f + a * (3.75189027e-3f + a * (-3.49311391e-4f + a * 1.38427649e-5f));
    return m_signed(1.0f - m_exp(-a * (1.12869155f + a * (0.634979963f + a * (0.106514931f + a * p)))), x);
}
uint m_bits_from(uint words[8], uint place) {
    uint word = place >> 5, bit = place & 31u;
    return bit == 0u ? words[word] : (words[word] << bit) | (words[word + 1u] >> (32u - bit));
}
float m_quadrant(float x, out int quadrant) {
    if (abs(x) < 2048.0f) {
        float n = roundEven(x * 0.636619772f);
        quadrant = int(n);
        precise float r = x - n * 1.5703125f;
        r = r - n * 4.83751297e-4f;
        r = r - n * 7.54953362e-8f;
        r = r - n * 2.56334407e-12f;
        return r;
    }
    const uint two_by_pi[8] = uint[8](0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu);
    uint bits = floatBitsToUint(x) & 0x7fffffffu;
    uint mantissa = (bits & 0x7fffffu) | 0x800000u;
    uint place = (bits >> 23) - 120u;
    uint carry, low, middle, above, lowest;
    umulExtended(mantissa, m_bits_from(two_by_pi, place + 64u), above, lowest);
    umulExtended(mantissa, m_bits_from(two_by_pi, place + 32u), carry, middle);
    low = uaddCarry(middle, above, above);
    uint high = mantissa * m_bits_from(two_by_pi, place) + carry + above;
    quadrant = int((high + 0x20000000u) >> 30);
    int fraction = int((high << 2) | (low >> 30));
    float r = (float(fraction) * 2.3283064e-10f + float(low << 2) * 5.4210109e-20f) * 1.57079633f;
    quadrant = x < 0.0f ? -quadrant : quadrant;
    return x < 0.0f ? -r : r;
}
float m_sine_of(float r, int quadrant) {
    float z = r * r;
    float v;
    if ((quadrant & 1) == 0) {
        v = r + r * z * (-0.166666672f + z * (8.33332911e-3f + z * (-1.98393274e-4f + z * 2.71823728e-6f)));
    } else {
        v = 1.0f + z * (-0.5f + z * (0.0416666456f + z * (-1.38873619e-3f + z * 2.44377279e-5f)));
    }
    return (quadrant & 2) == 0 ? v : -v;
}
float m_sin(float x) {
    if (m_isnan(x) || m_isinf(x)) return NAN;
    int quadrant;
    float r = m_quadrant(x, quadrant);
    return m_sine_of(r, quadrant);
}
float m_cos(float x) {
    if (m_isnan(x) || m_isinf(x)) return NAN;
    int quadrant;
    float r = m_quadrant(x, quadrant);
    return m_sine_of(r, quadrant + 1);
}
float m_tan(float x) {
    if (m_isnan(x) || m_isinf(x)) return NAN;
    int quadrant;
    float r = m_quadrant(x, quadrant);
    return m_sine_of(r, quadrant) / m_sine_of(r, quadrant + 1);
}
float m_asin(float x) {
    float a = abs(x);
    if (m_isnan(x) || a > 1.0f) return NAN;
    float z = a > 0.5f ? 0.5f - 0.5f * a : x * x;
    float p = z * (0.166667551f + z * (0.0749519616f + z * (0.0454833359f + z * (0.0241144896f + z * 0.0422785096f))));
    if (a <= 0.5f) return x + x * p;
    float s = sqrt(z);
    return m_signed(1.57079633f - 2.0f * (s + s * p), x);
}
float m_acos(float x) {
    float a = abs(x);
    if (m_isnan(x) || a > 1.0f) return NAN;
    float z = a > 0.5f ? 0.5f - 0.5f * a : x * x;
    float p = z * (0.166667551f + z * (0.0749519616f + z * (0.0454833359f + z * (0.0241144896f + z * 0.0422785096f))));
    if (a <= 0.5f) return 1.57079633f - (x + x * p);
    float s = sqrt(z);
    float angle = 2.0f * (s + s * p);
    return x < 0.0f ? 3.14159265f - angle : angle;
}
float m_atan(float x) {
    if (m_isnan(x)) return x;
    float a = abs(x), start = 0.0f, t = a;
    if (a > 2.41421356f) {
        start = 1.57079633f;
        t = m_isinf(a) ? 0.0f : -1.0f / a;
    } else if (a > 0.414213562f) {
        start = 0.785398163f;
        t = (a - 1.0f) / (a + 1.0f);
    }
    float z = t * t;
    float p = z * (-0.333333164f + z * (0.199984834f + z * (-0.142437384f + z * (0.105951361f + z * -0.0608114824f))));
    return m_signed(start + (t + t * p), x);
}
float m_rem(float a, float b) {
    uint x = floatBitsToUint(a) & 0x7fffffffu, y = floatBitsToUint(b) & 0x7fffffffu;
    if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) return NAN;
    if (x < y) return a;
    int n = int(max(x >> 23, 1u)), m = int(max(y >> 23, 1u));
    uint divisor = (y & 0x7fffffu) | (y < 0x800000u ? 0u : 0x800000u);
    uint rest = ((x & 0x7fffffu) | (x < 0x800000u ? 0u : 0x800000u)) % divisor;
    for (int steps = n - m; steps > 0 && rest != 0u; steps -= 8) rest = (rest << min(steps, 8)) % divisor;
    return m_signed(m_scaled(float(rest), m - 150), a);
}
float m_mod(float a, float b) {
    if (m_isinf(b) && !m_isinf(a) && !m_isnan(a)) return a == 0.0f ? m_signed(0.0f, b) : (a < 0.0f) == (b < 0.0f) ? a : b;
    float r = m_rem(a, b);
    if (r == 0.0f) return m_signed(r, b);
    return m_isnan(r) || (r < 0.0f) == (b < 0.0f) ? r : r + b;
}
float m_upper(float x) { return uintBitsToFloat(floatBitsToUint(x) & 0xfffff000u); }
float m_power_of(float x, float b) {
    float shift = x < 1.17549435e-38f ? 24.0f : 0.0f;
    int bits = floatBitsToInt(shift != 0.0f ? x * 16777216.0f : x);
    int n = (bits - 0x3f3504f3) >> 23;
    float m = intBitsToFloat(bits - (n << 23));
    precise float sum = m + 1.0f;
    precise float sum_low = m - (sum - 1.0f);
    precise float q = (m - 1.0f) / sum;
    precise float q_high = m_upper(q);
    precise float sum_high = m_upper(sum);
    precise float left = ((m - 1.0f) - q_high * sum_high) - q_high * (sum - sum_high);
    left = left - (q - q_high) * sum - q * sum_low;
    float z = q * q;
    precise float tail = left / sum + q * z * (0.333333433f + z * (0.199942753f + z * 0.147948354f));
    precise float log_low = 2.88476562f * (q - q_high) + 6.24456778e-4f * q + 2.88539008f * tail;
    precise float whole = float(n) - shift;
    precise float part = 2.88476562f * q_high;
    precise float log_high = whole + part;
    log_low = log_low + (abs(whole) > abs(part) ? part - (log_high - whole) : whole - (log_high - part));
    precise float upper = m_upper(log_high);
    precise float b_upper = m_upper(b);
    precise float main_part = b_upper * upper;
    precise float other = b * ((log_high - upper) + log_low) + (b - b_upper) * upper;
    precise float power = main_part + other;
    if (power > 128.0f) return INFINITY;
    if (power < -150.0f) return 0.0f;
    float k = roundEven(power);
    precise float f = (main_part - k) + other;
    float p = 9.61800478e-3f + f * (1.34004164e-3f + f * 1.54760448e-4f);
    p = 0.693147182f + f * (0.240226507f + f * (0.0555032752f + f * p));
    return m_scaled(1.0f + f * p, int(k));
}
float m_pow(float a, float b) {
    if (b == 0.0f || a == 1.0f) return 1.0f;
    if (m_isnan(a) || m_isnan(b)) return NAN;
    float x = abs(a);
    bool whole = floor(b) == b, negative = floatBitsToInt(a) < 0;
    bool odd = whole && abs(b) < 16777216.0f && (int(b) & 1) != 0;
    float r;
    if (x == 0.0f) r = b < 0.0f ? INFINITY : 0.0f;
    else if (m_isinf(b)) r = x == 1.0f ? 1.0f : (x > 1.0f) == (b > 0.0f) ? INFINITY : 0.0f;
    else if (m_isinf(x)) r = b < 0.0f ? 0.0f : INFINITY;
    else r = negative && !whole ? NAN : m_power_of(x, b);
    return negative && odd ? -r : r;
}
int i_abs(int x) { return x < 0 ? int(0u - uint(x)) : x; }
int i_sign(int x) { return sign(x); }
int i_min(int a, int b) { return min(a, b); }
int i_max(int a, int b) { return max(a, b); }
int i_div(int a, int b) {
    if (b == 0) return 0;
    uint quotient = (a < 0 ? 0u - uint(a) : uint(a)) / (b < 0 ? 0u - uint(b) : uint(b));
    return int((a < 0) == (b < 0) ? quotient : 0u - quotient);
}
int i_rem(int a, int b) {
    if (b == 0) return 0;
    uint rest = (a < 0 ? 0u - uint(a) : uint(a)) % (b < 0 ? 0u - uint(b) : uint(b));
    return int(a < 0 ? 0u - rest : rest);
}
int i_mod(int a, int b) {
    int r = i_rem(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
int i_shl(int a, int b) { return b < 0 || b > 31 ? 0 : int(uint(a) << uint(b)); }
int i_shr(int a, int b) { return b < 0 || b > 31 ? (a < 0 ? -1 : 0) : a >> b; }
int i_pow(int a, int b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) != 0 ? -1 : 1) : 0;
    uint result = 1u, base = uint(a);
    for (; b != 0; b >>= 1) {
        if ((b & 1) != 0) result *= base;
        base *= base;
    }
    return int(result);
}
"""


def _split(text: str) -> dict[str, str]:
    """Name → text."""
    return {re.match(r"\w+ (\w+)\(", one)[1]: one for one in re.split(r"\n(?=\w)", text.strip())}


FUNCTIONS = _split(logistic("fitted_sigmoid", "fused") + _TEXT)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_USES = {name: [word for word in _WORD.findall(text) if word in FUNCTIONS and word != name] for name, text in FUNCTIONS.items()}


def functions_for(words: Iterable[str]) -> str:
    """The text of those functions that are among `words`, and of what they call, callees first."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        if name in FUNCTIONS and name not in found:
            for other in _USES[name]:
                add(other)
            found[name] = None

    for word in words:
        add(word)
    return "".join(f"{FUNCTIONS[name]}\n" for name in found)
