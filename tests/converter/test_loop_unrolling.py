"""Loops whose iterations are known become these; what nobody uses of a loop or branch is not computed."""

from __future__ import annotations

import onnx
import pytest

import mnnx
from tests.converter.control_flow import check, ops_of
from tests.converter.filled import filled

HEAD = "<bool yes = {1}, bool no = {0}, int64 none = {0}, int64 once = {1}, int64 thrice = {3}, float half = {0.5}, float[3,4,4] w>"

#: (inputs and outputs, nodes, ops of all graphs that level 2 leaves, shapes of feeds)
UNROLLED = {
    "no iteration": (
        "float[N,4] x) => (float[N,4] y, float[0,2,4] all",
        """y, all = Loop(none, yes, x) <body = b (int64 i, bool c, float[N,4] s) => (bool c2, float[N,4] t, float[2,4] u)
            { c2 = Identity(c) t = Neg(s) h = ReduceMax(t) z = Constant<value = int64[2] {2, 4}>() u = Expand(h, z) }>""",
        {"Identity": 2},
        [{"x": (rows, 4)} for rows in (1, 3)],
    ),
    "a condition that is false": (
        "int64 k, float[N,4] x) => (float[N,4] y",
        """z = Loop(k, no, x) <body = b (int64 i, bool c, float[] s) => (bool c2, float[] t) { c2 = Identity(c) t = Exp(s) }> y = Neg(z)""",
        {"Neg": 1},
        [{"k": 5, "x": (2, 4)}],
    ),
    "one iteration": (
        "float[N,4] x) => (float[N,4] y, float[1,N,4] all, int64[1] numbers",
        """y, all, numbers = Loop(once, yes, x) <body = b (int64 i, bool c, float[] s) => (bool c2, float[] t, float[] u, int64 j)
            { c2 = Identity(c) t = Neg(s) u = Exp(t) j = Identity(i) }>""",
        {"Neg": 1, "Exp": 1, "Unsqueeze": 2},
        [{"x": (rows, 4)} for rows in (1, 3)],
    ),
    "weights that are picked by the iteration": (
        "float[N,4] x) => (float[N,4] y, float[3,N,4] all",
        """y, all = Loop(thrice, yes, x) <body = b (int64 i, bool c, float[] s) => (bool c2, float[] t, float[] u)
            { c2 = Identity(c) v = Gather(w, i) m = MatMul(s, v) t = Relu(m) u = Mul(t, half) }>""",
        {"mnnx::FusedMatMul": 3, "Mul": 3, "Unsqueeze": 3, "Concat": 1},
        [{"x": (rows, 4)} for rows in (1, 3)],
    ),
    "a state that grows": (
        "float[2,4] x) => (float[8,4] y, int64[1] size",
        """y = Loop(thrice, yes, x) <body = b (int64 i, bool c, float[] s) => (bool c2, float[] t)
            { c2 = Identity(c) t = Concat<axis = 0>(s, x) }> size = Shape<end = 1>(y)""",
        {"Concat": 1, "Shape": 1},
        [{"x": (2, 4)}],
    ),
    "a first value that is constant": (
        "float[N,4] x) => (float[N,4] y, float last",
        """last, all = Loop(thrice, yes, half) <body = b (int64 i, bool c, float s) => (bool c2, float t, float u)
            { c2 = Identity(c) t = Add(s, half) u = Mul(s, t) }> z = ReduceSum<keepdims = 0>(all) y = Mul(x, z)""",
        {"Mul": 1, "Identity": 1},
        [{"x": (2, 4)}],
    ),
    "a loop in a loop, and a branch for the first iteration": (
        "float[2,4] x) => (float[A,4] y",
        """y = Loop(thrice, yes, x) <body = b (int64 i, bool c, float[] s) => (bool c2, float[] t)
            { c2 = Identity(c) first = Equal(i, none)
              a = If(first) <then_branch = p () => (float[] o) { o = Neg(s) }, else_branch = q () => (float[] o) { o = Exp(s) }>
              t = Loop(i, yes, a) <body = l (int64 j, bool d, float[] r) => (bool d2, float[] v)
                  { d2 = Identity(d) v = Concat<axis = 0>(r, x) }> }>""",
        {"Neg": 1, "Exp": 2, "Concat": 2},
        [{"x": (2, 4)}],
    ),
}

