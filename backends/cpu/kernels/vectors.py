"""Vector arithmetic as LLVM IR: what register tiles are built of. Addresses are int64 values, strides and offsets are bytes.

`Vectors` wraps an IR builder inside a numba intrinsic. `activate` gives the activations that a fused op can end in
(`mnnx.schema.ops.fused.ACTIVATIONS`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: x P(x^2) / Q(x^2) + 1/2 is the logistic function on [-18, 18]; coefficients from the highest power down (Eigen's fit).
SIGMOID_ABOVE = (4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03, 2.48287947061529e-01)
SIGMOID_BELOW = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)

#: e**r = 1 + r + r² P(r) for |r| <= ln 2 / 2; coefficients of P from the highest power down.
EXPM1 = (0.0001991852477658540, 0.0013946176040917635, 0.008333263918757439, 0.041666269302368164, 0.1666666716337204, 0.5)

#: Bytes of a cache line.
LINE = 64

I8, I16, I32, I64, F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()


@functools.cache
def load_words(count: int):
    """An intrinsic: an address → the tuple of the `count` int64s that lie there."""

    @intrinsic
    def load(typing, address):
        def codegen(context, builder, signature, arguments):
            v = Vectors(builder, 1, False)
            words = [builder.load(v.at(arguments[0], 8 * i, I64), align=8) for i in range(count)]
            return cgutils.pack_array(builder, words)

        return types.UniTuple(types.int64, count)(types.int64), codegen

    return load


class Loop:
    """`with Loop(builder, count, values) as loop:` emits its body as a loop over loop.index = 0 … count-1.

    `values` are carried along: the body finds them in loop.values and gives the next ones to loop.carry; afterwards they are loop.results.
    """

    def __init__(self, builder: ir.IRBuilder, count: ir.Value, values: Sequence[ir.Value] = ()):
        self.builder = builder
        self.count = count
        self.start = list(values)
        self.next: list[ir.Value] = []

    def __enter__(self) -> Loop:
        builder = self.builder
        self.entry = builder.block
        self.body, self.end = builder.append_basic_block("loop"), builder.append_basic_block("loop.end")
        builder.cbranch(builder.icmp_signed(">", self.count, ir.Constant(I64, 0)), self.body, self.end)
        builder.position_at_end(self.body)
        self.index = builder.phi(I64)
        self.values = [builder.phi(value.type) for value in self.start]
        return self

    def carry(self, values: Sequence[ir.Value]) -> None:
        self.next = list(values)

    def __exit__(self, *exception: object) -> None:
        builder = self.builder
        following = builder.add(self.index, ir.Constant(I64, 1))
        last = builder.block
        builder.cbranch(builder.icmp_signed("<", following, self.count), self.body, self.end)
        self.index.add_incoming(ir.Constant(I64, 0), self.entry)
        self.index.add_incoming(following, last)
        builder.position_at_end(self.end)
        self.results = [builder.phi(value.type) for value in self.start]
        for phi, result, start, following in zip(self.values, self.results, self.start, self.next, strict=True):
            for node in (phi, result):
                node.add_incoming(start, self.entry)
                node.add_incoming(following, last)


class Vectors:
    """Emits operations on vectors of `lanes` floats at `builder`'s position; multiply-adds are fused where the target can."""

    def __init__(self, builder: ir.IRBuilder, lanes: int, fma: bool):
        self.builder = builder
        self.lanes = lanes
        self.type = ir.VectorType(F32, lanes)
        self.integers = ir.VectorType(I32, lanes)
        self.has_fma = fma

    @property
    def multiplies_by_lane(self) -> bool:
        """Whether a multiply-add takes a lane of a vector in place of a whole one, as NEON's does."""
        return self.lanes == 4 and self.has_fma

    def index(self, value: int) -> ir.Constant:
        return ir.Constant(I64, value)

    def at(self, address: ir.Value, offset: int | ir.Value, llvm_type: ir.Type) -> ir.Value:
        """A pointer to `llvm_type` at address + offset."""
        pointer = self.builder.inttoptr(address, I8.as_pointer())
        offset = self.index(offset) if isinstance(offset, int) else offset
        return self.builder.bitcast(self.builder.gep(pointer, [offset]), llvm_type.as_pointer())

    def load(self, address: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        return self.builder.load(self.at(address, offset, self.type), align=4)

    def store(self, value: ir.Value, address: ir.Value, offset: int | ir.Value = 0) -> None:
        self.builder.store(value, self.at(address, offset, self.type), align=4)

    def load_splat(self, address: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        return self.splat(self.builder.load(self.at(address, offset, F32), align=4))

    def splat(self, scalar: ir.Value) -> ir.Value:
        vector = ir.VectorType(scalar.type, self.lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(self.integers, [0] * self.lanes))

    def spread(self, vector: ir.Value, lane: int) -> ir.Value:
        """A vector that holds one lane of `vector` in all of its own."""
        mask = ir.Constant(self.integers, [lane] * self.lanes)
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)

    def constant(self, value: float) -> ir.Constant:
        return ir.Constant(self.type, [float(np.float32(value))] * self.lanes)

    def integer(self, value: int) -> ir.Constant:
        return ir.Constant(self.integers, [value] * self.lanes)

    def intrinsic(self, name: str, *arguments: ir.Value) -> ir.Value:
        """Calls `llvm.<name>` on vectors of floats."""
        function_type = ir.FunctionType(self.type, [self.type] * len(arguments))
        function = cgutils.get_or_insert_function(self.builder.module, function_type, f"llvm.{name}.v{self.lanes}f32")
        return self.builder.call(function, arguments)

    def prefetch(self, address: ir.Value, offset: int | ir.Value = 0) -> None:
        """Asks for the cache line at address + offset, which need not exist."""
        pointer = self.at(address, offset, I8)
        function_type = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
        function = cgutils.get_or_insert_function(self.builder.module, function_type, "llvm.prefetch.p0")
        self.builder.call(function, [pointer, *(ir.Constant(I32, n) for n in (0, 3, 1))])  # to be read, into L1, data

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """a * b + c; on a target without the instruction `llvm.fma` would be a call per lane."""
        if self.has_fma:
            return self.intrinsic("fma", a, b, c)
        return self.builder.fadd(self.builder.fmul(a, b), c)

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The larger one; where one is NaN: b."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The smaller one; where one is NaN: b."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def exp(self, x: ir.Value) -> ir.Value:
        """e**x within 2 ulp; 0 below -87.3, inf above 88.7.

        x = n ln 2 + r with |r| <= ln 2 / 2; e**r by its Taylor series to the 7th power, 2**n through the exponent bits.
        """
        b, c = self.builder, self.constant
        clamped = self.minimum(c(88.722), self.maximum(c(-87.33), x))
        n = self.intrinsic("rint", b.fmul(clamped, c(math.log2(math.e))))
        r = self.fma(n, c(-0.693359375), clamped)
        r = self.fma(n, c(0.693359375 - math.log(2)), r)
        series = c(1 / math.factorial(7))
        for power in range(6, -1, -1):
            series = self.fma(series, r, c(1 / math.factorial(power)))
        half = b.ashr(b.fptosi(n, self.integers), self.integer(1))  # 2**128 is no float: two steps
        rest = b.sub(b.fptosi(n, self.integers), half)
        for part in (half, rest):
            bits = b.shl(b.add(part, self.integer(127)), self.integer(23))
            series = b.fmul(series, b.bitcast(bits, self.type))
        series = b.select(b.fcmp_ordered("<", x, c(-87.33)), c(0), series)
        return b.select(b.fcmp_ordered(">", x, c(88.722)), c(math.inf), series)

    def exp_negative(self, x: ir.Value) -> ir.Value:
        """e**x within 1 ulp for x <= 0; 0 below -86.

        As `exp_f32` in `kernels/math.py`, with its coefficients, but 2**n is added to the exponent's bits: there is no overflow to mind.
        """
        b, c = self.builder, self.constant
        rounder = c(12582912.0)  # a sum with it has the rounded number in its low bits
        shifted = self.fma(self.maximum(c(-87), x), c(math.log2(math.e)), rounder)
        n = b.fsub(shifted, rounder)
        r = self.fma(n, c(2.1219444e-04), self.fma(n, c(-0.693359375), x))
        series = c(EXPM1[0])
        for coefficient in EXPM1[1:]:
            series = self.fma(series, r, c(coefficient))
        series = b.fadd(self.fma(b.fmul(series, r), r, r), c(1))
        bits = b.add(b.bitcast(series, self.integers), b.shl(b.bitcast(shifted, self.integers), self.integer(23)))
        return b.select(b.fcmp_ordered("<", x, c(-86)), c(0), b.bitcast(bits, self.type))

    def sigmoid(self, x: ir.Value) -> ir.Value:
        """The rational fit of `kernels/math.py`: absolute error below 1e-7."""
        b, c = self.builder, self.constant
        x = self.minimum(c(18), self.maximum(c(-18), x))
        square = b.fmul(x, x)
        above, below = c(SIGMOID_ABOVE[0]), c(SIGMOID_BELOW[0])
        for coefficient in SIGMOID_ABOVE[1:]:
            above = self.fma(above, square, c(coefficient))
        for coefficient in SIGMOID_BELOW[1:]:
            below = self.fma(below, square, c(coefficient))
        value = b.fadd(b.fdiv(b.fmul(above, x), below), c(0.5))
        return self.minimum(c(1), self.maximum(c(0), value))

    def tanh(self, x: ir.Value) -> ir.Value:
        """1 - 2 / (e**2x + 1); near 0, where that cancels, the odd Taylor series to x**9."""
        b, c = self.builder, self.constant
        far = b.fsub(c(1), b.fdiv(c(2), b.fadd(self.exp(b.fadd(x, x)), c(1))))
        square = b.fmul(x, x)
        series = c(62 / 2835)
        for coefficient in (-17 / 315, 2 / 15, -1 / 3, 1):
            series = self.fma(series, square, c(coefficient))
        small = b.fcmp_ordered("<", square, c(0.04))
        return b.select(small, b.fmul(series, x), far)

    def erf(self, x: ir.Value) -> ir.Value:
        """The error function within 2e-7. Abramowitz & Stegun, Handbook of Mathematical Functions, 7.1.26."""
        b, c = self.builder, self.constant
        size = self.intrinsic("fabs", x)
        t = b.fdiv(c(1), self.fma(c(0.3275911), size, c(1)))
        series = c(1.061405429)
        for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            series = self.fma(series, t, c(coefficient))
        tail = b.fmul(b.fmul(series, t), self.exp(b.fneg(b.fmul(x, x))))
        return self.intrinsic("copysign", b.fsub(c(1), tail), x)


def activate(v: Vectors, kind: str, x: ir.Value, p: ir.Value, q: ir.Value) -> ir.Value:
    """The activation `kind` of x ("": none); p and q are its parameters (`blocks.epilogue`) as vectors. NaN stays NaN."""
    b, c = v.builder, v.constant
    if not kind:
        return x
    if kind == "Clip":
        return v.minimum(q, v.maximum(p, x))
    if kind == "LeakyRelu":
        return b.select(b.fcmp_ordered("<", x, c(0)), b.fmul(x, p), x)
    if kind == "HardSigmoid":
        return v.minimum(c(1), v.maximum(c(0), v.fma(x, p, q)))
    if kind == "HardSwish":
        return v.fma(b.fmul(x, v.minimum(c(1), v.maximum(c(0), v.fma(x, c(1 / 6), c(0.5))))), p, q)
    if kind == "Sigmoid":
        return v.sigmoid(x)
    if kind == "Swish":
        return b.fmul(x, v.sigmoid(b.fmul(p, x)))
    if kind == "Tanh":
        return v.tanh(x)
    if kind == "Elu":
        return b.select(b.fcmp_ordered("<", x, c(0)), b.fmul(p, b.fsub(v.exp(x), c(1))), x)
    if kind == "Gelu":
        return b.fmul(b.fmul(c(0.5), x), b.fadd(c(1), v.erf(b.fmul(x, c(math.sqrt(0.5))))))
    if kind == "GeluTanh":
        inner = b.fmul(c(math.sqrt(2 / math.pi)), v.fma(b.fmul(b.fmul(x, x), x), c(0.044715), x))
        return b.fmul(x, v.sigmoid(b.fadd(inner, inner)))
    if kind == "Mish":
        e = v.exp(v.minimum(c(20), x))
        grown = b.fmul(e, b.fadd(e, c(2)))
        return b.fmul(x, b.fdiv(grown, b.fadd(grown, c(2))))
    raise ValueError(f"no epilogue for the activation {kind!r}")
