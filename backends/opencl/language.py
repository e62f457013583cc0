"""A Source as OpenCL C 1.2."""

from __future__ import annotations

from mnnx.backends.gpu.source import Buffer, Source
from mnnx.backends.opencl.math import FUNCTIONS

_PRELUDE = """\
#pragma OPENCL FP_CONTRACT ON
#define gid(d) ((int)get_global_id(d))
#define lid(d) ((int)get_local_id(d))
#define group(d) ((int)get_group_id(d))
#define local_size(d) ((int)get_local_size(d))
#define barrier_local() barrier(CLK_LOCAL_MEM_FENCE)
#define madd(a, b, c) ((a) * (b) + (c))
#ifdef FP_FAST_FMAF
#define fused(a, b, c) fma(a, b, c)
#else
#define fused(a, b, c) ((a) * (b) + (c))
#endif
#define to_float(x) convert_float(x)
#define to_int(x) convert_int(x)
#define to_uint(x) convert_uint(x)
#define abs_of(x) fabs(x)
#define keep_nan(r, v) (isnan(v) ? (v) : (r))
#define splat2(x) ((float2)(x))
#define splat4(x) ((float4)(x))
#define splat8(x) ((float8)(x))
#define splat16(x) ((float16)(x))
#define pack2(a, b) ((float2)(a, b))
#define pack4(a, b, c, d) ((float4)(a, b, c, d))
#define pair(a, b) ((int2)(a, b))
#define bits_of(x) as_int(x)
#define float_of(x) as_float(x)
"""
_C_TYPES = {"half": "half", "bool": "uchar"}
_VALUE_TYPES = {"half": "float", "char": "int", "uchar": "int", "short": "int", "ushort": "int"}


def opencl_c(source: Source, name: str) -> str:
    """The text of a program with the one kernel `name`."""
    accesses = "".join(_accesses(buffer) for buffer in source.buffers)
    arguments = [f"__global {'' if b.writes else 'const '}{_pointee(b)} *buffer_{b.name}" for b in source.buffers]
    arguments += [f"const {kind} {parameter}" for kind, parameter in source.parameters]
    shared = "".join(f"    __local {kind} {array}[{count}];\n" for kind, array, count in source.shared)
    return (
        f"{_PRELUDE}{FUNCTIONS}{accesses}{source.functions}\n__kernel void {name}({', '.join(arguments)}) {{\n{shared}{source.body}\n}}\n"
    )


def _pointee(buffer: Buffer) -> str:
    kind = _C_TYPES.get(buffer.storage, buffer.storage)
    return kind if buffer.width == 1 or buffer.storage == "half" else f"{kind}{buffer.width}"


def _accesses(buffer: Buffer) -> str:
    """load_NAME and store_NAME."""
    name, width = buffer.name, "" if buffer.width == 1 else str(buffer.width)
    memory = f"buffer_{name}"
    if buffer.storage == "half":
        load, store = f"vload_half{width}(i, {memory})", f"vstore_half{width}(v, i, {memory})"
    elif buffer.storage == "bool":
        load, store = f"({memory}[i] != 0)", f"({memory}[i] = (uchar)((v) != 0))"
    else:
        kind = _VALUE_TYPES.get(buffer.storage, buffer.storage)
        load, store = f"{memory}[i]", f"({memory}[i] = (v))"
        if kind != buffer.storage:
            load = f"convert_{kind}{width}({memory}[i])"
            store = f"({memory}[i] = convert_{buffer.storage}{width}(v))"
    place = f"__global {'' if buffer.writes else 'const '}{_pointee(buffer)} *"
    step = buffer.width if buffer.storage == "half" else 1
    text = (
        f"#define load_{name}(i) {load}\n#define place_{name} {place}\n#define at_{name}(i) ({memory} + {step} * (i))\n"
        f"#define load_{name}_from(p, i) {load.replace(memory, '(p)')}\n"
        f"#define move_{name}(p, n) ((p) += {step} * (n))\n"
    )
    return text + (f"#define store_{name}(i, v) {store}\n" if buffer.writes else "")
