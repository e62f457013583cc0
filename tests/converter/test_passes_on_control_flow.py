"""What passes do with subgraphs: what these capture in vain, states that never change, constants of a branch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import mnnx
from tests.converter.filled import filled

#: Control flow that captures e, which only a node without users looks at, and f, which is needed: (model, inputs of the op that stay).
CAPTURES = {
    "If": (
        """agraph (float[2] x, float[2] f, bool c) => (float[2] y)
        { e = Exp(x)
          y = If(c) <then_branch = t () => (float[2] p) { d = Neg(e) p = Abs(f) },
                     else_branch = n () => (float[2] q) { r = Sqrt(e) q = Neg(f) }> }""",
        2,
    ),
    "nested If": (
        """agraph (float[2] x, float[2] f, bool c) => (float[2] y)
        { e = Exp(x)
          y = If(c) <then_branch = t () => (float[2] p) {
                         p = If(c) <then_branch = tt () => (float[2] pp) { d = Neg(e) pp = Abs(f) },
                                    else_branch = tn () => (float[2] pq) { pq = Identity(f) }>
                     },
                     else_branch = n () => (float[2] q) { q = Neg(f) }> }""",
        3,
    ),
    "Loop": (
        """agraph (float[2] x, float[2] f, bool c) => (float[2] y)
        <int64 n = {3}>
        { e = Exp(x)
          y = Loop(n, c, x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t)
            { d = Neg(e) t = Add(s, f) on = Identity(go) }> }""",
        4,
    ),
    "Scan": (
        """agraph (float[2] x, float[2] f, bool c) => (float y, float[2] z)
        <float zero = {0}>
        { e = Exp(x)
          y, z = Scan<num_scan_inputs = 1, body = b (float s, float i) => (float t, float o)
            { d = Neg(e) m = ReduceMax<keepdims = 0>(f) t = Add(s, i) o = Mul(t, m) }>(zero, x) }""",
        3,
    ),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_what_a_subgraph_captures_in_vain_is_not_computed(name: str, session_of) -> None:
    text, inputs = CAPTURES[name]
    model = filled(text)
    session = session_of(model, level=0)
    (node,) = session.interpreter.model.graphs[0].nodes
    assert (node.op.name, len(node.inputs)) == (name.split()[-1], inputs)
    for choice in (True, False):
        feed = {"x": np.array([1, 2], np.float32), "f": np.array([-3, 5], np.float32), "c": np.array(choice)}
        wanted = ReferenceEvaluator(model).run(None, feed)
        for got, array in zip(session_of(model).run(feed).values(), wanted, strict=True):
            np.testing.assert_allclose(got, array, rtol=1e-6)


#: Loops that give states back as they get them: (model, what loop-states counts, states that are left, ops of the body that are left).
UNCHANGED_STATES = {
    "Loop": (
        """agraph (float[2] x, float[2] f, int64 n) => (float[2] y, float[2] z, float[2] same)
        <float[2] w, bool yes = {1}>
        { y, z, same, again = Loop(n, yes, x, f, f, w) <body = b (int64 i, bool go, float[2] s, float[2] u, float[2] v, float[2] w1) =>
              (bool on, float[2] t, float[2] u2, float[2] v2, float[2] w2)
            { e = Exp(w1) a = Mul(u, e) t = Add(s, a) u2 = Identity(u) v2 = Identity(v) w2 = Identity(w1) on = Identity(go) }> }""",
        {"unchanged state of Loop": 3},
        1,
        {"Mul": 1, "Add": 1, "Identity": 1},
    ),
    "Scan": (
        """agraph (float[2] x, float[2] f, float[3,2] n) => (float[2] y, float[2] z, float[3,2] same)
        { y, z, same = Scan<num_scan_inputs = 1, body = b (float[2] s, float[2] u, float[2] i) => (float[2] t, float[2] u2, float[2] o)
            { t = Add(s, i) u2 = Identity(u) o = Mul(t, u) }>(x, f, n) }""",
        {"unchanged state of Scan": 1},
        1,
        {"Add": 1, "Mul": 1},
    ),
}


@pytest.mark.parametrize("name", UNCHANGED_STATES)
def test_an_unchanged_state_becomes_a_capture(name: str, session_of, tmp_path: Path) -> None:
    text, counts, states, ops = UNCHANGED_STATES[name]
    model = filled(text)
    report = mnnx.convert(model, tmp_path / "m.mnnx")
    assert {result.name: result.counts for result in report.passes}["loop-states"] == counts
    session = session_of(model)
    op = next(node.op for node in session.interpreter.model.graphs[0].nodes if node.op.name == name)
    assert (op.states, Counter(node.op.name for node in op.body.nodes)) == (states, ops)
    feed = {"x": np.array([1, 2], np.float32), "f": np.array([-3, 5], np.float32)}
    for n in (3, 0) if name == "Loop" else (np.arange(6, dtype=np.float32).reshape(3, 2),):
        wanted = ReferenceEvaluator(model).run(None, feed | {"n": np.array(n)})
        for got, array in zip(session.run(feed | {"n": np.array(n)}).values(), wanted, strict=True):
            np.testing.assert_allclose(got, array, rtol=1e-6)


def test_a_constant_that_a_branch_captures_is_folded_there(session_of) -> None:
    model = filled(
        """agraph (float[2] x, bool c) => (float[2] y) <float[2] w>
        { e = Exp(w)
          y = If(c) <then_branch = t () => (float[2] p) { s = Sqrt(e) p = Add(x, s) },
                     else_branch = n () => (float[2] q) { q = Mul(x, e) }> }"""
    )
    session = session_of(model)
    (node,) = session.interpreter.model.graphs[0].nodes
    assert (len(node.inputs), [n.op.name for n in node.op.then_branch.nodes]) == (2, ["Add"])
    for choice in (True, False):
        feed = {"x": np.array([1, 2], np.float32), "c": np.array(choice)}
        np.testing.assert_allclose(session.run(feed)["y"], ReferenceEvaluator(model).run(None, feed)[0], rtol=1e-6)
