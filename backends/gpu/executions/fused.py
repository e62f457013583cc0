"""Fused ops: those of the plain ones, with an epilogue."""

from __future__ import annotations

from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.executions import matmul
from mnnx.schema.ops.fused import FusedMatMul

creator(FusedMatMul, supports=matmul.supports)(matmul.create)
