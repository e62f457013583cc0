"""Names of dims that are arithmetic on the names of others, as exporters write them: 2*N, N + M, (N + 1)//2."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def names_in(text: str) -> set[str]:
    """The names in a dim's name."""
    return set(re.findall(r"[A-Za-z_]\w*", text))


def size_of(text: str, sizes: Mapping[str, int]) -> int | None:
    """The size that a dim's name stands for, by those of the names in it; None where it isn't arithmetic on these."""
    if text in sizes:
        return sizes[text]
    if re.fullmatch(r"[\w\s+*/()-]*", text) is None:
        return None
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, sizes)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return sizes.get(name)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() as kind, right=right):
            one, other = _value(left, sizes), _value(right, sizes)
            return None if one is None or other is None else _OPERATORS[type(kind)](one, other)
    return None
