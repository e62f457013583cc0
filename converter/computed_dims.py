"""Dims that are called by arithmetic on the names of others, as exporters write them: 2*N, N + M, N//2."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Collection, Mapping

from mnnx.schema.model import Dim

#: A longer name is no arithmetic that anyone wrote.
_LONGEST = 256
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def computed_dim(text: str, became: Mapping[str, Dim], names: Collection[str]) -> Dim:
    """What becomes of a dim that is called by arithmetic on the `names` of other dims, where some of these `became` others, or sizes; the
    name itself where it is no such thing."""
    found = set(re.findall(r"[A-Za-z_]\w*", text))
    if text.isidentifier() or len(text) > _LONGEST or not found <= set(names) or found.isdisjoint(became):
        return text
    try:
        tree = ast.parse(text, mode="eval").body  # before sizes are put in: "2N" would be a number then
        if not _is_arithmetic(tree):
            return text
        size = _value(tree, became)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return text
    if size is None:
        return re.sub(r"[A-Za-z_]\w*", lambda match: _operand(became.get(match[0], match[0])), text)
    return size if size >= 0 else text


def _operand(dim: Dim) -> str:
    return f"{dim}" if isinstance(dim, int) or dim.isidentifier() else f"({dim})"


def _is_arithmetic(node: ast.expr) -> bool:
    """Whether an expression is sums, differences, products and quotients of names and whole numbers."""
    match node:
        case ast.Constant(value=int()) | ast.Name():
            return True
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), right=right):
            return _is_arithmetic(left) and _is_arithmetic(right)
    return False


def _value(node: ast.expr, sizes: Mapping[str, Dim]) -> int | None:
    """The value of arithmetic; None where a name in it is of none of the sizes."""
    match node:
        case ast.Constant(value=number):
            return number
        case ast.Name(id=name):
            return size if isinstance(size := sizes.get(name), int) else None
    one, other = _value(node.left, sizes), _value(node.right, sizes)
    return None if one is None or other is None else _OPERATORS[type(node.op)](one, other)
