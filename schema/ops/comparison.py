"""Comparisons, logic on booleans and bits, and Where. ONNX Equal-19, Less-13, And-7, BitShift-28, IsInf-20, Where-16, … ."""

from mnnx.schema.ops.base import Spec, op, require
from mnnx.schema.ops.elementwise import (
    ANY,
    BOOL,
    FLOATS,
    INTEGERS,
    NUMERIC,
    SMALL_FLOATS,
    STRING,
    Binary,
    Elementwise,
    broadcast,
    require_dtype,
    require_inputs,
)


class Comparison(Binary):
    """An Elementwise of two inputs with a boolean result."""

    result = BOOL


class Logical(Binary):
    """An Elementwise of two booleans."""

    accepts = frozenset({BOOL})


class Bitwise(Binary):
    """An Elementwise of two integers."""

    accepts = INTEGERS


@op("Equal")
class Equal(Comparison):
    """a == b; strings too."""

    accepts = NUMERIC | {BOOL, STRING}


@op("Greater")
class Greater(Comparison):
    """a > b."""


@op("GreaterOrEqual")
class GreaterOrEqual(Comparison):
    """a >= b."""


@op("Less")
class Less(Comparison):
    """a < b."""


@op("LessOrEqual")
class LessOrEqual(Comparison):
    """a <= b."""


@op("And")
class And(Logical):
    """a and b."""


@op("Or")
class Or(Logical):
    """a or b."""


@op("Xor")
class Xor(Logical):
    """Either a or b, not both."""


@op("Not")
class Not(Elementwise):
    """Not x."""

    accepts = frozenset({BOOL})


@op("BitwiseAnd")
class BitwiseAnd(Bitwise):
    """The bits set in both."""


@op("BitwiseOr")
class BitwiseOr(Bitwise):
    """The bits set in one or both."""


@op("BitwiseXor")
class BitwiseXor(Bitwise):
    """The bits set in exactly one."""


@op("BitwiseNot")
class BitwiseNot(Elementwise):
    """All bits flipped."""

    accepts = INTEGERS


@op("BitShift")
class BitShift(Bitwise):
    """The bits of a moved by b; right shifts of signed integers keep the sign. b outside [0, bits): all bits are moved out."""

    direction: str

    def check(self):
        require(self.direction in ("LEFT", "RIGHT"), f"direction must be LEFT or RIGHT; found {self.direction!r}")


@op("IsNaN")
class IsNaN(Elementwise):
    """Whether x is NaN."""

    accepts = FLOATS | SMALL_FLOATS
    result = BOOL


@op("IsInf")
class IsInf(Elementwise):
    """Whether x is infinite, of the signs asked for."""

    accepts = FLOATS | SMALL_FLOATS
    result = BOOL
    detect_negative: bool = True
    detect_positive: bool = True


@op("Where")
class Where(Elementwise):
    """a where the boolean c is true, else b; inputs (c, a, b), a and b of any one dtype."""

    def infer(self, *inputs):
        require_inputs(inputs, 3)
        c, a, b = inputs
        require_dtype(c, frozenset({BOOL}), "the condition")
        require_dtype(a, ANY)
        require(a.dtype == b.dtype, f"both branches must be of one dtype; found {a} and {b}")
        return Spec(a.dtype, broadcast(c.shape, a.shape, b.shape))
