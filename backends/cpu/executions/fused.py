"""Fused ops: those of the plain ones, with an epilogue."""

from __future__ import annotations

from mnnx.backends.cpu.creators import creator
from mnnx.backends.cpu.executions import convolution
from mnnx.schema.ops.fused import FusedConv

creator(FusedConv, supports=convolution.supports)(convolution.create)
