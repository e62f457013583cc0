"""Dims that are called by arithmetic on the names of others, as exporters write them: 2*N, N + M, N//2."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Collection, Mapping

from mnnx.schema.model import Dim

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def computed_dim(text: str, became: Mapping[str, Dim], names: Collection[str]) -> Dim:
    """What becomes of a dim that is called by arithmetic on the `names` of other dims, where some of these `became` others, or sizes; the
    name itself where it is no such thing."""
    found = set(re.findall(r"[A-Za-z_]\w*", text))
    if text.isidentifier() or not found <= set(names) or found.isdisjoint(became) or re.fullmatch(r"[\w\s+*/()-]*", text) is None:
        return text
    new = re.sub(r"[A-Za-z_]\w*", lambda match: _operand(became.get(match[0], match[0])), text)
    try:
        size = _value(ast.parse(new, mode="eval").body)
    except (SyntaxError, ZeroDivisionError):
        return text
    return new if size is None else size if size >= 0 else text


def _operand(dim: Dim) -> str:
    return f"{dim}" if isinstance(dim, int) or dim.isidentifier() else f"({dim})"


def _value(node: ast.expr) -> int | None:
    """The value of arithmetic on whole numbers; None for other expressions."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() as kind, right=right):
            one, other = _value(left), _value(right)
            return None if one is None or other is None else _OPERATORS[type(kind)](one, other)
    return None
