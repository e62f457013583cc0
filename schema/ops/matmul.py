"""Products of matrices and tensors."""

from collections.abc import Sequence

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import FLOATS
from mnnx.schema.ops.equation import Equation
from mnnx.schema.ops.rules import require_floats, require_same_dtype

_INTEGERS = frozenset(np.dtype(t) for t in (np.int32, np.int64, np.uint32, np.uint64))


def require_matrices_dtype(**specs: Spec | None) -> None:
    """The operands of a matrix product: one dtype, a float or an integer of 32 or 64 bits."""
    require_same_dtype(**specs)
    for name, spec in specs.items():
        if spec is not None:
            allowed = spec.dtype in FLOATS or spec.dtype in _INTEGERS
            require(allowed, f"{name} must be a float or an integer of 32 or 64 bits; it is {dtypes.name(spec.dtype)}")


def matmul_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of `a @ b` by NumPy's rules: vectors have no dim in the result, leading dims broadcast."""
    require(a and b, f"a matrix product needs operands of rank 1 or more; they are {list(a)} and {list(b)}")
    rows = a[-2:-1] if len(a) > 1 else ()
    columns = b[-1:] if len(b) > 1 else ()
    inner = b[-2] if len(b) > 1 else b[0]
    require(a[-1] == inner, f"the inner dims must agree; they are {a[-1]} and {inner} in {list(a)} and {list(b)}")
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        batch = None
    require(batch is not None, f"the leading dims must broadcast; they are {list(a[:-2])} and {list(b[:-2])}")
    return (*batch, *rows, *columns)


@op("MatMul")
class MatMul(Op):
    """a @ b by NumPy's rules. Floats, and integers of 32 or 64 bits with wraparound. MatMul-13."""

    def infer(self, a: Spec, b: Spec) -> Spec:
        require_matrices_dtype(a=a, b=b)
        return Spec(a.dtype, matmul_shape(a.shape, b.shape))

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * outputs[0].size * inputs[0].shape[-1]


@op("Gemm")
class Gemm(Op):
    """alpha * a' @ b' + beta * c for matrices, each transposed (') where its attribute says so; c broadcasts to [M, N]. Gemm-13.

    For integers alpha and beta are applied in floating point and the result is truncated.
    """

    alpha: float = 1.0
    beta: float = 1.0
    transA: bool = False  # noqa: N815  (ONNX's names)
    transB: bool = False  # noqa: N815

    def infer(self, a: Spec, b: Spec, c: Spec | None = None) -> Spec:
        require_matrices_dtype(a=a, b=b, c=c)
        require(a.rank == b.rank == 2, f"Gemm needs matrices; they are {a} and {b}")
        shape = matmul_shape(a.shape[::-1] if self.transA else a.shape, b.shape[::-1] if self.transB else b.shape)
        if c is not None:
            padded = (1,) * (2 - c.rank) + c.shape
            fits = len(padded) == 2 and all(n in (1, m) for n, m in zip(padded, shape, strict=True))
            require(fits, f"c must broadcast to {list(shape)}; it is {c}")
        return Spec(a.dtype, shape)

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * outputs[0].size * inputs[0].shape[0 if self.transA else 1]


@op("Einsum")
class Einsum(Op):
    """Einstein summation over any number of operands, ellipses included, e.g. "bij,bjk->bik". Einsum-12; any numeric dtype."""

    equation: str

    def infer(self, *operands: Spec) -> Spec:
        require(operands, "Einsum needs at least one operand")
        require_same_dtype(**{f"operand {i}": spec for i, spec in enumerate(operands)})
        require(operands[0].dtype.kind in "iuf" or operands[0].dtype in FLOATS, f"the operands must be numbers; they are {operands[0]}")
        return Spec(operands[0].dtype, Equation.parse(self.equation, [spec.shape for spec in operands]).output_shape)


@op("Det")
class Det(Op):
    """Determinants of square matrices [*, M, M] → [*]. Det-22."""

    def infer(self, x: Spec) -> Spec:
        require_floats(x=x)
        require(x.rank >= 2 and x.shape[-1] == x.shape[-2], f"Det needs square matrices; x is {x}")
        return Spec(x.dtype, x.shape[:-2])
