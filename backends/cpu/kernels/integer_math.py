"""The functions of `elementwise.FUNCTIONS` on integers, which wrap."""

import numpy as np

from mnnx.backends.cpu.kernels.intrinsics import inlined, quotient, remainder, select, shift_right


def integer_functions(dtype: str) -> dict[str, object]:
    """The functions by their names in expressions, for arguments of this integer dtype (bool: as bytes of 0 and 1)."""
    of = np.uint8 if dtype == "bool" else np.dtype(dtype).type
    zero, one = of(0), of(1)
    bits = of(8 * np.dtype(of).itemsize)
    common = {"where": select, **_bounds()}
    if np.dtype(of).kind == "u":
        return common | _unsigned(of, zero, one, bits)
    return common | _signed(of, zero, one, bits)


def _bounds():
    @inlined
    def smaller(a, b):
        return select(a < b, a, b)

    @inlined
    def larger(a, b):
        return select(a > b, a, b)

    return {"min": smaller, "max": larger}


def _power(of, one):
    @inlined
    def power(a, b):
        """a^b for b >= 0, by squaring."""
        result = one
        while b > 0:
            if b & 1:
                result = of(result * a)
            a = of(a * a)
            b = of(b >> 1)
        return result

    return power


def _unsigned(of, zero, one, bits):
    @inlined
    def sign(x):
        return select(x > zero, one, zero)

    @inlined
    def same(x):
        return x

    @inlined
    def divide(a, b):
        return select(b == zero, zero, quotient(a, select(b == zero, one, b)))

    @inlined
    def modulo(a, b):
        return select(b == zero, zero, remainder(a, select(b == zero, one, b)))

    @inlined
    def left(a, b):
        return select(b < bits, of(a << select(b < bits, b, zero)), zero)

    @inlined
    def right(a, b):
        return select(b < bits, shift_right(a, select(b < bits, b, zero)), zero)

    return {"sign": sign, "abs": same, "div": divide, "mod": modulo, "rem": modulo, "pow": _power(of, one), "shl": left, "shr": right}


def _signed(of, zero, one, bits):
    minus_one, last = of(-1), of(bits - one)
    power_of = _power(of, one)

    @inlined
    def sign(x):
        return select(x > zero, one, select(x < zero, minus_one, zero))

    @inlined
    def magnitude(x):
        return select(x < zero, of(-x), x)

    @inlined
    def divide(a, b):
        plain = (b != zero) & (b != minus_one)
        q = quotient(a, select(plain, b, one))
        return select(plain, q, select(b == zero, zero, of(-a)))

    @inlined
    def rest(a, b):
        return remainder(a, select((b != zero) & (b != minus_one), b, one))

    @inlined
    def modulo(a, b):
        r = remainder(a, select((b != zero) & (b != minus_one), b, one))
        return select((r != zero) & ((r < zero) != (b < zero)), of(r + b), r)

    @inlined
    def power(a, b):
        odd = of(b & one) == one
        unit = select(a == one, one, select(a == minus_one, select(odd, minus_one, one), zero))
        return select(b < zero, unit, power_of(a, select(b < zero, zero, b)))

    @inlined
    def left(a, b):
        inside = (b >= zero) & (b < bits)
        return select(inside, of(a << select(inside, b, zero)), zero)

    @inlined
    def right(a, b):
        inside = (b >= zero) & (b < bits)
        return shift_right(a, select(inside, b, last))

    return {"sign": sign, "abs": magnitude, "div": divide, "mod": modulo, "rem": rest, "pow": power, "shl": left, "shr": right}
