"""One kernel per elementwise expression: `backends/elementwise.py` says what expressions mean."""

import ast
import itertools

import numpy as np

from mnnx.backends.cpu.kernels import intrinsics
from mnnx.backends.cpu.kernels.chain_words import GRAIN
from mnnx.backends.cpu.kernels.intrinsics import load_f64, load_i64, pointer_to, share, store_out
from mnnx.backends.cpu.kernels.math import by_dtype
from mnnx.backends.cpu.kernels.registry import kernel_factory

_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
_PREDICATES = {"isnan", "isinf"}


def _plain(dtype: str) -> type:
    return np.uint8 if dtype == "bool" else np.dtype(dtype).type


class _Source(ast.NodeVisitor):
    """Turns an expression into statements on typed temporaries; `visit` gives the name of a value and whether it is a boolean."""

    def __init__(self, compute: str, names: dict[str, tuple[str, bool]]):
        self.compute = compute
        self.names = names
        self.lines: list[str] = []
        self.globals = {f"f_{name}": function for name, function in by_dtype(compute).items()} | {"T": _plain(compute)}
        self._numbers = itertools.count()

    def assign(self, text: str, boolean: bool = False) -> tuple[str, bool]:
        name = f"t{next(self._numbers)}"
        self.lines.append(f"{name} = {text}" if boolean else f"{name} = T({text})")
        return name, boolean

    def number(self, node: ast.expr) -> str:
        """The node's value in the compute dtype."""
        name, boolean = self.visit(node)
        return self.assign(name)[0] if boolean else name

    def boolean(self, node: ast.expr) -> str:
        name, boolean = self.visit(node)
        return name if boolean else self.assign(f"{name} != T(0)", True)[0]

    def visit_Name(self, node: ast.Name) -> tuple[str, bool]:
        return self.names[node.id]

    def visit_Constant(self, node: ast.Constant) -> tuple[str, bool]:
        name = f"k{next(self._numbers)}"
        self.globals[name] = _plain(self.compute)(node.value)
        return name, False

    def visit_UnaryOp(self, node: ast.UnaryOp) -> tuple[str, bool]:
        if isinstance(node.operand, ast.Constant) and isinstance(node.op, ast.USub):
            return self.visit_Constant(ast.Constant(-node.operand.value))
        return self.assign(f"{'-' if isinstance(node.op, ast.USub) else '~'}{self.number(node.operand)}")

    def visit_BinOp(self, node: ast.BinOp) -> tuple[str, bool]:
        left, right = self.visit(node.left), self.visit(node.right)
        if left[1] and right[1]:
            return self.assign(f"{left[0]} {_OPERATORS[type(node.op)]} {right[0]}", True)
        return self.assign(f"{self.number(node.left)} {_OPERATORS[type(node.op)]} {self.number(node.right)}")

    def visit_Compare(self, node: ast.Compare) -> tuple[str, bool]:
        return self.assign(f"{self.number(node.left)} {_COMPARISONS[type(node.ops[0])]} {self.number(node.comparators[0])}", True)

    def visit_Call(self, node: ast.Call) -> tuple[str, bool]:
        function = node.func.id
        if function == "where":
            condition = self.boolean(node.args[0])
            return self.assign(f"f_where({condition}, {self.number(node.args[1])}, {self.number(node.args[2])})")
        arguments = ", ".join(self.number(argument) for argument in node.args)
        return self.assign(f"f_{function}({arguments})", function in _PREDICATES)


def _converted(name: str, boolean: bool, compute: str, result: str) -> str:
    """A value as C converts it to the dtype `result`."""
    if result == "bool":
        return f"np_uint8({name})" if boolean else f"np_uint8({name} != T(0))"
    kind = np.dtype(result)
    if boolean or np.dtype(compute).kind != "f" or kind.kind == "f" or kind.itemsize == 8:
        return f"R({name})"
    return f"R(np_int64({name}))"


