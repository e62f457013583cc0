"""What becomes of the int32 sums of a product of bytes: bytes again, or floats.

`target` is the dtype of the result: int32 for the sums themselves. Else they are in reals sums * (factor * multiplier), and then, where
the result `rounds` them before it goes on,

    bytes = round(reals); result = activation((bytes - zero) * scale + addend), quantized where the target is bytes

else floats are activation(reals + addend), and bytes activation(reals), rounded. Factors and addends are floats per column, the
multiplier is a float that may be computed, the rest lies in a table of floats. Values are computed as by a chain of QuantizeLinear,
DequantizeLinear, Add, the activation and QuantizeLinear.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.quantized import elements, quantized, write
from mnnx.backends.cpu.kernels.vectors import Vectors, activate


@functools.cache
def make_finish(lanes: int, fma: bool, target: str, rounds: bool, kind: str):
    """An intrinsic finish(sums, y, count, factors, addends, multiplier, constants): `count` neighbours in a row."""

    @intrinsic
    def finish(typing, sums, y, count, factors, addends, multiplier, constants):
        def codegen(context, builder, signature, arguments):
            sums, y, count, factors, addends, multiplier, constants = arguments

            def emit(v: Vectors, index: ir.Value) -> None:
                v.has_fma = fma
                offset = builder.shl(index, v.index(2))
                low, high, scale, out_scale, out_zero, p, q = (v.load_splat(constants, 4 * i) for i in range(7))
                total = builder.load(v.at(sums, offset, v.integers), align=4)
                real = builder.fmul(builder.sitofp(total, v.type), builder.fmul(v.load_splat(multiplier), v.load(factors, offset)))
                if rounds:
                    real = v.minimum(v.maximum(v.intrinsic("rint", real), low), high)
                    real = builder.fmul(real, scale)
                if rounds or target == "float32":
                    # Rounded after the product: `arcp` says nothing of a sum, but numba allows no contraction where there is a flag.
                    real = builder.fadd(real, v.load(addends, offset), flags=("arcp",))
                real = activate(v, kind, real, p, q)
                if target == "float32":
                    v.store(real, y, offset)
                    return
                if rounds:
                    real = builder.fdiv(real, out_scale)
                write(v, target, quantized(v, target, real, out_zero), y, index)

            elements(builder, count, lanes, emit)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), codegen

    return finish
