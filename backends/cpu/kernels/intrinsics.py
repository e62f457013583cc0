"""What kernels are made of: raw loads and stores, typed pointers, atomics, bit casts. Addresses are int64, offsets count bytes.

`load_in` and `store_out` promise that no element which `store_out` writes is read by a later `load_in`: loops over them vectorise
without overlap checks. In-place elementwise work keeps that promise.
"""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()

_NUMBA = {
    "float32": types.float32,
    "float64": types.float64,
    "int8": types.int8,
    "int16": types.int16,
    "int32": types.int32,
    "int64": types.int64,
    "uint8": types.uint8,
    "uint16": types.uint16,
    "uint32": types.uint32,
    "uint64": types.uint64,
    "bool": types.uint8,  # one byte, 0 or 1
}

_HELPER = {"error_model": "numpy", "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
#: For helpers of kernels: compiled into the kernel that calls them.
inlined = njit(fastmath={"contract"}, **_HELPER)
#: The same for loops that add up floats, in any order.
summing = njit(fastmath={"contract", "reassoc", "nsz"}, **_HELPER)


def at(builder: ir.IRBuilder, address: ir.Value, llvm_type: ir.Type) -> ir.Value:
    """For code generators: an int64 address as a pointer."""
    return builder.inttoptr(address, llvm_type.as_pointer())


def declare(builder: ir.IRBuilder, name: str, result: ir.Type, *parameters: ir.Type) -> ir.Function:
    """For code generators: a function of this name in the module."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, parameters), name)


def _loader(numba_type, llvm_type, align):
    @intrinsic
    def load(typing, address):
        def codegen(context, builder, signature, arguments):
            return builder.load(at(builder, arguments[0], llvm_type), align=align)

        return numba_type(types.int64), codegen

    return load


def _storer(numba_type, llvm_type, align):
    @intrinsic
    def store(typing, address, value):
        def codegen(context, builder, signature, arguments):
            builder.store(arguments[1], at(builder, arguments[0], llvm_type), align=align)
            return context.get_dummy_value()

        return types.void(types.int64, numba_type), codegen

    return store


load_u8, store_u8 = _loader(types.uint8, I8, 1), _storer(types.uint8, I8, 1)
load_i8, store_i8 = _loader(types.int8, I8, 1), _storer(types.int8, I8, 1)
load_i32, store_i32 = _loader(types.int32, I32, 4), _storer(types.int32, I32, 4)
load_i64, store_i64 = _loader(types.int64, I64, 8), _storer(types.int64, I64, 8)
load_f32, store_f32 = _loader(types.float32, F32, 4), _storer(types.float32, F32, 4)
load_f64, store_f64 = _loader(types.float64, F64, 8), _storer(types.float64, F64, 8)


@functools.cache
def pointer_to(dtype: str):
    """An intrinsic: int64 address → pointer to elements of a dtype (numpy's name), which can be indexed. bool reads as uint8."""
    element = _NUMBA[dtype]

    @intrinsic
    def pointer(typing, address):
        signature = types.CPointer(element)(types.int64)

        def codegen(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, codegen

    return pointer


def _scope(builder: ir.IRBuilder) -> ir.MDValue:
    module = builder.module
    return module.add_metadata([module.add_metadata(["mnnx.stored", module.add_metadata(["mnnx.tensors"])])])


@intrinsic
def load_in(typing, pointer, index):
    """pointer[index], not written by any `store_out` before."""
    if not isinstance(pointer, types.CPointer):
        return None

    def codegen(context, builder, signature, arguments):
        value = builder.load(builder.gep(arguments[0], [arguments[1]]))
        value.set_metadata("noalias", _scope(builder))
        return value

    return pointer.dtype(pointer, types.int64), codegen


@intrinsic
def store_out(typing, pointer, index, value):
    """pointer[index] = value, which is cast to the pointer's dtype."""
    if not isinstance(pointer, types.CPointer):
        return None

    def codegen(context, builder, signature, arguments):
        stored = builder.store(arguments[2], builder.gep(arguments[0], [arguments[1]]))
        stored.set_metadata("alias.scope", _scope(builder))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, pointer.dtype), codegen


@functools.cache
def alloca(nbytes: int, align: int = 64):
    """An intrinsic: the address of `nbytes` bytes of the thread's stack, the same at every call within a kernel's chunk."""

    @intrinsic
    def allocate(typing):
        def codegen(context, builder, signature, arguments):
            with builder.goto_entry_block():
                memory = builder.alloca(ir.ArrayType(I8, nbytes))
                memory.align = align
            return builder.ptrtoint(memory, I64)

        return types.int64(), codegen

    return allocate


@intrinsic
def atomic_load(typing, address):
    def codegen(context, builder, signature, arguments):
        return builder.load_atomic(at(builder, arguments[0], I64), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def atomic_store(typing, address, value):
    def codegen(context, builder, signature, arguments):
        builder.store_atomic(arguments[1], at(builder, arguments[0], I64), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def compare_and_swap(typing, address, old, new):
    """Whether the int64 at `address` was `old`; if so it is `new` now."""

    def codegen(context, builder, signature, arguments):
        address, old, new = arguments
        return builder.extract_value(builder.cmpxchg(at(builder, address, I64), old, new, "seq_cst", "seq_cst"), 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typing):
    """Tells the core that this is a spin loop. The compiler defines it for its target."""

    def codegen(context, builder, signature, arguments):
        builder.call(declare(builder, "mnnx_pause", ir.VoidType()), [])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def call_kernel(typing, address, args, part, parts):
    """Calls the kernel at `address`."""

    def codegen(context, builder, signature, arguments):
        function = ir.FunctionType(ir.VoidType(), [I64] * 3).as_pointer()
        builder.call(builder.inttoptr(arguments[0], function), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


def _bit_cast(source, target, llvm_target):
    @intrinsic
    def cast(typing, value):
        def codegen(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], llvm_target)

        return target(source), codegen

    return cast


bits_of_f32, f32_of_bits = _bit_cast(types.float32, types.int32, I32), _bit_cast(types.int32, types.float32, F32)
bits_of_f64, f64_of_bits = _bit_cast(types.float64, types.int64, I64), _bit_cast(types.int64, types.float64, F64)


def _float_function(name: str, count: int):
    """An LLVM intrinsic on `count` floats of one type, float32 or float64."""

    def codegen(context, builder, signature, arguments):
        kind = signature.return_type
        llvm_type = context.get_value_type(kind)
        return builder.call(declare(builder, f"llvm.{name}.f{kind.bitwidth}", llvm_type, *[llvm_type] * count), arguments)

    def signature(arguments):
        kind = types.float64 if any(a == types.float64 for a in arguments) else types.float32
        return kind(*[kind] * count)

    if count == 1:

        @intrinsic
        def function(typing, x):
            return signature((x,)), codegen

    elif count == 2:

        @intrinsic
        def function(typing, x, y):
            return signature((x, y)), codegen

    else:

        @intrinsic
        def function(typing, x, y, z):
            return signature((x, y, z)), codegen

    return function


fmuladd = _float_function("fmuladd", 3)
absolute = _float_function("fabs", 1)
square_root = _float_function("sqrt", 1)
copy_sign = _float_function("copysign", 2)
floor, ceiling, round_even = (_float_function(name, 1) for name in ("floor", "ceil", "rint"))
#: NaN where either is NaN, as NumPy's.
maximum, minimum = _float_function("maximum", 2), _float_function("minimum", 2)
#: The other where one is NaN.
max_number, min_number = _float_function("maxnum", 2), _float_function("minnum", 2)


@intrinsic
def select(typing, condition, a, b):
    """a where the boolean is true, else b, both of one type and both computed before."""
    if a != b or condition != types.boolean:
        return None

    def codegen(context, builder, signature, arguments):
        return builder.select(*arguments)

    return a(condition, a, b), codegen


def _integer_operation(signed: str, unsigned: str):
    @intrinsic
    def operation(typing, a, b):
        if a != b or not isinstance(a, types.Integer):
            return None

        def codegen(context, builder, signature, arguments):
            return getattr(builder, signed if a.signed else unsigned)(*arguments)

        return a(a, b), codegen

    return operation


#: Truncated towards zero. Undefined (a trap on some machines) where b is 0, or -1 with the most negative a.
quotient, remainder = _integer_operation("sdiv", "udiv"), _integer_operation("srem", "urem")
#: Undefined where b isn't in [0, bits).
shift_right = _integer_operation("ashr", "lshr")


@intrinsic
def float_remainder(typing, a, b):
    """C's fmod."""
    if a != b or a not in (types.float32, types.float64):
        return None

    def codegen(context, builder, signature, arguments):
        return builder.frem(*arguments)

    return a(a, b), codegen


@inlined
def first_of(count, part, parts, grain):
    """Where chunk `part` of `parts` of `count` items begins: a multiple of `grain` (or the end)."""
    units = (count + grain - 1) // grain
    return min(units * part // parts * grain, count)


@inlined
def share(count, part, parts, grain):
    """The items first … last-1 of chunk `part`; chunks begin at multiples of `grain`."""
    return first_of(count, part, parts, grain), first_of(count, part + 1, parts, grain)


@inlined
def report(address, code, value):
    """Says that `value` is illegal: the first report of a run stands, and ends it (see `CpuCommandList.fault`)."""
    if compare_and_swap(address, 0, code):
        store_i64(address + 8, value)
