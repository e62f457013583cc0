"""What becomes of the int32 sums of a product of bytes: bytes again, or floats.

`target` is the dtype of the result, `kind` says what lies between:

    int32        the sums themselves
    None         real = sums * factor + addend, rounded to the target
    "", "Gelu"…  bytes = round(sums * factor); real = activation((bytes - zero) * scale + addend), rounded to the target

Factors and addends are floats per column, the rest lies in a table of floats (`CONSTANTS`). Values are computed as by a chain of
QuantizeLinear, DequantizeLinear, Add, the activation and QuantizeLinear.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mnnx.backends.cpu.kernels.quantized import elements, quantized, write
from mnnx.backends.cpu.kernels.vectors import Vectors, activate


@functools.cache
def make_finish(lanes: int, fma: bool, target: str, kind: str | None):
    """An intrinsic finish(sums, y, count, factors, addends, constants): `count` neighbours in a row; addends 0: none."""

    @intrinsic
    def finish(typing, sums, y, count, factors, addends, constants):
        def codegen(context, builder, signature, arguments):
            sums, y, count, factors, addends, constants = arguments

            def emit(v: Vectors, index: ir.Value) -> None:
                v.has_fma = fma
                offset = builder.shl(index, v.index(2))
                low, high, scale, out_scale, out_zero, p, q = (v.load_splat(constants, 4 * i) for i in range(7))
                total = builder.load(v.at(sums, offset, v.integers), align=4)
                real = builder.fmul(builder.sitofp(total, v.type), v.load(factors, offset))
                if kind is not None:
                    real = v.minimum(v.maximum(v.intrinsic("rint", real), low), high)
                    real = builder.fmul(real, scale)
                if kind is not None or target == "float32":
                    real = builder.fadd(real, v.load(addends, offset))
                if kind:
                    real = activate(v, kind, real, p, q)
                if target == "float32":
                    v.store(real, y, offset)
                    return
                if kind is not None:
                    real = builder.fdiv(real, out_scale)
                write(v, target, quantized(v, target, real, out_zero), y, index)

            elements(builder, count, lanes, emit)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return finish
