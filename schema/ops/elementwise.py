"""The base of ops that compute each element from the elements of their inputs: broadcasting, and which dtypes go in and out."""

from collections.abc import Collection
from typing import ClassVar

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.dtypes import DtypeSet
from mnnx.schema.ops.base import Op, RuleError, Spec, require

BOOL = np.dtype(bool)
STRING = dtypes.STRING
FLOATS = DtypeSet("float32", "float16", "float64", "bfloat16")
SIGNED = DtypeSet("int8", "int16", "int32", "int64")
UNSIGNED = DtypeSet("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED | UNSIGNED
NUMERIC = FLOATS | INTEGERS
SMALL_FLOATS = DtypeSet(
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
)
SMALL_INTEGERS = DtypeSet("int4", "uint4", "int2", "uint2")
COMPLEX = DtypeSet("complex64", "complex128")
ANY = NUMERIC | SMALL_FLOATS | SMALL_INTEGERS | COMPLEX | {BOOL, STRING}


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `shapes` broadcast to by NumPy's rules (ONNX: multidirectional broadcasting). Raises RuleError where they don't."""
    rank = max(map(len, shapes))
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size != 1:
                if result[axis] not in (1, size):
                    raise RuleError(f"shapes must broadcast; found {' and '.join(str(list(s)) for s in shapes)}")
                result[axis] = size
    return tuple(result)


def require_dtype(spec: Spec, accepts: Collection[np.dtype], what: str = "input") -> None:
    """Raises RuleError unless the dtype of `spec` is among `accepts`."""
    if spec.dtype not in accepts:
        raise RuleError(f"{what} is {dtypes.name(spec.dtype)}; wanted {', '.join(sorted(map(dtypes.name, accepts)))}")


def require_inputs(inputs: tuple[Spec | None, ...], least: int, most: int | None = None) -> None:
    """Raises RuleError unless `least` inputs are given and present, and there are no more than `most` (default: `least`)."""
    most = least if most is None else most
    require(least <= len(inputs) <= most, f"wants {least if least == most else f'{least} to {most}'} inputs; got {len(inputs)}")
    require(all(spec is not None for spec in inputs[:least]), f"input {inputs.index(None) if None in inputs else 0} must be given")


class Elementwise(Op):
    """An op of `arity` inputs, all of one dtype among `accepts`, broadcast together; the result is of dtype `result` (None: theirs)."""

    arity: ClassVar[int] = 1
    accepts: ClassVar[DtypeSet] = NUMERIC
    result: ClassVar[np.dtype | None] = None

    def infer(self, *inputs):
        require_inputs(inputs, self.arity)
        require_dtype(inputs[0], self.accepts)
        for spec in inputs[1:]:
            if spec.dtype != inputs[0].dtype:
                raise RuleError(f"inputs must be of one dtype; found {', '.join(map(str, inputs))}")
        return Spec(self.result or inputs[0].dtype, broadcast(*(spec.shape for spec in inputs)))


class Binary(Elementwise):
    """An Elementwise of two inputs."""

    arity = 2


class FloatUnary(Elementwise):
    """An Elementwise of one floating-point input."""

    accepts = FLOATS
