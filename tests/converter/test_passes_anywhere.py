"""Patterns that passes recognise, where shapes are fixed, where dims are open, and in the subgraphs of If, Loop and Scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from mnnx.schema.model import Graph
from tests.converter.filled import filled

#: what → (x's dims, the same with names, constants, nodes that make r from s, ops that are left of these); r has s's shape.
PATTERNS = {
    "LayerNormalization": (
        ("2,5,8", "N,S,8"),
        "int64[1] last = {-1}, float two = {2}, float e = {1e-5}, float[8] g, float[8] b",
        """m = ReduceMean(s, last) d = Sub(s, m) q = Pow(d, two) v = ReduceMean(q, last) w = Add(v, e) h = Sqrt(w) n = Div(d, h)
        p = Mul(n, g) r = Add(p, b)""",
        {"LayerNormalization": 1},
    ),
    "RMSNormalization": (
        ("2,5,8", "N,S,8"),
        "int64[1] last = {-1}, float two = {2}, float e = {1e-5}, float[8] g",
        "q = Pow(s, two) v = ReduceMean(q, last) w = Add(v, e) h = Sqrt(w) i = Reciprocal(h) n = Mul(s, i) r = Mul(g, n)",
        {"RMSNormalization": 1},
    ),
    "GroupNormalization": (
        ("2,6,3,4", "N,6,H,W"),
        "int64[3] groups = {0, 2, -1}, float[2] u, float[2] z, float[6,1,1] g, float[6,1,1] b",
        """a = Reshape(s, groups) n = InstanceNormalization(a, u, z) t = Shape(s) c = Reshape(n, t) p = Mul(c, g) r = Add(p, b)""",
        {"GroupNormalization": 1},
    ),
    "GroupNormalization of single channels": (
        ("2,6,3,4", "N,6,H,W"),
        "int64[3] groups = {0, 6, -1}, float[6] u, float[6] z, float[6,1,1] g, float[6,1,1] b",
        """a = Reshape(s, groups) n = InstanceNormalization(a, u, z) t = Shape(s) c = Reshape(n, t) p = Mul(c, g) r = Add(p, b)""",
        {"InstanceNormalization": 1},
    ),
    "InstanceNormalization with a scale and shift of its own": (
        ("2,6,5", "N,6,L"),
        "int64[3] groups = {0, 6, -1}, float[6] u, float[6] z, float[6,1] g, float[6,1] b",
        "a = Reshape(s, groups) n = InstanceNormalization(a, u, z) p = Mul(n, g) r = Add(p, b)",
        {"InstanceNormalization": 1},
    ),
    "RotaryEmbedding": (
        ("2,3,5,8", "N,3,S,8"),
        "int64[1] zero = {0}, int64[1] half = {4}, int64[1] end = {9223372036854775807}, int64[1] last = {-1}, int64[1] heads = {1}",
        """i = Slice(s, zero, half, last) f = ReduceMean<keepdims = 0>(i, heads) e = Concat<axis = -1>(f, f) c0 = Cos(e) s0 = Sin(e)
        c = Unsqueeze(c0, heads) z = Unsqueeze(s0, heads) a = Slice(s, zero, half, last) b = Slice(s, half, end, last) n = Neg(b)
        t = Concat<axis = -1>(n, a) p = Mul(s, c) q = Mul(t, z) r = Add(p, q)""",
        {"Slice": 1, "ReduceMean": 1, "Cos": 1, "Sin": 1, "RotaryEmbedding": 1},
    ),
    "Gelu": (
        ("2,9", "N,S"),
        "float root = {1.4142135}, float one = {1}, float half = {0.5}",
        "d = Div(s, root) e = Erf(d) a = Add(e, one) p = Mul(s, a) r = Mul(p, half)",
        {"Gelu": 1},
    ),
    "Swish": (("2,9", "N,S"), "", "g = Sigmoid(s) r = Mul(s, g)", {"Swish": 1}),
    "HardSwish": (
        ("2,9", "N,S"),
        "float three = {3}, float low = {0}, float six = {6}",
        "a = Add(s, three) c = Clip(a, low, six) p = Mul(s, c) r = Div(p, six)",
        {"HardSwish": 1},
    ),
    "BatchNormalization after Conv": (
        ("2,4,5,6", "N,4,H,W"),
        "float[4,4,3,3] w, float[4] g, float[4] b, float[4] m, float[4] v",
        "c = Conv<pads = [1, 1, 1, 1]>(s, w) n = BatchNormalization(c, g, b, m, v) r = Relu(n)",
        {"mnnx::FusedConv": 1},
    ),
    "factor and shift around MatMul": (
        ("2,5,8", "N,S,8"),
        "float[8,8] w, float[8] f, float[8] g, float[8] b",
        "i = Mul(s, f) p = MatMul(i, w) q = Mul(p, g) r = Add(q, b)",
        {"mnnx::FusedMatMul": 1},
    ),
    "activation after Gemm": (
        ("5,8", "N,8"),
        "float[8,8] w, float[8] b",
        "p = Gemm<transB = 1>(s, w, b) r = Tanh(p)",
        {"mnnx::FusedMatMul": 1},
    ),
    "attention": (
        ("2,3,5,8", "N,H,S,8"),
        "float scale = {0.35}",
        """t = Transpose<perm = [0, 1, 3, 2]>(s) p = MatMul(s, t) q = Mul(p, scale) w = Softmax<axis = -1>(q) r = MatMul(w, s)""",
        {"mnnx::FusedAttention": 1},
    ),
}

#: where → the model around a pattern; the nodes of the innermost graph are the pattern's.
PLACES = {
    "fixed": "agraph (float[{fixed}] s) => (float[{fixed}] r) {constants} {{ {nodes} }}",
    "open": "agraph (float[{open}] s) => (float[{open}] r) {constants} {{ {nodes} }}",
    "If": """agraph (float[{open}] s, bool c) => (float[{open}] y) {constants}
        {{ y = If(c) <then_branch = t () => (float[{open}] r) {{ {nodes} }},
            else_branch = e () => (float[{open}] o) {{ o = Neg(s) }}> }}""",
    "Loop": """agraph (float[{open}] x, int64 n, bool c) => (float[{open}] y) {constants}
        {{ y = Loop(n, c, x) <body = b (int64 number, bool go, float[{open}] s) => (bool on, float[{open}] r)
            {{ on = Identity(go) {nodes} }}> }}""",
    "captured by a Loop": """agraph (float[{open}] s, int64 n, bool c) => (float[{open}] y) {constants}
        {{ y = Loop(n, c, s) <body = b (int64 number, bool go, float[{open}] sum) => (bool on, float[{open}] more)
            {{ on = Identity(go) {nodes} more = Add(sum, r) }}> }}""",
    "Scan": """agraph (float[{open}] x, float[3,1] z) => (float[{open}] y) {constants}
        {{ y, k = Scan<num_scan_inputs = 1, body = b (float[{open}] s, float[1] j) => (float[{open}] r, float[1] l)
            {{ l = Neg(j) {nodes} }}>(x, z) }}""",
}


def model_of(name: str, place: str) -> onnx.ModelProto:
    (fixed, opened), constants, nodes, _ = PATTERNS[name]
    text = PLACES[place].format(fixed=fixed, open=opened, constants=f"<{constants}>" if constants else "", nodes=nodes)
    return filled(text)


#: Ops of the places themselves.
AROUND = ("If", "Loop", "Scan", "Identity", "Neg", "Cast", "Add")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", PATTERNS)
def test_pattern_is_recognised_anywhere(name: str, place: str, session_of) -> None:
    model, left = model_of(name, place), PATTERNS[name][3]
    session = session_of(model)
    ops = Counter(node.op.name for graph in graphs_of(session.interpreter.model.graphs[0]) for node in graph.nodes)
    assert {op: count for op, count in ops.items() if op not in AROUND} == left
    rng = np.random.default_rng(5)
    array = rng.standard_normal([int(n) for n in PATTERNS[name][0][0].split(",")]).astype(np.float32)
    choices = {"n": (2, 0), "c": (True, False)}
    for i in range(2):
        feed = {key: np.array(choices[key][i]) if key in choices else array for key in session.inputs}
        if "z" in feed:
            feed["z"] = np.ones((3, 1), np.float32)
        wanted = ReferenceEvaluator(model).run(None, feed)
        for got, expected in zip(session.run(feed).values(), wanted, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def graphs_of(graph: Graph) -> Iterator[Graph]:
    """A graph and its subgraphs."""
    yield graph
    for node in graph.nodes:
        for value in (getattr(node.op, key) for key in node.op.fields):
            if isinstance(value, Graph):
                yield from graphs_of(value)
