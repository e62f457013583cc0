"""How many floating-point operations an op takes; a multiply-add counts as two. Ops that only move data, or are cheap, count as 0."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mnnx.schema.ops.base import Op, Spec


def flops(op: Op, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
    """The count for one run of `op` on tensors of these Specs."""
    result = outputs[0]
    match op.name.removeprefix("mnnx::Fused"):
        case "ConvTranspose":
            return 2 * inputs[0].size * math.prod(inputs[1].shape[1:])
        case "Conv" | "ConvInteger":
            return 2 * result.size * math.prod(inputs[1].shape[1:])
        case "QLinearConv":
            return 2 * result.size * math.prod(inputs[3].shape[1:])
        case "MatMul" | "MatMulInteger" | "QLinearMatMul":
            return 2 * result.size * inputs[0].shape[-2 if getattr(op, "transpose_a", False) else -1]
        case "Gemm":
            return 2 * result.size * inputs[0].shape[0 if op.transA else 1]
        case "LSTM" | "GRU" | "RNN":
            steps, batch = inputs[0].shape[:2]
            return 2 * steps * batch * (inputs[1].size + inputs[2].size)
    return 0
