"""Which elementwise kernels are compiled ahead of time: those of all ops in the table, on the dtypes that have kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from mnnx.backends import elementwise
from mnnx.backends.broadcasting import expression_of
from mnnx.backends.elementwise import TABLE
from mnnx.backends.gpu.constants import MOST_INPUTS
from mnnx.backends.gpu.expressions import COMPUTES
from mnnx.backends.gpu.source import FLOATS
from mnnx.schema.ops import activation, arithmetic, cast, comparison, quantized_arithmetic
from mnnx.schema.ops.base import Op, RuleError, Spec

_FLOAT32, _INT32, _BOOL, _INT64 = (np.dtype(name) for name in ("float32", "int32", "bool", "int64"))
_BYTES = (np.dtype("int8"), np.dtype("uint8"))
#: Integers that are computed as int32, as in executions/elementwise.py.
_NARROW = (*_BYTES, np.dtype("int16"), np.dtype("uint16"))
#: Dtypes that are only cast, to and from those of networks.
_RARE = {np.dtype(name): short for name, short in (("int16", "short"), ("uint16", "ushort"), ("uint32", "uint"), ("uint64", "ulong"))}
_RARE[np.dtype(ml_dtypes.bfloat16)] = "bfloat"
_CAST_WITH_RARE = (_FLOAT32, np.dtype("float16"), _INT32, _INT64)
_STORAGES = {_BOOL: "bool", _INT32: "int", _INT64: "long", _BYTES[0]: "char", _BYTES[1]: "uchar"}
#: Dtypes for which kernels without strides exist as well.
_COMMON = (_FLOAT32, _INT32, _BOOL, np.dtype("float16"))
#: Ops whose expression depends on their attributes.
_ATTRIBUTES: dict[type[Op], Sequence[dict[str, Any]]] = {
    arithmetic.Mod: ({"fmod": False}, {"fmod": True}),
    comparison.IsInf: [{"detect_negative": n, "detect_positive": p} for n, p in itertools.product((False, True), repeat=2)],
    comparison.BitShift: ({"direction": "LEFT"}, {"direction": "RIGHT"}),
    activation.Gelu: ({"approximate": "none"}, {"approximate": "tanh"}),
    quantized_arithmetic.QuantizedAdd: [{"output_dtype": dtype} for dtype in _BYTES],
    quantized_arithmetic.QuantizedMul: [{"output_dtype": dtype} for dtype in _BYTES],
    cast.Cast: [{"to": dtype} for dtype in (*_STORAGES, _FLOAT32, np.dtype("float16"))],
}
_VARIADIC = (arithmetic.Max, arithmetic.Min, arithmetic.Sum, arithmetic.Mean)
_EXPONENTS = (1.0, 2.0, 3.0, 4.0, 0.5, -1.0, -2.0)


def variants() -> Iterator[dict[str, Any]]:
    for op_class in TABLE:
        for attributes in _ATTRIBUTES.get(op_class, ({},)):
            op = op_class(**attributes)
            for dtype in (_FLOAT32, *_STORAGES):
                for inputs in _inputs(op, dtype):
                    yield from _variants_of(op, inputs)
    for rare, usual in itertools.product(_RARE, _CAST_WITH_RARE):
        yield from _variants_of(cast.Cast(to=usual), [Spec(rare, (1,))])
        yield from _variants_of(cast.Cast(to=rare), [Spec(usual, (1,))])


def _inputs(op: Op, dtype: np.dtype) -> Iterator[list[Spec | None]]:
    """Inputs of one element that an op may be given."""
    x = Spec(dtype, (1,))
    if isinstance(op, _VARIADIC):
        yield from ([x] * count for count in range(1, MOST_INPUTS + 1))
    elif isinstance(op, arithmetic.Clip):
        yield from ([x, low, high] for low, high in itertools.product((x, None), repeat=2))
    elif isinstance(op, comparison.Where):
        yield [Spec(_BOOL, (1,)), x, x]
    elif isinstance(op, arithmetic.Pow):
        yield [x, x]
        yield from ([x, Spec.of(np.full(1, exponent, dtype))] for exponent in _EXPONENTS if dtype == _FLOAT32)
    else:
        yield from ([x] * count for count in (1, 2))


def _variants_of(op: Op, inputs: Sequence[Spec | None]) -> Iterator[dict[str, Any]]:
    given = [spec for spec in inputs if spec is not None]
    try:
        result = op.infer(*inputs)
        expression = expression_of(op, inputs)
    except (RuleError, TypeError):  # not for such inputs
        return
    if expression is None or len(expression.inputs) != len(given):
        return
    compute = elementwise.compute_dtype(expression, inputs)
    compute = _INT32 if compute in _NARROW else compute
    if compute.name not in COMPUTES:
        return
    names = sorted(elementwise.names_of(expression.text) & op.fields.keys() - set(expression.inputs))
    floats = FLOATS if _FLOAT32 in {result.dtype, *(spec.dtype for spec in given)} or result.dtype == np.float16 else FLOATS[:1]
    for storage in floats:
        results = FLOATS if isinstance(op, cast.Cast) and result.dtype.kind == "f" else (storage,)
        common = all(spec.dtype in _COMMON for spec in (result, *given))
        strides = ((False, True) if len(given) > 1 else (False,)) if common else (True,)
        for made, strided in itertools.product(results, strides):
            yield {
                "text": expression.text,
                "letters": expression.inputs,
                "attributes": tuple(names),
                "compute": compute.name,
                "inputs": tuple(_storage(spec.dtype, storage) for spec in given),
                "result": _storage(result.dtype, made),
                "strided": strided,
            }


def _storage(dtype: np.dtype, floats: str) -> str:
    return _STORAGES.get(dtype) or _RARE.get(dtype, floats)