@kernel_factory("elementwise", unroll=False)
def make(
    text: str,
    letters: str,
    attributes: tuple[str, ...],
    compute: str,
    inputs: tuple[str, ...],
    steps: str,
    result: str,
    columns: int = 0,
):
    """y[i] = expression of the inputs' elements, which broadcast. `columns`: how many there are, where that is a power of two up to 64.

    Arguments: y, elements, columns, rows, planes' rank; per input its address, elements from row to row; then a float64 per attribute;
    then per dim of planes (outermost first) its size, and per input the elements from one index to the next. An element's column is
    its index modulo `columns`, its row the index of its column's start in units of them modulo `rows`. Per input `steps` has "c" where
    elements lie side by side within a row, "s" where there is one for the whole row.
    """
    count = len(letters)
    names = {name: (f"a_{name}", False) for name in attributes}
    loads, before = [], []
    for index, (letter, dtype, step) in enumerate(zip(letters, inputs, steps, strict=True)):
        boolean = dtype == "bool" and compute != "bool"
        place = f"load_in(x{index}, {'i' if step == 'c' else 'zero'})"
        line = f"v{index} = {place} != zero8" if boolean else f"v{index} = T({place})"
        (loads if step == "c" else before).append(line)
        names[letter] = (f"v{index}", boolean)
    source = _Source(compute, names)
    value, boolean = source.visit(ast.parse(text, mode="eval").body)
    body = [*loads, *source.lines, f"store_out(y, i, {_converted(value, boolean, compute, result)})"]
    first = 40  # bytes before the inputs' part of the argument block
    each = range(count)
    program = f"""
def run(args, part, parts):
    total, columns, rows = load_i64(args + 8), {columns or "load_i64(args + 16)"}, load_i64(args + 24)
    y_start, rank = load_i64(args), load_i64(args + 32)
    {"; ".join(f"b{n}, s{n} = load_i64(args + {first + 16 * n}), load_i64(args + {first + 8 + 16 * n})" for n in each)}
    {"; ".join(f"a_{name} = T(load_f64(args + {first + 16 * count + 8 * n}))" for n, name in enumerate(attributes)) or "pass"}
    dims = args + {first + 16 * count + 8 * len(attributes)}
    start, last = share(total, part, parts, {GRAIN})
    while start < last:
        row = quotient(start, columns)
        column = {"zero" if columns else "start - row * columns"}
        plane = quotient(row, rows)
        row -= plane * rows
        {"; ".join(f"o{n} = row * s{n}" for n in each)}
        for d in range(rank - 1, -1, -1):
            at = dims + d * {8 * (1 + count)}
            rest = quotient(plane, load_i64(at))
            index = plane - rest * load_i64(at)
            plane = rest
            {"; ".join(f"o{n} += index * load_i64(at + {8 + 8 * n})" for n in each)}
        for r in range(row, rows):
            length = {columns or "min(columns - column, last - start)"}
            y = y_pointer(y_start + start * {np.dtype(result).itemsize})
            {"; ".join(_pointer_line(n, inputs[n], steps[n]) for n in each)}
            {"; ".join(before) or "pass"}
            for i in range(length):
                {"; ".join(body)}
            {"; ".join(f"o{n} += s{n}" for n in each)}
            start += length
            column = zero
            if start >= last:
                break
"""
    scope = source.globals | {
        "load_i64": load_i64, "load_f64": load_f64, "share": share, "store_out": store_out, "load_in": intrinsics.load_in,
        "quotient": intrinsics.quotient, "R": _plain(result), "np_uint8": np.uint8, "np_int64": np.int64, "zero": np.int64(0),
        "zero8": np.uint8(0), "y_pointer": pointer_to(result), **{f"x{n}_pointer": pointer_to(inputs[n]) for n in each},
    }  # fmt: skip
    exec(compile(program, "<elementwise kernel>", "exec"), scope)
    return scope["run"]


def _pointer_line(n: int, dtype: str, step: str) -> str:
    offset = f"o{n} + column" if step == "c" else f"o{n}"
    return f"x{n} = x{n}_pointer(b{n} + ({offset}) * {np.dtype(dtype).itemsize})"
