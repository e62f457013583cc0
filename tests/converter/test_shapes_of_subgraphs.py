"""Shapes in the bodies of If, Loop and Scan where the model says nothing of them: enough to recognise ops, never more than is so."""

from __future__ import annotations

import onnx
import pytest

from mnnx.converter.frontends.onnx.importer import import_model
from mnnx.converter.inference import infer_node
from tests.converter.control_flow import check, ops_of
from tests.converter.filled import filled

WEIGHTS = (
    "<bool yes = {1}, float two = {2}, float eps = {0.00001}, int64[1] last = {-1}, int64[1] first = {0}, int64 zero = {0}, float[4,4] k4>"
)
LAYER_NORM = "m = ReduceMean(s, last) e = Sub(s, m) p = Pow(e, two) v = ReduceMean(p, last) w = Add(v, eps) q = Sqrt(w) n = Div(e, q)"

#: (inputs and outputs, nodes, ops of all graphs that level 2 leaves, shapes of feeds; numbers are trip counts)
RECOGNISED = {
    "the state of a Loop": (
        "int64 k, float[N,4] x) => (float[N,4] y",
        f"y = Loop(k, yes, x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t) {{ {LAYER_NORM} t = Neg(n) d = Identity(c) }}>",
        {"Loop": 1, "LayerNormalization": 1, "Neg": 1, "Identity": 1},
        [{"k": k, "x": (rows, 4)} for k in (0, 1, 3) for rows in (1, 3)],
    ),
    "states that change places": (
        "int64 k, float[N,4] x, float[N,4] z) => (float[N,4] y, float[N,4] u",
        f"""y, u = Loop(k, yes, x, z) <body = b (int64 i, bool c, float[] s, float[] r) => (bool d, float[] r2, float[] t)
            {{ {LAYER_NORM} t = Add(n, r) r2 = Identity(r) d = Identity(c) }}>""",
        {"Loop": 1, "LayerNormalization": 1, "Add": 1, "Identity": 2},
        [{"k": k, "x": (2, 4), "z": (2, 4)} for k in (0, 1, 2, 3)],
    ),
    "slices of a Scan along its middle": (
        "float[4] h, float[4,N,3] x) => (float[4] y, float[3,N,4] z",
        f"""y, z = Scan<num_scan_inputs = 1, scan_input_axes = [-2], scan_output_axes = [1], body = b (float[] h0, float[] u) =>
              (float[] h1, float[] o)
            {{ s = Transpose<perm = [1, 0]>(u) {LAYER_NORM} o = Neg(n) a = ReduceMax<keepdims = 0>(n, first) h1 = Add(a, h0) }}>(h, x)""",
        {"Scan": 1, "Transpose": 1, "LayerNormalization": 1, "Neg": 1, "ReduceMax": 1, "Add": 1},
        [{"h": (4,), "x": (4, rows, 3)} for rows in (1, 5)],
    ),
    "what a Loop leaves": (
        "int64 k, float[N,4] x) => (float[N,4] y",
        f"""s = Loop(k, yes, x) <body = b (int64 i, bool c, float[] r) => (bool d, float[] t) {{ t = Exp(r) d = Identity(c) }}>
            {LAYER_NORM} y = Neg(n)""",
        {"Loop": 1, "Exp": 1, "Identity": 1, "LayerNormalization": 1, "Neg": 1},
        [{"k": k, "x": (2, 4)} for k in (0, 2)],
    ),
    "what a Loop stacks": (
        "int64 k, float[2,4] x) => (float[K,2,4] y",
        f"""o, s = Loop(k, yes, x) <body = b (int64 i, bool c, float[] r) => (bool d, float[] t, float[] u)
              {{ t = Sin(r) u = Cos(t) d = Identity(c) }}> {LAYER_NORM} y = Neg(n)""",
        {"Loop": 1, "Sin": 1, "Cos": 1, "Identity": 1, "LayerNormalization": 1, "Neg": 1},
        [{"k": k, "x": (2, 4)} for k in (1, 2)],
    ),
    "what both branches of an If give": (
        "bool go, float[N,4] x) => (float[N,4] y",
        f"""s = If(go) <then_branch = t () => (float[] o) {{ o = Exp(x) }},
                        else_branch = f () => (float[] o) {{ o = Concat<axis = 0>(x, x) }}>
            {LAYER_NORM} y = Neg(n)""",
        {"If": 1, "Exp": 1, "Concat": 1, "LayerNormalization": 1, "Neg": 1},
        [{"go": go, "x": (3, 4)} for go in (True, False)],
    ),
    "a recurrence that begins with zeros of a computed shape": (
        "float[T,N,4] x) => (float[N,4] y",
        """rows = Shape<start = 1, end = 2>(x) four = Constant<value = int64[1] {4}>() dims = Concat<axis = 0>(rows, four)
           h = ConstantOfShape(dims) length = Shape<start = 0, end = 1>(x) steps = Squeeze(length)
           y = Loop(steps, yes, h) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t)
             { o = Shape(s) ones = ConstantOfShape<value = float[1] {1}>(o) kept = Mul(s, ones) p = MatMul(kept, k4) x0 = Gather(x, i)
               a = Add(x0, p) t = Tanh(a) d = Identity(c) }>""",
        {"Shape": 2, "Concat": 1, "ConstantOfShape": 1, "Squeeze": 1, "Loop": 1, "Gather": 1, "mnnx::FusedMatMul": 1, "Identity": 1},
        [{"x": (steps, rows, 4)} for steps in (1, 3) for rows in (1, 2)],
    ),
    "a Loop in an If in a Scan": (
        "int64 k, bool go, float[4] h, float[N,4] x) => (float[4] y",
        f"""y = Scan<num_scan_inputs = 1, body = b (float[] h0, float[] u) => (float[4] h1) {{
              h1 = If(go) <then_branch = t () => (float[] o) {{
                               o = Loop(k, yes, h0) <body = l (int64 i, bool c, float[] s) => (bool d, float[] r)
                                   {{ {LAYER_NORM} r = Add(n, u) d = Identity(c) }}> }},
                           else_branch = f () => (float[] o) {{ o = Add(h0, u) }}> }}>(h, x)""",
        {"Scan": 1, "If": 1, "Loop": 1, "LayerNormalization": 1, "Add": 2, "Identity": 1},
        [{"k": k, "go": go, "h": (4,), "x": (2, 4)} for k in (0, 2) for go in (True, False)],
    ),
}

