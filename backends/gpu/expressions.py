"""Elementwise expressions (`backends/elementwise.py` says what they mean) as C for kernels."""

from __future__ import annotations

import ast
from collections.abc import Mapping

_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
_LOGIC = {ast.BitAnd: "&&", ast.BitOr: "||", ast.BitXor: "!="}
_PREDICATES = {"isnan", "isinf"}

_NAMES = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_CALLS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}

#: The dtypes that kernels compute in, as C types and as prefixes of the functions that the languages and `wide.py` define (m_exp, i_min).
COMPUTES = {
    "float32": ("float", "m"),
    "int32": ("int", "i"),
    "uint32": ("uint", "u"),
    "int64": ("int2", "l"),
    "uint64": ("int2", "ul"),
    "bool": ("bool", "b"),
}


class _Writer:
    """Turns a tree into C text; every result says whether it is a boolean."""

    def __init__(self, kind: str, prefix: str, names: Mapping[str, tuple[str, bool]]):
        self._kind = kind
        self._prefix = prefix
        self._names = names

    def literal(self, value: float) -> str:
        if self._kind == "float":
            return f"{float(value)!r}f"
        if self._kind == "int2":
            return f"l_of({int(value)})"
        return f"{int(value)}u" if self._kind == "uint" else f"{int(value)}"

    def number(self, node: ast.expr) -> str:
        text, boolean = self.write(node)
        return f"({text} ? {self.literal(1)} : {self.literal(0)})" if boolean and self._kind != "bool" else text

    def boolean(self, node: ast.expr) -> str:
        text, boolean = self.write(node)
        if boolean:
            return text
        return f"l_ne({text}, {self.literal(0)})" if self._kind == "int2" else f"({text} != {self.literal(0)})"

    def write(self, node: ast.expr) -> tuple[str, bool]:
        match node:
            case ast.Name(name):
                return self._names[name]
            case ast.Constant(value):
                return self.literal(value), False
            case ast.UnaryOp(ast.USub(), ast.Constant(value)):
                return f"({self.literal(-value)})", False
            case ast.UnaryOp(op, operand) if self._kind == "int2":
                return f"l_{'neg' if isinstance(op, ast.USub) else 'not'}({self.number(operand)})", False
            case ast.UnaryOp(op, operand):
                return f"({'-' if isinstance(op, ast.USub) else '~'}{self.number(operand)})", False
            case ast.BinOp(left, op, right):
                return self._operation(left, op, right)
            case ast.Compare(left, [op], [right]):
                if self._kind == "bool":
                    return f"({self.boolean(left)} {_COMPARISONS[type(op)]} {self.boolean(right)})", True
                if self._kind == "int2":
                    return f"{self._prefix}_{_NAMES[type(op)]}({self.number(left)}, {self.number(right)})", True
                return f"({self.number(left)} {_COMPARISONS[type(op)]} {self.number(right)})", True
            case ast.Call(ast.Name("where"), [condition, yes, no]):
                if self._kind == "bool":
                    return f"({self.boolean(condition)} ? {self.boolean(yes)} : {self.boolean(no)})", True
                return f"({self.boolean(condition)} ? {self.number(yes)} : {self.number(no)})", False
            case ast.Call(ast.Name(function), arguments):
                text = f"{self._prefix}_{function}({', '.join(map(self.number, arguments))})"
                return text, function in _PREDICATES
        raise ValueError(f"an expression can't hold {ast.dump(node)}")

    def _operation(self, left: ast.expr, op: ast.operator, right: ast.expr) -> tuple[str, bool]:
        if type(op) in _LOGIC and self.write(left)[1] and self.write(right)[1]:
            return f"({self.boolean(left)} {_LOGIC[type(op)]} {self.boolean(right)})", True
        if self._kind == "int2":
            return f"l_{_CALLS[type(op)]}({self.number(left)}, {self.number(right)})", False
        return f"({self.number(left)} {_OPERATORS[type(op)]} {self.number(right)})", False


def c_expression(text: str, compute: str, names: Mapping[str, tuple[str, bool]]) -> tuple[str, bool]:
    """An expression computed in the dtype `compute`, as C, and whether that is a boolean. names: C of each name, and whether it is one."""
    kind, prefix = COMPUTES[compute]
    return _Writer(kind, prefix, names).write(ast.parse(text, mode="eval").body)
