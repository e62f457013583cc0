"""Changes of dtype on GPUs: those that C knows are elementwise, those of narrow dtypes go by tables that the host makes."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from mnnx.backends import host
from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions import elementwise
from mnnx.backends.gpu.executions.indexing import unmovable
from mnnx.backends.gpu.floats import FLOATS
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.schema.ops.cast import BitCast, Cast, CastLike, bits
from mnnx.schema.ops.elementwise import BOOL, SMALL_FLOATS, SMALL_INTEGERS

_FLOAT32, _FLOAT16 = np.dtype("float32"), np.dtype("float16")
_NARROW = SMALL_FLOATS | SMALL_INTEGERS
_WHOLE = frozenset(np.dtype(name) for name in ("int8", "uint8", "int16", "uint16", "int32"))
_WORDS = frozenset(np.dtype(name) for name in ("int32", "uint32"))
_INFINITY = 0x7F800000


def supports(op: Cast, inputs: Specs, outputs: Specs) -> str | None:
    source = inputs[0].dtype
    if source in _NARROW:
        return unmovable(outputs[0])
    if op.to in SMALL_INTEGERS:
        return None if source in FLOATS | _WHOLE else f"no cast from {source} to {op.to}"
    if op.to in SMALL_FLOATS:
        return None if source in FLOATS else f"no cast from {source} to {op.to}"
    return elementwise.supports(op, inputs, outputs)


@creator(Cast, supports=supports)
def create(op: Cast, backend, inputs: Specs, outputs: Specs) -> Execution:
    if inputs[0].dtype in _NARROW:
        return FromNarrowExecution(op, backend)
    if op.to in SMALL_INTEGERS:
        return ToSmallIntegerExecution(op, backend)
    return ToSmallFloatExecution(op, backend) if op.to in SMALL_FLOATS else elementwise.create(op, backend, inputs, outputs)


def _as_cast(op: CastLike, inputs: Specs) -> Cast:
    return Cast(to=inputs[1].dtype, saturate=op.saturate, round_mode=op.round_mode)


@creator(CastLike, supports=lambda op, inputs, outputs: supports(_as_cast(op, inputs), inputs[:1], outputs))
def create_like(op: CastLike, backend, inputs: Specs, outputs: Specs) -> Execution:
    return CastLikeExecution(op, backend, inputs, outputs)


class CastLikeExecution(GpuExecution):
    """As the Cast that it is."""

    def __init__(self, op: CastLike, backend, inputs: Specs, outputs: Specs):
        super().__init__(op, backend)
        self.cast = create(_as_cast(op, inputs), backend, inputs[:1], outputs)

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return self.cast.kernels(inputs[:1], outputs)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        self.cast.on_resize(inputs[:1], outputs, scratch)


class FromNarrowExecution(GpuExecution):
    """From a dtype of a byte: a table of all."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x,), (y,), total = inputs, outputs, inputs[0].spec.size
        if total:
            codes = np.arange(256, dtype=np.uint8).view(x.dtype)
            storage, width, _ = self.backend.raw_storage(y.dtype)
            table = self.backend.table(self.backend.to_storage(_converted(self.op, codes)))
            self.backend.commands.record(kernel("cast.table", storage=storage, width=width), [x, table, y], [total], (total,))


def _converted(op: Cast, values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return host.run(op, [values])[0]


class ToSmallIntegerExecution(GpuExecution):
    """To integers of 4 and 2 bits, which keep the low ones."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x,), (y,), total = inputs, outputs, inputs[0].spec.size
        if total:
            count = 1 << bits(y.dtype)
            table = self.backend.table(_converted(self.op, np.arange(count, dtype=np.int8)).view(np.uint8))
            found = kernel("cast.low_bits", storage=self.backend.storage(x.dtype))
            self.backend.commands.record(found, [x, table, y], [total, count - 1], (total,))


class ToSmallFloatExecution(GpuExecution):
    """To floats of 8 and 4 bits, of which each stands for a range."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x,), (y,), total = inputs, outputs, inputs[0].spec.size
        if total:
            table, positive, negative = _steps(self.op)
            found = kernel("cast.steps", storage=self.backend.storage(x.dtype))
            self.backend.commands.record(found, [x, self.backend.table(table), y], [total, positive, negative], (total,))


@functools.cache
def _steps(op: Cast) -> tuple[np.ndarray, int, int]:
    """The table of kernels/cast.py for a cast of float32, and how many steps there are with each sign; NaN is the last one."""
    parts, counts = [], []
    for sign in (0, 1 << 31):

        def code(magnitude: np.ndarray, sign: int = sign) -> np.ndarray:
            return _converted(op, (magnitude.astype(np.uint32) | np.uint32(sign)).view(np.float32)).view(np.uint8)

        # Between neighbours of this grid the cast is monotone, with one value at most to spare.
        grid = np.arange(0, _INFINITY + 1, 1 << 19, dtype=np.int64)
        codes = code(grid)
        low, high, wanted = grid[:-1], grid[1:], codes[1:]
        changes = codes[:-1] != codes[1:]
        low, high, wanted = low[changes], high[changes], wanted[changes]
        while (high - low > 1).any():
            middle = (low + high) // 2
            reached = code(middle) == wanted
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        starts = np.concatenate([[0], high, [_INFINITY + 1]])
        parts += [starts, code(starts)]
        counts.append(len(starts))
    return np.concatenate(parts).astype(np.int32), *counts


def supports_bits(op: BitCast, inputs: Specs, outputs: Specs) -> str | None:
    pair = {inputs[0].dtype, op.to}
    if _FLOAT32 in pair and pair != {_FLOAT32} and not pair & _WORDS:
        return f"no kernel that reads bits of {inputs[0].dtype} as {op.to}"
    return unmovable(inputs[0])


@creator(BitCast, supports=supports_bits)
def create_bits(op: BitCast, backend, inputs: Specs, outputs: Specs) -> Execution:
    if op.to == BOOL and inputs[0].dtype != BOOL:
        return elementwise.create(Cast(to=BOOL), backend, inputs, outputs)
    return BitCastExecution(op, backend)


class BitCastExecution(GpuExecution):
    """Moves bytes; but float32 may be stored in less."""

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (x,), (y,), total = inputs, outputs, inputs[0].spec.size
        if not total:
            return
        storage, width, _ = self.backend.raw_storage(x.dtype)
        if x.dtype == y.dtype or _FLOAT32 not in (x.dtype, y.dtype):
            found = kernel("indexing.copy", storage=storage, width=width)
        elif x.dtype == _FLOAT32:
            found = kernel("cast.bits_of_float", storage=self.backend.storage(x.dtype), whole=self.backend.storage(y.dtype))
        else:
            found = kernel("cast.float_of_bits", storage=self.backend.storage(y.dtype), whole=self.backend.storage(x.dtype))
        self.backend.commands.record(found, [x, y], [total], (total,))