#: (inputs and outputs, nodes, shapes of feeds): states whose shapes change, with what folding would make of wrong ones.
CHANGING = {
    "a state that grows": (
        "int64 k, float[1,4] x) => (float[A,4] y, int64[K] sizes",
        """y, sizes = Loop(k, yes, x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t, int64 o)
            { t = Concat<axis = 0>(s, s) h = Shape(s) o = Gather(h, zero) d = Identity(c) }>""",
        [{"k": k, "x": (1, 4)} for k in (1, 3)],
    ),
    "a state that is called like an input, and grows": (
        "int64 k, float[N] x, float[Z] z) => (float[A] y, float[B] w",
        """y, w = Loop(k, yes, x, z) <body = b (int64 i, bool c, float[N] s, float[N] r) => (bool d, float[N] t, float[N] u)
            { t = Concat<axis = 0>(s, z) h = Shape(t) e = Expand(two, h) g = Shape(s) f = Expand(two, g) a = Add(s, f)
              q = ReduceSum<keepdims = 0>(a) b1 = ReduceSum<keepdims = 0>(e) m = Add(q, b1) u = Add(r, m) d = Identity(c) }>""",
        [{"k": k, "x": (1,), "z": (rows,)} for k in (0, 1, 3) for rows in (1, 2)],
    ),
    "a state that grows when another has grown": (
        "int64 k, float[2] x) => (float[A] y, float[B] w, float[C] v, int64[K,1] sizes",
        """y, w, v, sizes = Loop(k, yes, x, x, x) <body = b (int64 i, bool c, float[] s, float[] q, float[] r) =>
              (bool d, float[] t, float[] u, float[] r2, int64[] size)
            { t = Neg(q) u = Concat<axis = 0>(q, r) r2 = Neg(s) size = Shape(s) d = Identity(c) }>""",
        [{"k": k, "x": (2,)} for k in (1, 2, 4)],
    ),
    "a state that broadcasts": (
        "int64 k, float[1,4] x, float[N,4] z) => (float[A,4] y, int64[K] sizes",
        """y, sizes = Loop(k, yes, x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t, int64 o)
            { t = Add(s, z) h = Shape(s) o = Gather(h, zero) d = Identity(c) }>""",
        [{"k": k, "x": (1, 4), "z": (rows, 4)} for k in (1, 3) for rows in (1, 3)],
    ),
    "a state that shrinks": (
        "int64 k, float[N] x) => (float[A] y, int64[1] size",
        """one = Neg(last) y = Loop(k, yes, x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t)
            { h = Shape(s) t = Slice(s, one, h) d = Identity(c) }> size = Shape(y)""",
        [{"k": k, "x": (5,)} for k in (0, 1, 3, 7)],
    ),
    "a state of changing rank": (
        "int64 k, float[2] x) => (float[A] y, int64 rank",
        """z = Loop(k, yes, x) <body = b (int64 i, bool c, float[] s) => (bool d, float[] t) { t = Unsqueeze(s, first) d = Identity(c) }>
            y = Reshape(z, last) h = Shape(z) rank = Size(h)""",
        [{"k": k, "x": (2,)} for k in (0, 1, 3)],
    ),
    "a state that is made of a sequence": (
        "int64 k, float[2,3] x) => (float[A,3] y, int64[K] sizes",
        """e = SequenceConstruct(x)
           q, a, sizes = Loop(k, yes, e, x) <body = b (int64 i, bool c, seq(float[]) s, float[] r) =>
              (bool d, seq(float[]) t, float[] u, int64 size)
            { l = Squeeze(last) p = SequenceAt(s, l) j = Concat<axis = 0>(p, r) t = SequenceInsert(s, j) u = Neg(p)
              h = Shape(p) size = Gather(h, zero) d = Identity(c) }>
           y = ConcatFromSequence<axis = 0>(q)""",
        [{"k": k, "x": (2, 3)} for k in (1, 3)],
    ),
    "branches of different shapes": (
        "bool go, float[2,4] x) => (int64[1] size, float[A] y",
        """z = If(go) <then_branch = t () => (float[] o) { o = Exp(x) }, else_branch = e () => (float[] o) { o = Concat<axis = 0>(x, x) }>
           size = Shape<end = 1>(z) y = Reshape(z, last)""",
        [{"go": go, "x": (2, 4)} for go in (True, False)],
    ),
    "branches whose values are called alike": (
        "float[N,4] x, float[M,4] z) => (float[A] y",
        """a = If(yes) <then_branch = t () => (float[] o) { u = Neg(x) o = Concat<axis = 0>(x, u) },
                        else_branch = e () => (float[] o) { o = Identity(x) }>
           b = If(yes) <then_branch = t2 () => (float[] o) { u = Neg(z) o = Concat<axis = 0>(z, u, z) },
                        else_branch = e2 () => (float[] o) { o = Identity(z) }>
           s = Shape<start = 0, end = 1>(a) h = Concat<axis = 0>(s, last) r = Reshape(b, h) y = Reshape(r, last)""",
        [{"x": (rows, 4), "z": (others, 4)} for rows, others in ((2, 4), (3, 2), (1, 4))],
    ),
}


