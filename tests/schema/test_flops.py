"""`Op.flops`: a multiply-add counts as two, counted here one by one."""

from __future__ import annotations

import numpy as np
import pytest

from mnnx.schema.ops.base import OPS, Op, Spec, load_all

load_all()


def spec(*shape: int) -> Spec:
    return Spec(np.dtype(np.float32), shape)


@pytest.mark.parametrize(
    ("op", "inputs", "output", "multiplications"),
    [
        (OPS["Conv"](group=2), [spec(1, 4, 8, 8), spec(6, 2, 3, 3)], spec(1, 6, 6, 6), 6 * 6 * 6 * (2 * 3 * 3)),
        (OPS["mnnx::FusedConv"](), [spec(2, 4, 8), spec(6, 4, 3)], spec(2, 6, 6), 2 * 6 * 6 * (4 * 3)),
        (OPS["ConvTranspose"](), [spec(1, 4, 8, 8), spec(4, 6, 3, 3)], spec(1, 6, 10, 10), 4 * 8 * 8 * (6 * 3 * 3)),
        (OPS["ConvInteger"](), [spec(1, 4, 8, 8), spec(6, 4, 1, 1), None], spec(1, 6, 8, 8), 6 * 8 * 8 * 4),
        (OPS["QLinearConv"](), [spec(1, 4, 8, 8), spec(), spec(), spec(6, 4, 1, 1)], spec(1, 6, 8, 8), 6 * 8 * 8 * 4),
        (OPS["MatMul"](), [spec(5, 2, 3), spec(3, 4)], spec(5, 2, 4), 5 * 2 * 3 * 4),
        (OPS["MatMulInteger"](), [spec(2, 3), spec(3, 4)], spec(2, 4), 2 * 3 * 4),
        (OPS["QLinearMatMul"](), [spec(2, 3), spec(), spec(), spec(3, 4)], spec(2, 4), 2 * 3 * 4),
        (OPS["mnnx::FusedMatMul"](transpose_a=True), [spec(3, 2), spec(3, 4)], spec(2, 4), 2 * 3 * 4),
        (OPS["Gemm"](transA=True), [spec(3, 2), spec(3, 4)], spec(2, 4), 2 * 3 * 4),
        (OPS["LSTM"](), [spec(7, 2, 3), spec(1, 20, 3), spec(1, 20, 5)], None, 7 * 2 * (20 * 3 + 20 * 5)),
        (OPS["GRU"](layout=True), [spec(2, 7, 3), spec(1, 15, 3), spec(1, 15, 5)], None, 7 * 2 * (15 * 3 + 15 * 5)),
        (OPS["Transpose"](perm=(1, 0)), [spec(2, 3)], spec(3, 2), 0),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
def test_multiplications_are_counted_twice(op: Op, inputs: list[Spec | None], output: Spec | None, multiplications: int) -> None:
    assert op.flops(inputs, [output]) == 2 * multiplications