#: Loops that stay as they are: (inputs and outputs, nodes, what --explain says of it).
KEPT = {
    "an unknown trip count": ("int64 k, float[4] x) => (float[4] y", "k", "c2 = Identity(c) v = Gather(x, i) t = Add(s, v)", "isn't known"),
    "a condition": (
        "float[4] x) => (float[4] y",
        "thrice",
        "m = ReduceMax<keepdims = 0>(s) c2 = Less(m, half) t = Neg(s)",
        "isn't known",
    ),
    "nothing to fold": ("float[4] x) => (float[4] y", "thrice", "c2 = Identity(c) t = Sin(s)", "no shape changes"),
    "chance": ("float[4] x) => (float[4] y", "thrice", "c2 = Identity(c) n = RandomNormalLike(s) t = Mul(n, half)", "random"),
}

#: (inputs and outputs, nodes, ops of all graphs that level 0 leaves, shapes of feeds)
UNUSED = {
    "a state and what is stacked of it": (
        "int64 k, float[N,4] x) => (float[N,4] y, float[K,N,4] all",
        """y, a, b, c, all = Loop(k, yes, x, x, x) <body = l (int64 i, bool c, float[N,4] s, float[N,4] r, float[N,4] q) =>
              (bool c2, float[N,4] t, float[N,4] r2, float[N,4] q2, float[N,4] u, float[N,4] v)
            { c2 = Identity(c) t = Neg(s) r2 = Sin(r) q2 = Cos(q) u = Exp(r2) v = Add(q, t) }>""",
        {"Loop": 1, "Identity": 1, "Neg": 1, "Cos": 1, "Add": 1},
        [{"k": 3, "x": (2, 4)}],
    ),
    "a state that the condition needs": (
        "int64 k, float[4] x) => (float[4] y",
        """y, a = Loop(k, yes, x, x) <body = l (int64 i, bool c, float[4] s, float[4] r) => (bool c2, float[4] t, float[4] r2)
            { t = Neg(s) r2 = Add(r, x) m = ReduceMax<keepdims = 0>(r) c2 = Less(m, half) }>""",
        {"Loop": 1, "Neg": 1, "Add": 1, "ReduceMax": 1, "Less": 1},
        [{"k": 4, "x": (4,)}],
    ),
    "a scan output, with its axis": (
        "float[4] h, float[N,4] x) => (float[4,N] y",
        """a, b, y = Scan<num_scan_inputs = 1, scan_output_axes = [0, 1], scan_output_directions = [0, 1],
                           body = l (float[4] s, float[4] e) => (float[4] t, float[4] u, float[4] v)
            { t = Sin(s) u = Exp(t) v = Neg(e) }>(h, x)""",
        {"Scan": 1, "Neg": 1},
        [{"h": (4,), "x": (3, 4)}],
    ),
    "a result of branches": (
        "bool go, float[4] x) => (float[4] y",
        """a, y = If(go) <then_branch = t () => (float[4] p, float[4] q) { p = Exp(x) q = Neg(x) },
                           else_branch = e () => (float[4] p, float[4] q) { q = Sin(x) p = Cos(q) }>""",
        {"If": 1, "Neg": 1, "Sin": 1},
        [{"go": go, "x": (4,)} for go in (True, False)],
    ),
}


def _model(head: str, nodes: str) -> onnx.ModelProto:
    return filled(f"agraph ({head}) {HEAD} {{ {nodes} }}")


@pytest.mark.parametrize("name", UNROLLED)
def test_iterations_take_the_place_of_a_loop(name: str, session_of) -> None:
    head, nodes, ops, feeds = UNROLLED[name]
    model = _model(head, nodes)
    session = session_of(model)
    assert ops_of(session.interpreter.model.graphs[0]) == ops
    for level in (0, 1, 2, 3):
        check(model, session_of(model, level=level), feeds)


@pytest.mark.parametrize("name", KEPT)
def test_other_loops_stay_and_the_pass_says_why(name: str, tmp_path) -> None:
    head, trips, nodes, why = KEPT[name]
    loop = f"y = Loop({trips}, yes, x) <body = b (int64 i, bool c, float[4] s) => (bool c2, float[4] t) {{ {nodes} }}>"
    report = mnnx.convert(_model(head, loop), tmp_path / "m.mnnx", explain="Loop")
    assert report.ops_after["Loop"] == 1
    assert any("unrolling" in line and why in line for line in report.explanation().splitlines())


@pytest.mark.parametrize("name", UNUSED)
def test_what_nobody_uses_of_a_loop_or_branch_is_taken_out(name: str, session_of) -> None:
    head, nodes, ops, feeds = UNUSED[name]
    model = _model(head, nodes)
    session = session_of(model, level=0)
    assert ops_of(session.interpreter.model.graphs[0]) == ops
    check(model, session, feeds)
