"""Kernels of GPUs, written once: a Source becomes OpenCL C (`backends/opencl/language.py`) or GLSL (`backends/vulkan/language.py`).

A body is C of the kind that both languages share: int, uint, float and bool, vectors `floatN` of any width (OpenCL) or of 2 and 4 (GLSL),
fixed arrays, for, if, return, functions without pointers. Beside it stand:

    gid(0)  gid(1)  gid(2)      a work item's index; there may be more items than wanted, so guard it
    lid(0)  group(0)  local_size(0)   its index in its work group, the group's index, how many items a group has
    load_x(i)                   element i of buffer x, as a float (or vector of floats) whatever its storage, as an int, as a bool
    store_y(i, v)               writes it, converted to its storage
    place_x p = at_x(i); move_x(p, n); load_x_from(p, 3)    element i + n + 3, for loops in which many places move on side by side
    to_float(x)  to_int(x)  to_uint(x)    converted, truncated towards zero
    bits_of(x)  float_of(i)     a float's bits as an int, and back
    abs_of(x)                   of a float or a vector
    keep_nan(r, v)              v where that is NaN, else r; max, min and clamp may give either
    madd(a, b, c)               a * b + c, rounded once or twice, whichever is faster
    fused(a, b, c)              rounded once, where the device has an instruction for that
    splatN(x)  pack2(a, b)  pack4(a, b, c, d)    vectors (N as in floatN)
    pair(a, b)                  an int2
    barrier_local()             waits for the group, and makes its shared memory visible

and the parameters by their names. `lane(width, i)` names a lane of a vector in both languages.
"""

from __future__ import annotations

from mnnx.schema.records import Row

#: Storage types of buffers. A bool lies in one byte; int64 is two ints, the low one first.
STORAGES = ("float", "half", "int", "uint", "char", "uchar", "short", "ushort", "bool")


class Buffer(Row):
    """A kernel's argument in device memory. One index moves `width` elements of `storage`; `writes`: whether the kernel changes it."""

    name: str
    storage: str
    width: int = 1
    writes: bool = False


class Source(Row):
    """A kernel. params: "int n, float alpha", at most 29 of them. shared: arrays of the work group, as (type, name, count).
    local: the size of a work group where nobody chooses another."""

    buffers: tuple[Buffer, ...]
    params: str
    body: str
    functions: str = ""
    shared: tuple[tuple[str, str, int], ...] = ()
    local: tuple[int, int, int] = (64, 1, 1)

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """(type, name) of each parameter."""
        return [(text.split()[0], text.split()[1]) for text in self.params.split(",") if text.strip()]


def reads(name: str, storage: str, width: int = 1) -> Buffer:
    return Buffer(name, storage, width)


def writes(name: str, storage: str, width: int = 1) -> Buffer:
    return Buffer(name, storage, width, True)


#: Storages of float32 tensors: in full, and where precision may be low.
FLOATS = ("float", "half")
#: The block width of devices for which kernels are compiled ahead of time.
AHEAD_BLOCK = 4


def lane(width: int, index: int) -> str:
    """The suffix that picks a lane of a vector: ".y"."""
    return "." + "xyzw"[index] if width <= 4 else f".s{index:x}"


#: Minus infinity, as a float.
LOWEST = "float_of(-8388608)"

#: What moves data without regard to its dtype: storage and width of elements of 1, 2, 4, 8 and 16 bytes.
RAW = {1: ("uchar", 1), 2: ("ushort", 1), 4: ("uint", 1), 8: ("uint", 2), 16: ("uint", 4)}

#: `checked(low, high, size)`: an index in [-size, size), given as two ints, counted from the front; -1 where it is outside.
CHECKED = """
int checked(int low, int high, int size) {
    if (high != (low < 0 ? -1 : 0) || low < -size || low >= size) return -1;
    return low < 0 ? low + size : low;
}
"""
#: Reports the index `low`, `high` as illegal (`GpuCommandList.fault`); for kernels with the param `slot` that write "faults", of ints.
REPORT = "store_faults(slot, 1); store_faults(slot + 1, low); store_faults(slot + 2, high);"


def index_at(name: str, place: str) -> str:
    """C that reads `low` and `high` of an element of an index tensor, whose elements are of `words` ints."""
    return f"int low = load_{name}(({place}) * words), high = low < 0 ? -1 : 0; if (words == 2) high = load_{name}(({place}) * words + 1);"
