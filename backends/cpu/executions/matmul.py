"""Products of matrices of float32: MatMul, Gemm and their fused forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mnnx.backends.backend import Execution, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of, arguments, float32_bits, round_up
from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.kernels.blocks import Pack, Product, Transpose, epilogue
from mnnx.backends.cpu.tiling import Tiling, block_bytes
from mnnx.backends.products import Operands, operands_of
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.matmul import Gemm, MatMul

if TYPE_CHECKING:
    from mnnx.backends.cpu.tuning import Bench

_FLOAT32 = np.dtype("float32")
#: Fewer rows of a than this read a computed b in place rather than to pack it first.
_ROWS_WORTH_PACKING = 6


def supports(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    operands = operands_of(op, inputs)
    if inputs[0].dtype != _FLOAT32:
        return "only float32 is native"
    if operands.bias is None or inputs[operands.bias].value is not None:
        return None
    rows = math.prod(inputs[operands.bias].shape[:-1])
    whole = inputs[operands.bias].shape[-1:] == outputs[0].shape[-1:] and rows in (1, math.prod(outputs[0].shape[:-1]))
    if operands.beta != 1 or operands.residual is not None or not whole:
        return "a computed bias must be a row or a whole result, with beta 1"
    return None


@creator(MatMul, Gemm, supports=supports)
def create(op: Op, backend, inputs: Specs, outputs: Specs) -> Execution:
    return ProductExecution(op, backend, operands_of(op, inputs), inputs, outputs)


class ProductExecution(Execution):
    """c = activation(alpha * a' @ b' + bias + residual); a constant b is packed once, a computed one at every run."""

    def __init__(self, op: Op, backend, operands: Operands, inputs: Specs, outputs: Specs, tiling: Tiling | None = None):
        """`tiling`: another one than the usual, or than the one that is known to be the fastest."""
        super().__init__(op, backend)
        self.operands = operands
        self.tiling = tiling or (self._tuned_tiling(inputs, outputs) if backend.tuner else Tiling.of(backend.target))
        self.in_place = () if operands.residual is None else (operands.residual,)
        a, b = inputs[0].shape, inputs[1].shape
        a = a if len(a) > 1 else (1, *a)
        b = b if len(b) > 1 else (*b, 1)
        self.m, self.depth = (a[-1], a[-2]) if operands.transpose_a else a[-2:]
        self.n = b[-2] if operands.transpose_b else b[-1]
        self.a_batch, self.b_batch = a[:-2], b[:-2]
        if math.prod(self.b_batch) == 1 and not operands.transpose_a:  # one b for all: the batch of a is more rows
            self.m *= math.prod(self.a_batch)
            self.a_batch = self.b_batch = ()
        self.batch = np.broadcast_shapes(self.a_batch, self.b_batch)
        self.empty = outputs[0].size == 0
        constant = inputs[1].value is not None
        straight = not operands.transpose_b and operands.alpha == 1 and self.n % self.tiling.lanes == 0 and self.m < _ROWS_WORTH_PACKING
        self.packs = not constant and not straight and self.depth > 0
        self.panels = -(-self.n // self.tiling.columns)
        self.item_bytes = 4 * self.panels * self.depth * self.tiling.columns
        self.a_bytes = round_up(4 * math.prod(self.a_batch) * self.m * self.depth) if operands.transpose_a else 0

    def _tuned_tiling(self, inputs: Specs, outputs: Specs) -> Tiling:
        op, backend, operands = self.op, self.backend, self.operands
        tilings = {f"tile {tiling.rows}x{tiling.vectors}": tiling for tiling in Tiling.choices(backend.target)}

        @functools.cache
        def bench() -> Bench:
            from mnnx.backends.cpu.tuning import Bench

            return Bench(backend, inputs, outputs)

        def prepare(name: str) -> Callable[[], float]:
            return bench().prepare(ProductExecution(op, backend, operands, inputs, outputs, tilings[name]))

        shapes = ["-" if spec is None else "x".join(map(str, spec.shape)) + " constant" * (spec.value is not None) for spec in inputs]
        problem = ", ".join(["product", *shapes, *(f"{key} {value}" for key, value in zip(operands._fields, operands, strict=True))])
        return tilings[backend.tuner.choose(backend, problem, list(tilings), prepare).name]

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        if self.empty:
            return 0
        return self.a_bytes + (math.prod(self.b_batch) * self.item_bytes if self.packs else 0)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.empty:
            return
        operands, tiling, backend = self.operands, self.tiling, self.backend
        a, (b, b_stride, panel_bytes, b_item_bytes) = address_of(inputs[0]), self._right(inputs[1], scratch)
        if self.a_bytes:
            a = self._transposed(inputs[0], address_of(scratch))
        kind, parameters = epilogue(operands.activation, operands.activation_parameters)
        parameters = np.array(parameters, _FLOAT32)
        bias, bias_bytes, residual, residual_stride = self._added(inputs)
        item_bytes = 4 * self.m * self.n
        items = np.zeros((math.prod(self.batch), 4), np.int64)
        items[:, 0] = _offsets(self.a_batch, self.batch, 4 * self.m * self.depth)
        items[:, 1] = _offsets(self.b_batch, self.batch, b_item_bytes)
        items[:, 2] = np.arange(len(items)) * item_bytes
        items[:, 3] = items[:, 2] if residual_stride else 0
        wanted = backend.chunks(len(items) * self.m * self.panels * tiling.vectors * self.depth)
        panel_chunks = min(self.panels, wanted)
        row_chunks = max(-(-wanted // (len(items) * panel_chunks)), -(-4 * self.m * self.depth // (2 * block_bytes(backend.target))))
        row_chunks = min(row_chunks, -(-self.m // tiling.rows))
        block = Product(
            a=a,
            a_stride=4 * self.depth,
            b=b,
            b_stride=b_stride,
            panel_bytes=panel_bytes,
            bias=address_of(bias),
            bias_bytes=bias_bytes,
            c=address_of(outputs[0]),
            c_stride=4 * self.n,
            residual=residual,
            residual_stride=residual_stride,
            parameters=address_of(parameters),
            rows=self.m,
            columns=self.n,
            depth=self.depth,
            batch=len(items),
            items=address_of(items),
            row_chunks=row_chunks,
            panel_chunks=panel_chunks,
        )
        product = kernel("gemm.product", kind=kind, **tiling.parameters)
        keep = (bias, parameters, items)
        backend.commands.record(product, arguments(*block), min(wanted, len(items) * row_chunks * panel_chunks), keep)

    def _right(self, b: DeviceTensor, scratch: DeviceTensor | None) -> tuple[int, int, int, int]:
        """b as panels: its address, bytes between rows of a panel, from panel to panel, from item to item."""
        operands, tiling = self.operands, self.tiling
        if b.constant is not None:
            key = ("product columns", operands.transpose_b, operands.alpha, tiling.columns)
            return (
                address_of(self.backend.packed(key, b.constant, self._pack)),
                4 * tiling.columns,
                self.item_bytes // self.panels,
                self.item_bytes,
            )
        k_stride, n_stride = (4, 4 * self.depth) if operands.transpose_b else (4 * self.n, 4)
        if not self.packs:
            return address_of(b), k_stride, 4 * tiling.columns, 4 * self.depth * self.n
        panels, count = address_of(scratch) + self.a_bytes, math.prod(self.b_batch)
        items = np.arange(count) * (4 * self.depth * self.n)
        block = Pack(
            b=address_of(b),
            depth_stride=k_stride,
            column_stride=n_stride,
            panels=panels,
            depth=self.depth,
            columns=self.n,
            batch=count,
            items=address_of(items),
            factor=float32_bits(operands.alpha),
        )
        chunks = min(count * self.panels, self.backend.chunks(count * self.item_bytes / 16))
        self.backend.commands.record(kernel("gemm.pack", vectors=tiling.vectors, lanes=tiling.lanes), arguments(*block), chunks, items)
        return panels, 4 * tiling.columns, self.item_bytes // self.panels, self.item_bytes

    def _pack(self, b: np.ndarray) -> np.ndarray:
        """The panels of a constant b."""
        b = b.reshape(-1, 1) if b.ndim == 1 else np.swapaxes(b, -1, -2) if self.operands.transpose_b else b
        return self.tiling.pack_columns(b if self.operands.alpha == 1 else b * _FLOAT32.type(self.operands.alpha))

    def _transposed(self, a: DeviceTensor, target: int) -> int:
        """Copies the transposed matrices of a, and returns where to."""
        batch = math.prod(self.a_batch)
        block = Transpose(address_of(a), target, batch, self.depth, self.m)
        chunks = min(batch * -(-self.m // self.tiling.lanes), self.backend.chunks(batch * self.m * self.depth / 8))
        self.backend.commands.record(kernel("gemm.transpose", lanes=self.tiling.lanes), arguments(*block), chunks)
        return target

    def _added(self, inputs: Tensors) -> tuple[np.ndarray, int, int, int]:
        """The bias per column with its bytes per panel; the address of what is added to every element (0: none) with its bytes per row."""
        operands, tiling = self.operands, self.tiling
        residual, residual_stride = (0, 0) if operands.residual is None else (address_of(inputs[operands.residual]), 4 * self.n)
        bias = None if operands.bias is None else inputs[operands.bias]
        row_bytes = 4 * tiling.columns
        if bias is None:
            return np.zeros(tiling.columns, _FLOAT32), 0, residual, residual_stride
        if bias.constant is None:
            rows = math.prod(bias.shape[:-1])
            return np.zeros(tiling.columns, _FLOAT32), 0, address_of(bias), 4 * self.n if rows == self.m > 1 else 0
        values = bias.constant
        if math.prod(values.shape[:-1]) > 1:  # one row of c per row of the result
            whole = self.backend.packed(("rows", operands.beta, self.m, self.n), values, self._spread_bias)
            return np.zeros(tiling.columns, _FLOAT32), 0, address_of(whole), 4 * self.n
        return (
            self.backend.packed(("bias", operands.beta, self.panels * tiling.columns, self.n), values, self._pad_bias),
            row_bytes,
            residual,
            residual_stride,
        )

    def _spread_bias(self, c: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.broadcast_to(c * _FLOAT32.type(self.operands.beta), (self.m, self.n)))

    def _pad_bias(self, c: np.ndarray) -> np.ndarray:
        padded = np.zeros(self.panels * self.tiling.columns, _FLOAT32)
        padded[: self.n] = c.reshape(-1) * _FLOAT32.type(self.operands.beta)
        return padded


def _offsets(batch: tuple[int, ...], broadcast: tuple[int, ...], nbytes: int) -> np.ndarray:
    """Where each item of the broadcast batch lies in a tensor of this batch, in bytes."""
    index = np.arange(math.prod(batch)).reshape(batch)
    return np.broadcast_to(index, broadcast).reshape(-1) * nbytes