def _model(head: str, nodes: str) -> onnx.ModelProto:
    return filled(f"agraph ({head}) {WEIGHTS} {{ {nodes} }}")


@pytest.mark.parametrize("name", RECOGNISED)
def test_ops_are_recognised_by_inferred_shapes(name: str, session_of) -> None:
    head, nodes, ops, feeds = RECOGNISED[name]
    model = _model(head, nodes)
    session = session_of(model)
    assert ops_of(session.interpreter.model.graphs[0]) == ops
    check(model, session, [*feeds, *feeds])


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("name", CHANGING)
def test_shapes_that_change_stay_open(name: str, level: int, session_of) -> None:
    head, nodes, feeds = CHANGING[name]
    model = _model(head, nodes)
    check(model, session_of(model, level=level), [*feeds, *feeds])


def test_what_holds_in_all_iterations_is_known_of_a_loop_and_nothing_else() -> None:
    model = _model(
        "int64 k, float[N,4] x, float[3,4] z, float[1,4] one) => (float[] a, float[] b, float[] g, float[] r, float[] all",
        """a, b, g, r, all = Loop(k, yes, x, z, one, x) <body = l (int64 i, bool c, float[] s, float[] t, float[] u, float[] v) =>
              (bool d, float[] s2, float[] t2, float[] u2, float[] v2, float[] o)
            { s2 = Neg(s) t2 = Exp(t) u2 = Concat<axis = 0>(u, t) v2 = Unsqueeze(v, first) o = Add(t, two) d = Identity(c) }>""",
    )
    graph = import_model(model).graph
    for node in graph.nodes:
        infer_node(node)
    body = next(node.op.body for node in graph.nodes if node.op.name == "Loop")
    assert [value.shape for value in graph.outputs[:2]] == [("N", 4), (3, 4)]
    assert [value.shape for value in body.inputs[:4]] == [(), (), ("N", 4), (3, 4)]
    assert body.inputs[4].shape[1:] == (4,)
    assert isinstance(body.inputs[4].shape[0], str)
    assert body.inputs[4].shape[0] != graph.outputs[2].shape[0] != "N"
    assert body.inputs[5].shape is graph.outputs[3].shape is None
    assert graph.outputs[4].shape[1:] == (3, 4)
    assert isinstance(graph.outputs[4].shape[0], str)
