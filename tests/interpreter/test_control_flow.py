"""If, Loop and Scan, nested, with captured values, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import mnnx
from mnnx.interpreter.hoisting import hoist
from mnnx.interpreter.pipeline import Pipeline

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'


def check(session, text, feed):
    model = onnx.parser.parse_model(text)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)
    found = session.run(feed)
    for info, array in zip(model.graph.output, wanted, strict=True):
        assert found[info.name].dtype == array.dtype
        assert found[info.name].shape == array.shape, info.name
        np.testing.assert_allclose(found[info.name], array, rtol=1e-5, atol=1e-6, err_msg=info.name)


IF = (
    HEAD
    + """g (bool c, float[n] x, float[n] z) => (float[m] y, float[m] w)
    { a = Neg(x)
      y, w = If(c) <then_branch = t () => (float[m] p, float[m] q) { p = Add(a, z) q = Relu(p) },
                    else_branch = e () => (float[m] r, float[m] s) { r = Concat<axis=0>(a, x) s = Exp(r) }> }"""
)

NESTED_IF = (
    HEAD
    + """g (bool c, bool d, float[n] x) => (float[n] y)
    { a = Neg(x)
      y = If(c) <then_branch = t () => (float[n] p) {
                     b = Exp(a)
                     p = If(d) <then_branch = tt () => (float[n] q) { q = Add(a, b) },
                                else_branch = te () => (float[n] r) { r = Mul(b, x) }>
                 },
                 else_branch = e () => (float[n] s) { s = Identity(x) }> }"""
)

LOOP = (
    HEAD
    + """g (int64 n, bool go, float[2] x, float limit) => (float[2] y, float[k,2] all, int64[k] steps)
    { w = Exp(x)
      y, all, steps = Loop(n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u, int64 j)
        { t = Add(s, w) u = Neg(t) m = ReduceMax<keepdims=0>(t) d = Less(m, limit) j = Add(i, i) }> }"""
)

NESTED_LOOP = (
    HEAD
    + """g (int64 n, int64 m, float[2] x) => (float[2] y, float[k,2] all)
    { y, all = Loop(n, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] copy)
        { f = Cast<to=1>(i) o = Add(x, f)
          t = Loop(m, , s) <body = bb (int64 ii, bool cc, float[2] ss) => (bool dd, float[2] tt)
            { ff = Cast<to=1>(ii) g1 = Add(o, ff) tt = Add(ss, g1) dd = Identity(cc) }>
          copy = Neg(t) d = Identity(c) }> }"""
)

GROWING_LOOP = (
    HEAD
    + """g (int64 n, float[k] x) => (float[m] y)
    { y = Loop(n, , x) <body = b (int64 i, bool c, float[r] s) => (bool d, float[q] t)
        { f = Cast<to=1>(i) z = Constant<value = int64[1] {0}>() u = Unsqueeze(f, z) t = Concat<axis=0>(s, u) d = Identity(c) }> }"""
)

SCAN = (
    HEAD
    + """g (float[2] h, float[n,2] x, float[2] w) => (float[2] y, float[n,2] all)
    { y, all = Scan(h, x) <num_scan_inputs=1, body = b (float[2] s, float[2] e) => (float[2] t, float[2] u)
        { p = Mul(e, w) t = Add(s, p) u = Tanh(t) }> }"""
)

BACKWARD_SCAN = (
    HEAD
    + """g (float[2] h, float[2,n] x) => (float[2] y, float[2,n] all)
    { y, all = Scan(h, x) <num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[1],
                            scan_output_directions=[1],
        body = b (float[2] s, float[2] e) => (float[2] t, float[2] u) { t = Add(s, e) u = Neg(t) }> }"""
)

LOOP_OF_IF = (
    HEAD
    + """g (int64 n, float[2] x) => (float[2] y)
    { y = Loop(n, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t)
        { two = Constant<value = int64 {2}>() r = Mod(i, two) odd = Cast<to=9>(r) d = Identity(c)
          t = If(odd) <then_branch = p () => (float[2] a) { a = Add(s, x) }, else_branch = q () => (float[2] b1) { b1 = Neg(s) }> }> }"""
)

X = np.array([0.5, -1], np.float32)
TRUE, FALSE = np.array(True), np.array(False)


INVARIANTS = (
    HEAD
    + """g (int64 n, float[3,2] x, int64 pick, float[2] z) => (float[2] y, float[k,3] all, float[k,2] same)
    { y, all, same = Loop(n, , z) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[3] u, float[2] v)
        { d = Identity(c) e = Exp(x) row = Gather<axis=0>(e, pick) v = Neg(row)
          h = Shape(e) z0 = Constant<value = int64[1] {0}>() n0 = Gather<axis=0>(h, z0)
          one = Constant<value = float {1}>() r = Expand(one, n0)
          two = Constant<value = int64[2] {2, 3}>() f = Reshape(e, two) m = MatMul(s, f) u = Tanh(m)
          q = ReduceSum<keepdims=0>(r) w = Add(s, row) t = Add(w, q) }> }"""
)

LOOP_TO_THE_END = (
    HEAD
    + """g (int64 n, float limit, float[3] x) => (float[3] y, int64 last, float[k,3] all, int64[k] steps, float[k] one)
    { zero = Constant<value = int64 {0}>()
      y, last, all, steps, one = Loop(n, , x, zero) <body = b (int64 i, bool c, float[3] s, int64 l) =>
            (bool d, float[3] t, int64 j, float[3] u, int64 k, float o)
        { h = Constant<value = float {0.5}>() v = Mul(s, h) t = Add(v, x) u = Sub(t, s) j = Identity(i) k = Mul(i, i)
          f = Cast<to=1>(i) d = Less(f, limit) o = Constant<value = float {1}>() }> }"""
)

EXCHANGED_STATES = (
    HEAD
    + """g (int64 n, float[2] x, float[2] z) => (float[2] a, float[2] b, float[2] last, float[k,2] all)
    { a, b, last, all = Loop(n, , x, z, x) <body = l (int64 i, bool c, float[2] p, float[2] q, float[2] r) =>
            (bool d, float[2] p2, float[2] q2, float[2] r2, float[2] seen)
        { d = Identity(c) p2 = Identity(q) q2 = Identity(p) r2 = Identity(p) seen = Add(p, r) }> }"""
)

FIBONACCI = (
    HEAD
    + """g (int64 n, int64 x, int64 z) => (int64 a, int64 b, int64[k] all)
    { a, b, all = Loop(n, , x, z) <body = l (int64 i, bool c, int64 p, int64 q) => (bool d, int64 q2, int64 s, int64 seen)
        { d = Identity(c) s = Add(p, q) q2 = Identity(q) seen = Identity(p) }> }"""
)

HOST_OP_IN_A_LOOP = (
    HEAD
    + """g (int64 n, float[4] x, float limit) => (float[4] y, float[k,4] all)
    { y, all = Loop(n, , x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t, float[4] u)
        { z = Constant<value = int64 {0}>() t = CumSum(s, z) u = Neg(s) m = ReduceMax<keepdims=0>(t) d = Less(m, limit) }> }"""
)

UNREAD_STATE = (
    HEAD
    + """g (int64 n, float[2] x) => (float[2] y, float[2] z)
    { y, z = Loop(n, , x, x) <body = b (int64 i, bool c, float[2] s, float[2] unread) => (bool d, float[2] t, float[2] w)
        { d = Identity(c) t = Add(s, x) w = Neg(s) }> }"""
)

SCAN_OF_COLUMNS = (
    HEAD
    + """g (float[3] h, float[3,n] x, float[n,2] z) => (float[3] y, float[3,n] all, float[n,3,2] outer)
    { y, all, outer = Scan(h, x, z) <num_scan_inputs=2, scan_input_axes=[1,0], scan_input_directions=[0,1], scan_output_axes=[-1,0],
                                     scan_output_directions=[0,1],
        body = b (float[3] s, float[3] e, float[2] f) => (float[3] t, float[3] u, float[3,2] v)
        { t = Add(s, e) u = Sub(t, e) one = Constant<value = int64[1] {1}>() p = Unsqueeze(t, one) v = Mul(p, f) }> }"""
)

IF_ON_A_SHAPE = (
    HEAD
    + """g (float[n,3] x) => (float[k,3] y, float[n,3] z, float[n,3] w)
    { h = Shape(x) zero = Constant<value = int64 {0}>() four = Constant<value = int64 {4}>() n = Gather(h, zero) few = Less(n, four)
      e = Exp(x)
      y, z, w = If(few) <then_branch = t () => (float[k,3] p, float[n,3] q, float[n,3] q2)
                            { p = Concat<axis=0>(x, e)
                              two = Constant<value = int64 {2}>() pair = Equal(n, two)
                              q = If(pair) <then_branch = tt () => (float[n,3] r) { r = Neg(e) },
                                            else_branch = te () => (float[n,3] r2) { r2 = Identity(x) }>
                              q2 = Identity(q) },
                         else_branch = e () => (float[n,3] a, float[n,3] b, float[n,3] c)
                            { a = Identity(e) b = Neg(x) c = Add(a, b) }> }"""
)

X = np.array([0.5, -1], np.float32)
THREE = np.array([1, -2, 0.25], np.float32)
TRUE, FALSE = np.array(True), np.array(False)


def limit(value):
    return np.array(value, np.float32)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("text", "feeds", "alike"),
    [
        (
            LOOP_TO_THE_END,
            [{"n": np.array(n), "limit": limit(m), "x": THREE} for n, m in ((1, 9), (64, 63), (200, 63), (300, 1e9), (3000, 700), (0, 9))],
            True,
        ),
        (EXCHANGED_STATES, [{"n": np.array(n), "x": X, "z": X + 1} for n in (1, 2, 5, 0)], True),
        (FIBONACCI, [{"n": np.array(n), "x": np.array(0), "z": np.array(1)} for n in (1, 80)], True),
        (HOST_OP_IN_A_LOOP, [{"n": np.array(n), "x": np.ones(4, np.float32), "limit": limit(m)} for n, m in ((3, 99), (50, 99))], True),
        (UNREAD_STATE, [{"n": np.array(n), "x": X} for n in (1, 3)], True),
        (
            SCAN_OF_COLUMNS,
            [{"h": THREE, "x": np.arange(3.0 * n, dtype="f").reshape(3, n), "z": np.ones((n, 2), "f")} for n in (1, 9)],
            True,
        ),
    ],
    ids=["to the end", "exchanged states", "fibonacci", "host op", "unread state", "scan of columns"],
)
def test_repeated_bodies_agree_with_onnxruntime(session_of, monkeypatch, text, feeds, alike, threads, level):
    used = []
    repeat = Pipeline.repeat
    monkeypatch.setattr(Pipeline, "repeat", lambda *args: used.append(args) or repeat(*args))
    session = session_of(text, level=level, num_threads=threads)
    for feed in [*feeds, *feeds]:
        check(session, text, feed)
    assert bool(used) == alike


@pytest.mark.parametrize("level", [0, 2])
def test_what_iterations_have_in_common_is_computed_once(session_of, level):
    session = session_of(INVARIANTS, level=level)
    x = np.arange(6, dtype=np.float32).reshape(3, 2) / 9
    for n, pick in ((4, 1), (1, -3), (0, 2), (0, 7), (3, 0)):  # row 7 is asked for by no iteration
        check(session, INVARIANTS, {"n": np.array(n), "x": x, "pick": np.array(pick), "z": X})
    with pytest.raises(mnnx.InputError, match=r"\(Gather\).*7 is outside"):
        session.run({"n": np.array(1), "x": x, "pick": np.array(7), "z": X})
    seen = []
    feed = {"n": np.array(3), "x": x, "pick": np.array(1), "z": X}
    session.run_with_callbacks(lambda t, i: None, lambda t, i: seen.append(i.type), feed)
    assert seen.count("Exp") == seen.count("Neg") == 3
    body = session.interpreter.model.graphs[0].nodes[0].op.body
    common, rest = hoist(body, 3)
    assert [node.op.name for node in common.nodes] == ["Exp", "Gather"]
    assert not {"Exp"} & {node.op.name for node in rest.nodes}


def test_a_fault_in_a_repeated_body_names_the_op_and_leaves_the_session_usable(session_of):
    text = (
        HEAD
        + """g (int64 n, float[4] x) => (float y, float[k] all)
        { z = Constant<value = float {0}>()
          y, all = Loop(n, , z) <body = b (int64 i, bool c, float s) => (bool d, float t, float u)
            { p = Gather<axis=0>(x, i) t = Add(s, p) u = Neg(t) d = Identity(c) }> }"""
    )
    session = session_of(text)
    for _ in range(2):
        with pytest.raises(mnnx.InputError, match=r"op '\w+' \(Gather\).*4 is outside"):
            session.run({"n": np.array(9), "x": np.ones(4, np.float32)})
        check(session, text, {"n": np.array(4), "x": np.ones(4, np.float32)})


@pytest.mark.parametrize("level", [0, 2])
def test_an_if_on_a_shape_is_planned_with_what_surrounds_it(session_of, level):
    session = session_of(IF_ON_A_SHAPE, level=level)
    for n in (2, 3, 4, 2, 7):
        check(session, IF_ON_A_SHAPE, {"x": np.arange(3 * n, dtype=np.float32).reshape(n, 3) / 9})
        assert session.info()["complete"]
        assert "If" not in {row.op_type for row in session.placement()}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (IF, [{"c": c, "x": X, "z": X + 1} for c in (TRUE, FALSE, TRUE)]),
        (NESTED_IF, [{"c": c, "d": d, "x": X} for c in (TRUE, FALSE) for d in (TRUE, FALSE)]),
        (
            LOOP,
            [
                {"n": np.array(n), "go": go, "x": X, "limit": np.array(9, np.float32)}
                for n, go in ((4, TRUE), (0, TRUE), (4, FALSE), (99, TRUE))
            ],
        ),
        (NESTED_LOOP, [{"n": np.array(n), "m": np.array(m), "x": X} for n, m in ((3, 2), (2, 0), (0, 2))]),
        (GROWING_LOOP, [{"n": np.array(n), "x": np.ones(k, np.float32)} for n, k in ((3, 2), (0, 1), (5, 0))]),
        (SCAN, [{"h": X, "x": np.arange(2 * n, dtype=np.float32).reshape(n, 2) / 9, "w": X} for n in (4, 1)]),
        (BACKWARD_SCAN, [{"h": X, "x": np.arange(2 * n, dtype=np.float32).reshape(2, n)} for n in (4, 1)]),
        (LOOP_OF_IF, [{"n": np.array(n), "x": X} for n in (5, 1, 0)]),
    ],
    ids=["if", "nested if", "loop", "nested loop", "growing loop", "scan", "backward scan", "loop of if"],
)
def test_agrees_with_onnxruntime(session_of, text, feeds, level):
    session = session_of(text, level=level)
    for feed in [*feeds, *feeds]:
        check(session, text, feed)


def test_a_scan_over_nothing(session_of):
    result = session_of(SCAN).run({"h": X, "x": np.zeros((0, 2), np.float32), "w": X})
    assert result["y"].tolist() == X.tolist()
    assert result["all"].shape == (0, 2)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_no_iteration_stacks_has_the_dims_that_the_first_would_give(session_of, level):
    text = (
        HEAD
        + """g (int64 n, float[k,3] x) => (float[m,k,3] y, float[m,l] z)
        { yes = Constant<value = bool {1}>()
          s, y, z = Loop(n, yes, x) <body = b (int64 i, bool c, float[] p) => (bool d, float[] q, float[] u, float[] v)
            { d = Identity(c) q = Neg(p) u = Exp(q) minus = Constant<value = int64[1] {-1}>() v = Reshape(u, minus) }> }"""
    )
    session = session_of(text, level=level)
    for rows, n in ((2, 0), (2, 3), (5, 0)):
        found = session.run({"n": np.array(n), "x": np.ones((rows, 3), np.float32)})
        assert (found["y"].shape, found["z"].shape) == ((n, rows, 3), (n, rows * 3))


def test_callbacks_see_the_ops_of_bodies(session_of):
    session = session_of(LOOP_OF_IF, level=0)
    seen = []
    feed = {"n": np.array(2), "x": X}
    assert session.run_with_callbacks(lambda t, i: seen.append(i.type), lambda t, i: None, feed) == 0
    assert seen[0] == "Loop"
    assert seen.count("If") == 2
    assert seen.index("If") < seen.index("Neg") < seen.index("Add")


def test_a_stop_inside_a_body_stops_the_run(session_of):
    session = session_of(LOOP_OF_IF, level=0)
    assert session.run_with_callbacks(lambda t, i: i.type != "Add", lambda t, i: None, {"n": np.array(9), "x": X}) == 11
    check(session, LOOP_OF_IF, {"n": np.array(3), "x": X})


def test_sequences_through_loops(session_of):
    text = (
        HEAD
        + """g (int64 n, float[2] x) => (float[k] y, int64 length)
        { e = SequenceEmpty<dtype=1>()
          s = Loop(n, , e) <body = b (int64 i, bool c, seq(float[m]) q) => (bool d, seq(float[m]) r)
            { f = Cast<to=1>(i) v = Add(x, f) r = SequenceInsert(q, v) d = Identity(c) }>
          y = ConcatFromSequence<axis=0>(s) length = SequenceLength(s) }"""
    )
    session = session_of(text)
    result = session.run({"n": np.array(3), "x": X})
    np.testing.assert_array_equal(result["y"], np.concatenate([X, X + 1, X + 2]))
    assert result["length"] == 3


def test_a_tensor_is_no_sequence(session_of):
    """The state of the loop is declared as a sequence, and begins as a tensor."""
    text = (
        HEAD
        + """g (int64 n, float[2] x) => (int64 length)
        { s = Loop(n, , x) <body = b (int64 i, bool c, seq(float[m]) q) => (bool d, seq(float[m]) r)
            { f = Cast<to=1>(i) r = SequenceInsert(q, f) d = Identity(c) }>
          length = SequenceLength(s) }"""
    )
    with pytest.raises(mnnx.InputError, match=r"SequenceInsert.*the first input must be a sequence; it is the tensor float32\[2\]"):
        session_of(text).run({"n": np.array(3), "x": X})


def test_a_sequence_is_no_tensor_of_another(session_of):
    text = HEAD + "g (float[2] x) => (int64 length) { s = SequenceConstruct(x, x) t = SequenceInsert(s, s) length = SequenceLength(t) }"
    with pytest.raises(mnnx.InputError, match="a sequence holds tensors, no sequences"):
        session_of(text).run({"x": X})


def test_errors_inside_bodies_name_the_op_there(session_of):
    text = (
        HEAD
        + """g (int64 n, float[4] x) => (float y)
        { z = Constant<value = float {0}>()
          y = Loop(n, , z) <body = b (int64 i, bool c, float s) => (bool d, float t)
            { p = Gather<axis=0>(x, i) t = Add(s, p) d = Identity(c) }> }"""
    )
    session = session_of(text)
    assert session.run({"n": np.array(4), "x": np.ones(4, np.float32)})["y"] == 4
    with pytest.raises(mnnx.InputError, match=r"op '\w+' \(Gather\).*4"):
        session.run({"n": np.array(5), "x": np.ones(4, np.float32)})
