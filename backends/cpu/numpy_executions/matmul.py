"""Products of matrices and tensors."""

import numpy as np

from mnnx.backends.cpu.numpy_executions.precision import widened
from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops.equation import Equation
from mnnx.schema.ops.matmul import Det, Einsum, Gemm, MatMul


@numpy_execution(MatMul)
def matmul(op: MatMul, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.matmul(widened(a), widened(b))).astype(a.dtype, copy=False)


@numpy_execution(Gemm)
def gemm(op: Gemm, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    left, right = widened(a.T if op.transA else a), widened(b.T if op.transB else b)
    y = _scaled(np.matmul(left, right), op.alpha)
    if c is not None:
        y = y + _scaled(widened(c), op.beta)
    return y.astype(a.dtype, copy=False)


def _scaled(x: np.ndarray, factor: float) -> np.ndarray:
    return x if factor == 1 else x * np.asarray(factor, x.dtype if x.dtype.kind == "f" else np.float64)


@numpy_execution(Einsum)
def einsum(op: Einsum, *operands: np.ndarray) -> np.ndarray:
    equation = Equation.parse(op.equation, [x.shape for x in operands])
    pairs = [part for x, labels in zip(operands, equation.terms, strict=True) for part in (widened(x), list(labels))]
    largest = max(x.size for x in operands)
    y = np.einsum(*pairs, list(equation.output), optimize=("greedy", 4 * max(largest, int(np.prod(equation.output_shape)))))
    return np.asarray(y).astype(operands[0].dtype, copy=False)


@numpy_execution(Det)
def det(op: Det, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.det(widened(x))).astype(x.dtype, copy=False)
