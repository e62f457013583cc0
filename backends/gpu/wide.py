"""Arithmetic that GPUs lack: on int64 and uint64 as pairs of ints (int2, low int first), on uint32, and on the bits of bfloat16.

The names follow `expressions.COMPUTES`: l_ for int64, ul_ for uint64, u_ for uint32. All wrap around as C's unsigned integers do.
"""

from __future__ import annotations

from mnnx.backends.gpu.functions import Library

LIBRARY = Library("""
int2 l_of(int x) { return pair(x, x < 0 ? -1 : 0); }
int2 l_of_uint(uint x) { return pair(to_int(x), 0); }
bool l_less_unsigned(int2 a, int2 b) { return a.y == b.y ? to_uint(a.x) < to_uint(b.x) : to_uint(a.y) < to_uint(b.y); }
bool l_eq(int2 a, int2 b) { return a.x == b.x && a.y == b.y; }
bool l_ne(int2 a, int2 b) { return a.x != b.x || a.y != b.y; }
bool l_lt(int2 a, int2 b) { return a.y == b.y ? to_uint(a.x) < to_uint(b.x) : a.y < b.y; }
bool l_gt(int2 a, int2 b) { return l_lt(b, a); }
bool l_le(int2 a, int2 b) { return !l_lt(b, a); }
bool l_ge(int2 a, int2 b) { return !l_lt(a, b); }
bool ul_eq(int2 a, int2 b) { return l_eq(a, b); }
bool ul_ne(int2 a, int2 b) { return l_ne(a, b); }
bool ul_lt(int2 a, int2 b) { return l_less_unsigned(a, b); }
bool ul_gt(int2 a, int2 b) { return l_less_unsigned(b, a); }
bool ul_le(int2 a, int2 b) { return !l_less_unsigned(b, a); }
bool ul_ge(int2 a, int2 b) { return !l_less_unsigned(a, b); }
int2 l_and(int2 a, int2 b) { return pair(a.x & b.x, a.y & b.y); }
int2 l_or(int2 a, int2 b) { return pair(a.x | b.x, a.y | b.y); }
int2 l_xor(int2 a, int2 b) { return pair(a.x ^ b.x, a.y ^ b.y); }
int2 l_not(int2 a) { return pair(~a.x, ~a.y); }
int2 l_add(int2 a, int2 b) {
    uint low = to_uint(a.x) + to_uint(b.x);
    uint high = to_uint(a.y) + to_uint(b.y) + (low < to_uint(a.x) ? 1u : 0u);
    return pair(to_int(low), to_int(high));
}
int2 l_neg(int2 a) { return l_add(l_not(a), pair(1, 0)); }
int2 l_sub(int2 a, int2 b) { return l_add(a, l_neg(b)); }
uint l_high_of_product(uint a, uint b) {
    uint low = (a & 0xffffu) * (b & 0xffffu);
    uint one = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    uint two = (a & 0xffffu) * (b >> 16u) + (one & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (one >> 16u) + (two >> 16u);
}
int2 l_mul(int2 a, int2 b) {
    uint ax = to_uint(a.x), bx = to_uint(b.x);
    uint high = l_high_of_product(ax, bx) + ax * to_uint(b.y) + to_uint(a.y) * bx;
    return pair(to_int(ax * bx), to_int(high));
}
int2 l_shl(int2 a, int2 b) {
    if (b.y != 0 || b.x < 0 || b.x > 63) return pair(0, 0);
    uint low = to_uint(a.x), high = to_uint(a.y), n = to_uint(b.x);
    if (n == 0u) return a;
    if (n >= 32u) return pair(0, to_int(low << (n - 32u)));
    return pair(to_int(low << n), to_int((high << n) | (low >> (32u - n))));
}
int2 ul_shl(int2 a, int2 b) { return l_shl(a, b); }
int2 l_shr(int2 a, int2 b) {
    if (b.y != 0 || b.x < 0 || b.x > 63) return l_of(a.y < 0 ? -1 : 0);
    if (b.x == 0) return a;
    if (b.x >= 32) return l_of(a.y >> (b.x - 32));
    uint n = to_uint(b.x);
    return pair(to_int((to_uint(a.x) >> n) | (to_uint(a.y) << (32u - n))), a.y >> b.x);
}
int2 ul_shr(int2 a, int2 b) {
    if (b.y != 0 || b.x < 0 || b.x > 63) return pair(0, 0);
    if (b.x == 0) return a;
    uint n = to_uint(b.x), high = to_uint(a.y);
    if (n >= 32u) return pair(to_int(high >> (n - 32u)), 0);
    return pair(to_int((to_uint(a.x) >> n) | (high << (32u - n))), to_int(high >> n));
}
int2 ul_div(int2 a, int2 b) {
    if (b.x == 0 && b.y == 0) return pair(0, 0);
    if (a.y == 0 && b.y == 0) return pair(to_int(to_uint(a.x) / to_uint(b.x)), 0);
    int2 quotient = pair(0, 0), rest = pair(0, 0);
    for (int k = 63; k >= 0; k--) {
        int bit = ((k >= 32 ? a.y : a.x) >> (k & 31)) & 1;
        bool beyond = rest.y < 0;
        rest = l_add(l_add(rest, rest), pair(bit, 0));
        quotient = l_add(quotient, quotient);
        if (beyond || !l_less_unsigned(rest, b)) {
            rest = l_sub(rest, b);
            quotient = l_add(quotient, pair(1, 0));
        }
    }
    return quotient;
}
int2 ul_rem(int2 a, int2 b) { return b.x == 0 && b.y == 0 ? pair(0, 0) : l_sub(a, l_mul(ul_div(a, b), b)); }
int2 ul_mod(int2 a, int2 b) { return ul_rem(a, b); }
int2 l_abs(int2 a) { return a.y < 0 ? l_neg(a) : a; }
int2 ul_abs(int2 a) { return a; }
int2 l_div(int2 a, int2 b) {
    int2 quotient = ul_div(l_abs(a), l_abs(b));
    return (a.y < 0) != (b.y < 0) ? l_neg(quotient) : quotient;
}
int2 l_rem(int2 a, int2 b) { return b.x == 0 && b.y == 0 ? pair(0, 0) : l_sub(a, l_mul(l_div(a, b), b)); }
int2 l_mod(int2 a, int2 b) {
    int2 rest = l_rem(a, b);
    return (rest.x != 0 || rest.y != 0) && (rest.y < 0) != (b.y < 0) ? l_add(rest, b) : rest;
}
int2 l_sign(int2 a) { return l_of(a.y < 0 ? -1 : a.x != 0 || a.y != 0 ? 1 : 0); }
int2 ul_sign(int2 a) { return l_of(a.x != 0 || a.y != 0 ? 1 : 0); }
int2 l_min(int2 a, int2 b) { return l_lt(a, b) ? a : b; }
int2 l_max(int2 a, int2 b) { return l_lt(a, b) ? b : a; }
int2 ul_min(int2 a, int2 b) { return ul_lt(a, b) ? a : b; }
int2 ul_max(int2 a, int2 b) { return ul_lt(a, b) ? b : a; }
int2 ul_pow(int2 a, int2 b) {
    int2 result = pair(1, 0), base = a, left = b;
    while (left.x != 0 || left.y != 0) {
        if ((left.x & 1) != 0) result = l_mul(result, base);
        base = l_mul(base, base);
        left = ul_shr(left, pair(1, 0));
    }
    return result;
}
int2 l_pow(int2 a, int2 b) {
    if (b.y >= 0) return ul_pow(a, b);
    bool one = a.x == 1 && a.y == 0, minus = a.x == -1 && a.y == -1;
    return l_of(one ? 1 : minus ? ((b.x & 1) != 0 ? -1 : 1) : 0);
}
float ul_to_float(int2 a) {
    if (a.y == 0) return to_float(to_uint(a.x));
    int2 top = a;
    int exponent = 32;
    while (top.y > 0) {
        top = l_add(top, top);
        exponent -= 1;
    }
    return to_float(to_uint(top.y) | (top.x != 0 ? 1u : 0u)) * to_float(1u << to_uint(exponent - 1)) * 2.0f;
}
float l_to_float(int2 a) { return a.y < 0 ? -ul_to_float(l_neg(a)) : ul_to_float(a); }
int2 l_of_float(float x) {
    float size = m_floor(m_abs(x));
    if (!(size < 18446744073709551616.0f)) return pair(0, -2147483647 - 1);
    uint high = to_uint(size / 4294967296.0f);
    uint low = to_uint(size - to_float(high) * 4294967296.0f);
    int2 whole = pair(to_int(low), to_int(high));
    return x < 0.0f ? l_neg(whole) : whole;
}
uint u_of_float(float x) { return x < 0.0f ? to_uint(to_int(x)) : to_uint(x); }
uint u_abs(uint x) { return x; }
uint u_sign(uint x) { return x > 0u ? 1u : 0u; }
uint u_min(uint a, uint b) { return a < b ? a : b; }
uint u_max(uint a, uint b) { return a > b ? a : b; }
uint u_div(uint a, uint b) { return b == 0u ? 0u : a / b; }
uint u_rem(uint a, uint b) { return b == 0u ? 0u : a % b; }
uint u_mod(uint a, uint b) { return b == 0u ? 0u : a % b; }
uint u_shl(uint a, uint b) { return b > 31u ? 0u : a << b; }
uint u_shr(uint a, uint b) { return b > 31u ? 0u : a >> b; }
uint u_pow(uint a, uint b) {
    uint result = 1u, base = a;
    for (uint left = b; left != 0u; left = left >> 1u) {
        if ((left & 1u) != 0u) result *= base;
        base *= base;
    }
    return result;
}
float bfloat_to_float(int bits) { return float_of(bits << 16); }
int bfloat_of_float(float x) {
    uint bits = to_uint(bits_of(x));
    if (m_isnan(x)) return to_int((bits >> 16u) | 64u);
    return to_int((bits + 32767u + ((bits >> 16u) & 1u)) >> 16u);
}
""")
