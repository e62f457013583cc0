"""Fused ops: those of the plain ones, with an epilogue."""

from __future__ import annotations

from mnnx.backends.gpu.creators import creator
from mnnx.backends.gpu.executions import convolution, matmul
from mnnx.backends.gpu.floats import floats_only
from mnnx.schema.ops.fused import FusedConv, FusedConvTranspose, FusedMatMul

creator(FusedConv, FusedConvTranspose, supports=convolution.supports)(convolution.create)
creator(FusedMatMul, supports=floats_only)(matmul.create)
