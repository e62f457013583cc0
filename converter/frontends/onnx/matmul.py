"""MatMul, Gemm, Einsum, Det: the same in every opset (Gemm's `broadcast` in opsets 1 and 6 only allowed what later ones always do)."""

from mnnx.converter.frontends.onnx.registry import direct
from mnnx.schema.ops.matmul import Det, Einsum, Gemm, MatMul

direct(MatMul, Gemm, Einsum, Det)
