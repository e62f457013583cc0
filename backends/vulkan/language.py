"""A Source as GLSL 4.50 for Vulkan 1.1.

Bindings 0 … n-1 of set 0 are the buffers in order, specialization constants 0 … 2 the size of a work group, and constant 3
whether fma(a, b, c) is rounded once. Push constants are the
parameters, and then how many groups there are along each axis where they are numbered through all axes, since the dispatch needs more than
the device takes along one; otherwise zeros.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mnnx.backends.gpu.source import Buffer, Source
from mnnx.backends.vulkan.math import functions_for

_PRELUDE = """\
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const bool has_fma = true;
uvec3 group_index;
"""
#: Each is in the text of the kernels that use it.
_MACROS = """\
#define float2 vec2
#define float4 vec4
#define int2 ivec2
#define int4 ivec4
#define uint2 uvec2
#define uint4 uvec4
#define INFINITY uintBitsToFloat(0x7f800000u)
#define NAN uintBitsToFloat(0x7fc00000u)
#define FLT_MAX 3.402823466e+38f
#define INT_MAX 0x7fffffff
#define INT_MIN (-0x7fffffff - 1)
#define gid(d) int(group_index[d] * gl_WorkGroupSize[d] + gl_LocalInvocationID[d])
#define lid(d) int(gl_LocalInvocationID[d])
#define group(d) int(group_index[d])
#define local_size(d) int(gl_WorkGroupSize[d])
#define barrier_local() { memoryBarrierShared(); barrier(); }
#define madd(a, b, c) fma(a, b, c)
#define to_float(x) float(x)
#define to_int(x) int(x)
#define to_uint(x) uint(x)
#define abs_of(x) abs(x)
#define keep_nan(r, v) intBitsToFloat(floatBitsToInt(r) | ((0x7f800000 - (floatBitsToInt(v) & 0x7fffffff)) >> 31))
#define splat2(x) vec2(x)
#define splat4(x) vec4(x)
#define pair(a, b) ivec2(a, b)
#define pack2(a, b) vec2(a, b)
#define pack4(a, b, c, d) vec4(a, b, c, d)
#define bits_of(x) floatBitsToInt(x)
#define float_of(x) intBitsToFloat(int(x))
"""
_START = """\
    group_index = gl_WorkGroupID;
    if (groups_x != 0u) {
        uint number = (group_index.z * gl_NumWorkGroups.y + group_index.y) * gl_NumWorkGroups.x + group_index.x;
        group_index = uvec3(number % groups_x, number / groups_x % groups_y, number / (groups_x * groups_y));
        if (group_index.z >= groups_z) return;
    }
"""
#: Storage → (type of its elements, of the vectors that begin with this, the extension that it needs).
_STORED = {
    "float": ("float", "vec", ""),
    "int": ("int", "ivec", ""),
    "uint": ("uint", "uvec", ""),
    "half": ("float16_t", "f16vec", "GL_EXT_shader_16bit_storage"),
    "short": ("int16_t", "i16vec", "GL_EXT_shader_16bit_storage"),
    "ushort": ("uint16_t", "u16vec", "GL_EXT_shader_16bit_storage"),
    "char": ("int8_t", "i8vec", "GL_EXT_shader_8bit_storage"),
    "uchar": ("uint8_t", "u8vec", "GL_EXT_shader_8bit_storage"),
    "bool": ("uint8_t", "u8vec", "GL_EXT_shader_8bit_storage"),
}
_MACRO = {re.match(r"#define (\w+)", line)[1]: f"{line}\n" for line in _MACROS.splitlines()}
#: Storage → what kernels compute with.
_VALUES = {"half": "float", "char": "int", "uchar": "int", "short": "int", "ushort": "int"}
_WORD = re.compile(r"\b[A-Za-z_]\w*")


def glsl(source: Source) -> str:
    """The text of a compute shader."""
    extensions = sorted({_STORED[buffer.storage][2] for buffer in source.buffers} - {""})
    own = "".join(f"shared {kind} {array}[{count}];\n" for kind, array, count in source.shared) + source.functions
    functions = functions_for(_WORD.findall(own + source.body))
    used = set(_WORD.findall(functions + own + source.body))
    params = "".join(f" {kind} {name};" for kind, name in source.parameters)
    return "".join(
        (
            "#version 450\n",
            *(f"#extension {name} : require\n" for name in extensions),
            _PRELUDE,
            *(line for name, line in _MACRO.items() if name in used),
            *(_binding(place, buffer, used) for place, buffer in enumerate(source.buffers)),
            f"layout(push_constant) uniform Params {{{params} uint groups_x, groups_y, groups_z; }};\n",
            functions,
            own,
            f"\nvoid main() {{\n{_START}{source.body}\n}}\n",
        )
    )


def _type(storage: str, width: int) -> str:
    element, vector, _ = _STORED[storage]
    return element if width == 1 else f"{vector}{width}"


def _binding(place: int, buffer: Buffer, used: Sequence[str]) -> str:
    """The buffer with load_NAME and store_NAME; and what belongs to places in it, where `used`."""
    name, width, stored = buffer.name, buffer.width, _type(buffer.storage, buffer.width)
    access = "" if buffer.writes else "readonly "
    memory = f"buffer_{name}[i]"
    if buffer.storage == "bool":
        load, store = f"(uint({memory}) != 0u)", f"({memory} = uint8_t(uint(bool(v))))"
    else:
        kind = _VALUES.get(buffer.storage, buffer.storage)
        value = _type(kind, width)
        load, store = memory, f"({memory} = {stored}(v))"
        if kind != buffer.storage:
            wide = _type("uint", width) if buffer.storage[0] == "u" else value
            load, store = f"{value}({memory})", f"({memory} = {stored}({wide}(v)))"
    text = f"layout(std430, set = 0, binding = {place}) {access}buffer Buffer_{name} {{ {stored} buffer_{name}[]; }};\n"
    text += f"#define load_{name}(i) {load}\n"
    if f"at_{name}" in used:
        text += f"#define place_{name} int\n#define at_{name}(i) (i)\n#define move_{name}(p, n) ((p) += (n))\n"
        text += f"#define load_{name}_from(p, i) load_{name}((p) + (i))\n"
    return text + (f"#define store_{name}(i, v) {store}\n" if buffer.writes else "")
