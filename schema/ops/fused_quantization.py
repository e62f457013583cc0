"""Quantized ops with what follows them, as the converter's passes make them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mnnx.schema.ops.base import Op, Part, Spec, op, require
from mnnx.schema.ops.fused import Fused
from mnnx.schema.ops.quantization import BYTES, QLinearMatMul
from mnnx.schema.ops.rules import require_shape
from mnnx.schema.ops.shape import Concat

_FLOAT32 = np.dtype("float32")


@op("mnnx::FusedQLinearMatMul")
class FusedQLinearMatMul(Fused, QLinearMatMul):
    """QLinearMatMul with a bias, and with what is computed of its result element by element. b has two dims or more, N columns.

        y = QLinearMatMul(a, …, y_zero_point), with the int32 `bias` [N], in units of a_scale * b_scale, added to its sums
        r = activation((y - y_zero_point) * y_scale + addend)
        the result: y, or where `dequantizes` r, or where there are an `out_scale` and `out_zero_point` r quantized with them

    y is of int8 or uint8; y_scale, the float32 addend [N] and r are float32.
    """

    dequantizes: bool = False

    def check(self) -> None:
        super().check()
        require(self.dequantizes or not self.activation, "an activation is of dequantized values")

    def infer(
        self,
        a: Spec,
        a_scale: Spec,
        a_zero_point: Spec,
        b: Spec,
        b_scale: Spec,
        b_zero_point: Spec,
        y_scale: Spec,
        y_zero_point: Spec,
        bias: Spec | None = None,
        addend: Spec | None = None,
        out_scale: Spec | None = None,
        out_zero_point: Spec | None = None,
    ) -> Spec:
        y = QLinearMatMul.infer(self, a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point)
        require(b.rank >= 2, f"b must be a matrix; it is {b}")
        require(y.dtype in BYTES and y_scale.dtype == _FLOAT32, f"y must be bytes with a float32 scale; it is {y} with {y_scale}")
        require(bias is None or bias.dtype == np.int32, f"bias must be int32; it is {bias}")
        require_shape("bias", bias, y.shape[-1:])
        require(
            addend is None or (self.dequantizes and addend.dtype == _FLOAT32), f"the addend is for dequantized float32s; it is {addend}"
        )
        require_shape("addend", addend, y.shape[-1:])
        require((out_scale is None) == (out_zero_point is None), "out_scale and out_zero_point belong together")
        if out_scale is None:
            return Spec(_FLOAT32, y.shape) if self.dequantizes else y
        require(self.dequantizes, "only dequantized values are quantized again")
        legal = out_scale.dtype == _FLOAT32 and out_zero_point.dtype in BYTES and out_scale.size == out_zero_point.size == 1
        require(legal, f"out_scale and out_zero_point must be a float32 and a byte; they are {out_scale}, {out_zero_point}")
        return Spec(out_zero_point.dtype, y.shape)


@op("mnnx::ByteTable")
class ByteTable(Op):
    """(x, table) → table[x], of x's shape and table's dtype: any function of single bytes.

    x: int8 or uint8; table: 256 elements, first those of 0 … 127, then of 128 … 255 or of -128 … -1.
    """

    def infer(self, x: Spec, table: Spec) -> Spec:
        require(x.dtype in BYTES, f"x must be int8 or uint8; it is {x}")
        require(table.shape == (256,), f"the table must have 256 elements; it is {table}")
        return Spec(table.dtype, x.shape)


@op("mnnx::ByteTableConcat")
class ByteTableConcat(Op):
    """(x1, table1?, x2, table2?, …) → the Concat along `axis` of ByteTable(x, table), or of x itself where there is no table. All bytes.

    Sessions plan it as these ops: what has no table is written to its place in the result from the start.
    """

    composed = True

    axis: int

    def pairs(self, inputs: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Each x with its table or None, whatever stands for them."""
        return list(zip(inputs[::2], (*inputs, None)[1::2], strict=False))

    def parts(self, inputs: Sequence[Any], outputs: Sequence[Any], further: Callable[[], Any]) -> list[Part]:
        tables = [(ByteTable(), pair, (further(),)) for pair in self.pairs(inputs) if pair[1] is not None]
        results = iter(made for _, _, (made,) in tables)
        joined = [x if table is None else next(results) for x, table in self.pairs(inputs)]
        return [*tables, (Concat(axis=self.axis), joined, outputs)]

    def infer(self, *inputs: Spec | None) -> Spec:
        require(inputs and all(x is not None for x in inputs[::2]), "each part must be given")
        parts = [x if table is None else ByteTable.infer(self, x, table) for x, table in self.pairs(inputs)]
        require(all(part.dtype in BYTES for part in parts), f"all parts must be int8 or uint8; they are {', '.join(map(str, parts))}")
        return Concat(axis=self.axis).infer(*parts)
