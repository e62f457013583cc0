"""Names of dims that are arithmetic on the names of others, as exporters write them: 2*N, N + M, (N + 1)//2."""

from __future__ import annotations

import ast
import itertools
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


def argument_of(text: str, size: int) -> tuple[str, int | None] | None:
    """The one name in a dim's name, and the size of it by which the dim has that `size` (None: there is no such). None where that isn't
    known: the dim's name isn't sums, differences and products in which one name stands once."""
    names = re.findall(r"[A-Za-z_]\w*", text)
    if len(names) != 1 or "//" in text or not is_arithmetic(text):
        return None
    at_0, at_1 = (size_of(text, {names[0]: number}) for number in (0, 1))
    if at_0 == at_1:
        return None
    found, rest = divmod(size - at_0, at_1 - at_0)
    return names[0], found if not rest and found >= 0 else None


def extent_of(text: str, extents: Mapping[str, tuple[int, int]]) -> tuple[int, int] | None:
    """The smallest and largest size that a dim's name can stand for, by those of the names in it; None where that isn't known."""
    names = re.findall(r"[A-Za-z_]\w*", text)
    ends = [sorted(set(extents[name])) for name in names if name in extents]
    if len(ends) < len(names) or (len(set(names)) < len(names) and any(len(pair) > 1 for pair in ends)):
        return None
    sizes = [size_of(text, dict(zip(names, corner, strict=True))) for corner in itertools.product(*ends)]
    return None if None in sizes else (min(sizes), max(sizes))


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
