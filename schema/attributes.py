"""Attributes of operators as a model file holds them: written by the annotations of the op's fields, and read back by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.base import Op, Subgraph
from mnnx.schema.records import Row

#: AttributeKind of mnnx.fbs.
NONE, INT, FLOAT, STRING, DTYPE, TENSOR, GRAPH, INTS, FLOATS, STRINGS, INT_LISTS = range(11)
_KIND_NAMES = ("nothing", "an int", "a float", "a string", "a dtype", "a tensor", "a graph", "ints", "floats", "strings", "lists of ints")

_KINDS = {
    int: INT,
    bool: INT,
    float: FLOAT,
    str: STRING,
    np.dtype: DTYPE,
    np.ndarray: TENSOR,
    Subgraph: GRAPH,
    tuple[int, ...]: INTS,
    tuple[float, ...]: FLOATS,
    tuple[str, ...]: STRINGS,
    tuple[tuple[int, ...], ...]: INT_LISTS,
}


class Attribute(Row):
    """The fields of mnnx.fbs' Attribute, in their order."""

    name: str
    kind: int
    integer: int = 0
    real: float | None = None
    text: str = ""
    integers: Sequence[int] = ()
    reals: Sequence[float] = ()
    texts: Sequence[str] = ()


#: Which field holds the value of each kind.
_FIELDS = {INT: "integer", FLOAT: "real", STRING: "text", DTYPE: "text", TENSOR: "integer", GRAPH: "integer"}
_FIELDS |= {INTS: "integers", FLOATS: "reals", STRINGS: "texts", INT_LISTS: "integers"}
_SLOTS = {kind: Attribute._fields.index(field) for kind, field in _FIELDS.items()}


@cache
def kinds(op: type[Op]) -> dict[str, tuple[int, bool]]:
    """The AttributeKind of each attribute of an op, and whether it may be None. Raises TypeError for an annotation that has none."""
    found = {}
    for name, (annotation, default) in op.fields.items():
        options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        plain = [option for option in options if option is not type(None)]
        if len(plain) != 1 or plain[0] not in _KINDS:
            shown, *known = map(_annotation_text, (annotation, *_KINDS))
            raise TypeError(
                f"{op.name}.{name} can't be written to a model file: it is annotated {shown}; an attribute is one of {', '.join(known)}, "
                "or one of them | None"
            )
        found[name] = (_KINDS[plain[0]], type(None) in options or default is None)
    return found


def _annotation_text(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def encode(op: Op, constant: Callable[[np.ndarray], int], graph: Callable[[Any], int]) -> list[Attribute]:
    """The attributes of `op` that differ from their defaults.

    `constant` and `graph` give the index of a tensor and of a subgraph in the file. Raises TypeError for an annotation or value that a
    file can't hold.
    """
    table = kinds(type(op))
    return [_encode(name, table[name][0], value, constant, graph) for name, value in op.attributes().items()]


def _encode(name: str, kind: int, value: Any, constant: Callable[[np.ndarray], int], graph: Callable[[Any], int]) -> Attribute:
    if value is None:
        return Attribute(name, NONE)
    convert = {DTYPE: dtypes.name, TENSOR: constant, GRAPH: graph, INT_LISTS: _joined}.get(kind)
    return Attribute(name, kind, **{_FIELDS[kind]: convert(value) if convert else value})


def _joined(lists: Sequence[Sequence[int]]) -> list[int]:
    """All the lists in one, each behind its length."""
    return [number for numbers in lists for number in (len(numbers), *numbers)]


def _parted(numbers: Sequence[int]) -> list[Sequence[int]]:
    """The lists that `_joined` joined. Raises ValueError where the lengths can't be."""
    lists, position = [], 0
    while position < len(numbers):
        end = position + 1 + numbers[position]
        if not position < end <= len(numbers):
            raise ValueError(f"a list of {numbers[position]} ints stands where {len(numbers) - position - 1} are left")
        lists.append(numbers[position + 1 : end])
        position = end
    return lists


_dtype = cache(dtypes.from_name)


def decode(op: type[Op], rows: Sequence[Sequence[Any]], constants: Sequence[np.ndarray], graph: Callable[[int], Any]) -> Op:
    """The op whose attributes are `rows`, each with the fields of `Attribute`.

    `constants` are the file's, `graph` gives the subgraph of an index. Raises ValueError or TypeError for what the op doesn't allow.
    """
    table = kinds(op)
    values: dict[str, Any] = {}
    for row in rows:
        name, kind = row[0], row[1]
        expected = table.get(name)
        if expected is None:
            raise ValueError(f"{op.name} has no attribute {name!r}")
        if kind != expected[0] and not (kind == NONE and expected[1]):
            got = _KIND_NAMES[kind] if kind < len(_KIND_NAMES) else f"something of kind {kind}"
            raise ValueError(f"{op.name}.{name} must be {_KIND_NAMES[expected[0]]}, not {got}")
        if name in values:
            raise ValueError(f"{op.name}.{name} is given twice")
        if kind == NONE:
            values[name] = None
            continue
        value = row[_SLOTS[kind]]
        if kind == DTYPE:
            try:
                value = _dtype(value)
            except KeyError:
                raise ValueError(f"{op.name}.{name} is {value!r}, which is no dtype") from None
        elif kind == TENSOR:
            if not 0 <= value < len(constants):
                raise ValueError(f"{op.name}.{name} is constant {value} of {len(constants)}")
            value = constants[value]
        elif kind == GRAPH:
            value = graph(value)
        elif kind == INT_LISTS:
            value = _parted(value)
        values[name] = value
    return op(**values)
