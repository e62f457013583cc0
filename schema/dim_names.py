"""Names of dims that are arithmetic on the names of others, as exporters write them: 2*N, N + M, (N + 1)//2."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping

#: A longer name is no arithmetic that anyone wrote.
_LONGEST = 256
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def names_in(text: str) -> set[str]:
    """The names in a dim's name."""
    return set(re.findall(r"[A-Za-z_]\w*", text))


def is_arithmetic(text: str) -> bool:
    """Whether a dim's name is sums, differences, products and quotients of names and whole numbers."""
    return _parsed(text) is not None


def size_of(text: str, sizes: Mapping[str, int]) -> int | None:
    """The size that a dim's name stands for, by those of the names in it; None where it isn't arithmetic on these."""
    if text in sizes:
        return sizes[text]
    tree = _parsed(text)
    try:
        return None if tree is None else _value(tree, sizes)
    except ZeroDivisionError:
        return None


def _parsed(text: str) -> ast.expr | None:
    if len(text) > _LONGEST:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return tree if _is_arithmetic(tree) else None


def _is_arithmetic(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=int()) | ast.Name():
            return True
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), right=right):
            return _is_arithmetic(left) and _is_arithmetic(right)
    return False


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int | None:
    match node:
        case ast.Constant(value=number):
            return number
        case ast.Name(id=name):
            return sizes.get(name)
    one, other = _value(node.left, sizes), _value(node.right, sizes)
    return None if one is None or other is None else _OPERATORS[type(node.op)](one, other)
