"""Fused ops: those of the plain ones, with an epilogue."""

from __future__ import annotations

from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions import convolution, matmul
from mnnx.schema.ops.fused import FusedConv, FusedConvTranspose, FusedMatMul

creator(FusedConv, supports=convolution.supports)(convolution.create)
creator(FusedConvTranspose, supports=convolution.supports_transposed)(convolution.create_transposed)
creator(FusedMatMul, supports=matmul.supports)(matmul.create)
