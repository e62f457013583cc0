"""What a session refuses, and that its errors tell everything: the name, what was given, what is wanted, what to do."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

import mnnx
from mnnx import InputError, LimitExceeded, Limits, SessionStateError
from mnnx.schema.model import Graph, Model, Node, Value
from mnnx.schema.ops.activation import Relu
from mnnx.schema.ops.shape import Identity
from mnnx.schema.writer import serialize

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
MODEL = HEAD + "g (float[n,3] x, int64[2] i) => (float[n,3] y) { s = Cast<to=1>(i) t = ReduceSum<keepdims=0>(s) y = Mul(x, t) }"
GOOD = {"x": np.ones((2, 3), np.float32), "i": np.array([1, 2])}


def wrong(**changes):
    return {name: value for name, value in (GOOD | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        (wrong(z=GOOD["x"]), r"no input 'z'; its inputs are 'x', 'i'"),
        (wrong(i=None), r"'i' is missing from the feed; the model wants 'x', 'i'"),
        ({}, r"'x' is missing"),
        (wrong(x=np.ones((2, 3))), r"'x' wants float32, got float64; convert it with .astype\(\), nothing is cast silently"),
        (wrong(i=np.array([1, 2], np.int32)), r"'i' wants int64, got int32"),
        (wrong(x=np.ones((2, 3), ml_dtypes.bfloat16)), r"'x' wants float32, got bfloat16"),
        (wrong(x=np.ones((2, 3), ">f4")), r"'x' wants float32, got float32 in another byte order"),
        (wrong(x=[[1.0, 2.0, 3.0]]), r"'x' wants a NumPy array of float32, got list"),
        (wrong(x=np.array([["a", "b", "c"]])), r"'x' wants float32, got str32"),
        (wrong(x=np.array([[b"a", b"b", b"\xff"]])), r"'x' wants float32, got bytes8"),
        (wrong(x=np.ma.masked_less(GOOD["x"], 0)), r"'x' wants an array without a mask"),
        (wrong(x=np.ones((2, 3, 1), np.float32)), r"'x' wants the shape \[n, 3\] \(rank 2\), got \[2, 3, 1\] \(rank 3\)"),
        (wrong(x=np.float32(1)), r"'x' wants the shape \[n, 3\] \(rank 2\), got \[\] \(rank 0\)"),
        (wrong(x=np.ones((2, 4), np.float32)), r"'x' wants the shape \[n, 3\], got \[2, 4\]: dim 1 must be 3"),
        (wrong(i=np.array([1, 2, 3])), r"'i' wants the shape \[2\], got \[3\]: dim 0 must be 2"),
    ],
)
def test_a_wrong_feed_is_an_input_error(session_of, feed, message):
    session = session_of(MODEL)
    with pytest.raises(InputError, match=message):
        session.run(feed)
    assert session.run(GOOD)["y"].tolist() == [[3, 3, 3]] * 2


def test_feeds_and_shapes_are_dicts(session_of):
    session = session_of(MODEL)
    with pytest.raises(InputError, match=r"wants a dict \{input name: array\}, got ndarray; the inputs are 'x', 'i'"):
        session.run(GOOD["x"])
    with pytest.raises(InputError, match=r"wants a dict \{input name: shape\}, got tuple; the inputs are 'x', 'i'"):
        session.resize((2, 3))
    for shape in (3, ("a", 3), (2.5, 3)):
        with pytest.raises(InputError, match="'x': a shape is a sequence of ints"):
            session.resize({"x": shape})


def test_a_name_that_isnt_there_tells_those_that_are(session_of):
    session = session_of(MODEL)
    for error in (KeyError, InputError):
        with pytest.raises(error, match=r"^the session has no input 'zz'; its inputs are 'x', 'i'$"):
            session.inputs["zz"]
    with pytest.raises(mnnx.UnknownName, match="no output 0; its outputs are 'y'"):
        session.outputs[0]
    assert ("zz" in session.inputs, "x" in session.inputs, session.inputs.get("zz")) == (False, True, None)
    assert (list(session.inputs), len(session.inputs), session.outputs == {"y": session.outputs["y"]}) == (["x", "i"], 2, True)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [(5, "a list of names, not int"), ([["y"]], "by its name, a str, not list"), ([b"y"], "by its name, a str, not bytes")],
)
def test_outputs_are_asked_for_by_name(session_of, outputs, message):
    with pytest.raises(InputError, match=message):
        session_of(MODEL).run(GOOD, outputs=outputs)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([b"\xff"]), r"'s' wants text: its bytes aren't UTF-8 \(.*0xff"),
        (np.array(["a", 3], object), "'s' wants text, got an array with int in it"),
        (np.ones(2), "'s' wants string, got float64"),
    ],
)
def test_what_is_no_text_is_refused(session_of, value, message):
    session = session_of('<ir_version: 8, opset_import: ["" : 20]> g (string[n] s) => (string[n] t) { t = StringConcat(s, s) }')
    with pytest.raises(InputError, match=message):
        session.run({"s": value})
    assert session.run({"s": np.array([b"a", "é".encode()])})["t"].tolist() == ["aa", "éé"]


@pytest.mark.parametrize("dtype", [">f4", "M8[s]", "V4", [("a", "f4")]])
def test_an_input_of_any_type_wants_a_type_of_onnx(dtype):
    values = [Value("x"), Value("y")]
    model = Model([Graph("main", values, (0,), (1,), [Node("op", Identity(), (0,), (1,))])])
    with mnnx.Interpreter.from_bytes(serialize(model)) as interpreter, interpreter.create_session() as session:
        with pytest.raises(InputError, match=r"'x' can't be .*: no ONNX tensor is"):
            session.run({"x": np.zeros(3, dtype)})
        assert session.run({"x": np.arange(3)})["y"].tolist() == [0, 1, 2]


def test_an_op_without_the_outputs_that_a_model_wants_of_it():
    values = [Value("x", np.dtype(np.float32), (2,)), Value("y"), Value("z")]
    model = Model([Graph("main", values, (0,), (1, 2), [Node("both", Relu(), (0,), (1, 2))])])
    session = mnnx.Interpreter.from_bytes(serialize(model)).create_session()
    with pytest.raises(InputError, match=r"op 'both' \(Relu\) has 1 outputs, the model wants 2 of it"):
        session.run({"x": np.ones(2, np.float32)})


def test_running_without_a_feed_wants_filled_inputs(session_of):
    session = session_of(MODEL)
    with pytest.raises(SessionStateError, match=r"'x' has open dims \[-1, 3\] \(\('n', 3\)\): call resize first, or give run a feed"):
        session.run()
    session.resize({"x": (2, 3)})
    with pytest.raises(SessionStateError, match="'x' was never filled; feed it, or call copy_from_host"):
        session.run()
    session.inputs["x"].copy_from_host(GOOD["x"])
    with pytest.raises(SessionStateError, match="'i' was never filled"):
        session.run()
    session.inputs["i"].copy_from_host(GOOD["i"])
    assert session.run()["y"].tolist() == [[3, 3, 3]] * 2


def test_resizing_forgets_data_of_another_shape(session_of):
    session = session_of(MODEL)
    for name, value in GOOD.items():
        session.inputs[name].copy_from_host(value)
    session.resize({"x": (2, 3)})
    session.run()
    session.resize({"x": (4, 3)})
    with pytest.raises(SessionStateError, match="'x' was never filled"):
        session.run()


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, "no input 'z'"),
        ({"x": (2, 4)}, "dim 1 must be 3"),
        ({"x": (2,)}, "rank 2"),
        ({"x": (-1, 3)}, "must not be negative"),
    ],
)
def test_wrong_shapes_are_refused(session_of, shapes, message):
    with pytest.raises(InputError, match=message):
        session_of(MODEL).resize(shapes)


def test_a_refused_resize_changes_no_shape(session_of):
    session = session_of(HEAD + "g (float[n] a, float[m,2] b) => (float[n] y, float[m,2] z) { y = Neg(a) z = Neg(b) }")
    session.resize({"a": (3,), "b": (4, 2)})
    with pytest.raises(InputError, match="dim 1 must be 2"):
        session.resize({"a": (5,), "b": (4, 9)})
    assert (session.inputs["a"].shape, session.inputs["b"].shape) == ((3,), (4, 2))


def test_outputs_have_no_value_before_a_run_and_none_after_a_failed_one(session_of):
    session = session_of(MODEL)
    with pytest.raises(SessionStateError, match="'y' has no value yet; run the session first"):
        session.outputs["y"].copy_to_host()
    with pytest.raises(SessionStateError, match="'y' is an output"):
        session.outputs["y"].copy_from_host(GOOD["x"])
    session.run(GOOD)
    session.outputs["y"].copy_to_host()


def test_a_rule_that_shapes_break_names_op_shapes_and_rule(session_of):
    session = session_of(HEAD + "g (float[n,m] x, float[k,4] w) => (float[n,4] y) { r = Relu(x) y = MatMul(r, w) }")
    session._graph.nodes[-1].name = "product"
    with pytest.raises(InputError, match=r"op 'product' \(.*MatMul\).*float32\[2, 3\], float32\[5, 4\]"):
        session.run({"x": np.ones((2, 3), np.float32), "w": np.ones((5, 4), np.float32)})
    assert session.run({"x": np.ones((2, 5), np.float32), "w": np.ones((5, 4), np.float32)})["y"].shape == (2, 4)


@pytest.mark.parametrize(
    "body",
    [
        "r = Relu(x) y = Gather<axis=0>(r, i)",
        "r = Relu(x) j = Unsqueeze(i, one) k = Expand(j, three) y = GatherElements<axis=0>(r, k)",
        "r = Relu(x) y = ArrayFeatureExtractor(r, i)",
    ],
)
def test_a_value_that_breaks_a_rule_names_the_op(session_of, body):
    text = HEAD.replace('"" : 18', '"" : 18, "ai.onnx.ml" : 3') + (
        "g (float[n,3] x, int64[2] i) => (float[a,b] y) <int64[1] one = {1}, int64[2] three = {1,3}> {" + body + "}"
    )
    if "Array" in text:
        text = text.replace("ArrayFeatureExtractor", "ai.onnx.ml.ArrayFeatureExtractor")
    session = session_of(text)
    session.run({"x": np.ones((4, 3), np.float32), "i": np.array([0, 2])})
    with pytest.raises(InputError, match=r"op '\w*' \((Gather|GatherElements|ai.onnx.ml::ArrayFeatureExtractor)\)"):
        session.run({"x": np.ones((4, 3), np.float32), "i": np.array([0, 9])})
    session.run({"x": np.ones((4, 3), np.float32), "i": np.array([0, 2])})


def test_everything_is_refused_after_release(session_of):
    session = session_of(MODEL)
    session.release()
    session.release()
    for use in (
        lambda: session.run(GOOD),
        lambda: session.resize({"x": (1, 3)}),
        session.info,
        lambda: session.run_with_callbacks(min, min),
    ):
        with pytest.raises(SessionStateError, match="session was released; create a new one"):
            use()


def test_placement_wants_a_plan(session_of):
    with pytest.raises(SessionStateError, match="neither resized nor run"):
        session_of(MODEL).placement()


def test_a_file_that_cant_be_opened(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.mnnx' can't be opened: No such file"):
        mnnx.Interpreter.from_file(tmp_path / "nothing.mnnx")
    with pytest.raises(InputError, match="can't be opened: Is a directory"):
        mnnx.Interpreter.from_file(tmp_path)
    for path in (None, 5, b"model.mnnx", []):
        with pytest.raises(InputError, match=r"wants the path of an \.mnnx file .*, got (NoneType|int|bytes|list)"):
            mnnx.Interpreter(path)
    with pytest.raises(InputError, match="can't be opened: embedded null"):
        mnnx.Interpreter.from_file("a\0b")
    loop = tmp_path / "loop.mnnx"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="can't be opened: "):
        mnnx.Interpreter.from_file(loop)


def test_an_unknown_backend(session_of):
    with pytest.raises(mnnx.BackendUnavailable, match=r"no backend 'npu'; known ones: .*cpu"):
        session_of(MODEL, backend="npu")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_threads": -1}, "num_threads must be 0"),
        ({"num_threads": 1.5}, "num_threads"),
        ({"backend_config": 3}, "must be a BackendConfig"),
        ({"limits": 3}, "must be a Limits"),
        ({"save_tensors": "abc"}, "save_tensors must be a list of names; it is 'abc'"),
        ({"save_tensors": None}, "save_tensors must be a list of names; it is None"),
    ],
)
def test_wrong_configs(config, message):
    with pytest.raises(InputError, match=message):
        mnnx.ScheduleConfig(**config)


def test_a_session_wants_a_schedule_config(session_of):
    with pytest.raises(InputError, match="wants a ScheduleConfig, got str"):
        session_of(MODEL).interpreter.create_session("cpu")


@pytest.mark.parametrize("limits", [{"tensor_bytes": "1"}, {"memory_bytes": 1e9}, {"iterations": 0}, {"iterations": True}])
def test_wrong_limits(limits):
    with pytest.raises(InputError, match=rf"Limits\.{next(iter(limits))} must be a positive int; it is "):
        Limits(**limits)


def test_wrong_precision():
    with pytest.raises(InputError, match="precision must be one of low, normal, high; it is 'best'"):
        mnnx.BackendConfig(precision="best")


# ---- limits
def test_a_huge_tensor_is_refused_before_it_is_made(session_of):
    session = session_of(HEAD + "g (int64[2] s, float[1] v) => (float[n,m] y) { y = Expand(v, s) }")
    with pytest.raises(LimitExceeded, match=r"op '\w*' \(Expand\).*float32\[1000000, 1000000\].*MNNX_MAX_TENSOR_MB"):
        session.run({"s": np.array([10**6, 10**6]), "v": np.ones(1, np.float32)})
    assert session.run({"s": np.array([2, 3]), "v": np.ones(1, np.float32)})["y"].shape == (2, 3)


def test_a_huge_constant_shape_is_refused(session_of):
    text = HEAD + "g (float[1] v) => (float[n,m] y) <int64[2] s = {1000000, 1000000}> { y = Expand(v, s) }"
    with pytest.raises(LimitExceeded, match="float32"):
        session_of(text)


@pytest.mark.parametrize("body", ["y = Unsqueeze(r, axes)", "y = Expand(r, ones)", "k = Cast<to=7>(ones) y = ConstantOfShape(k)"])
def test_a_tensor_of_too_many_dims_is_refused(session_of, body):
    axes, ones = ",".join(map(str, range(40))), ",".join("1" * 40)
    session = session_of(
        HEAD + f"g (float[n] x) => (float y) <int64[40] axes = {{{axes}}}, int64[40] ones = {{{ones}}}> {{ r = Relu(x) {body} }}"
    )
    with pytest.raises(LimitExceeded, match=r"wants to make a tensor of 4[01] dims; the limit is 32"):
        session.run({"x": np.ones(1, np.float32)})


def test_memory_of_a_plan_is_limited(session_of):
    text = HEAD + "g (float[n,n] x) => (float[n,n] y) { t = Transpose(x) a = MatMul(x, t) b = MatMul(t, a) y = Add(a, b) }"
    session = session_of(text, limits=Limits(memory_bytes=1 << 20))
    session.run({"x": np.ones((64, 64), np.float32)})
    with pytest.raises(LimitExceeded, match=r"needs \d+ MiB for these input shapes; the limit is 1 MiB"):
        session.run({"x": np.ones((512, 512), np.float32)})


LOOP = (
    HEAD
    + """g (int64 trips, float[2] x) => (float[2] y, float[n,2] all) {
    y, all = Loop(trips, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u)
        { d = Identity(c) t = Relu(s) u = Neg(t) }>
}"""
)


def test_a_loop_without_end_is_stopped(session_of):
    session = session_of(LOOP, limits=Limits(iterations=100))
    feed = {"x": np.ones(2, np.float32)}
    assert session.run({"trips": np.array(100), **feed})["all"].shape == (100, 2)
    with pytest.raises(LimitExceeded, match=r"loops ran 100 times.*MNNX_MAX_ITERATIONS"):
        session.run({"trips": np.array(2**60), **feed})
    assert session.run({"trips": np.array(100), **feed})["all"].shape == (100, 2)


GROWING = (
    HEAD
    + """g (int64 trips, float[n] x) => (float[m] y) {
    y = Loop(trips, , x) <body = b (int64 i, bool c, float[k] s) => (bool d, float[l] t)
        { d = Identity(c) one = Constant<value_floats = [1.0]>() t = Concat<axis = 0>(s, one) }>
}"""
)


def test_a_loop_that_changes_its_shapes_without_end_is_stopped(session_of, monkeypatch):
    monkeypatch.setattr("mnnx.interpreter.runtime.LEAST_PLANS", 20)
    session = session_of(GROWING, limits=Limits(iterations=320))
    feed = {"x": np.ones(2, np.float32)}
    assert session.run({"trips": np.array(15), **feed})["y"].shape == (17,)
    with pytest.raises(LimitExceeded, match=r"changed the shapes of their values 20 times.*counts as 32"):
        session.run({"trips": np.array(60), **feed})


def test_plans_that_are_kept_share_the_limit_of_memory(session_of):
    text = HEAD + "g (float[n] x) => (float[n] y) { a = Exp(x) b = Neg(a) y = Add(a, b) }"
    session = session_of(text, limits=Limits(memory_bytes=1 << 20))
    runner = session._runner(None)
    for n in range(50_000, 50_008):
        session.run({"x": np.ones(n, np.float32)})
        assert sum(plan.memory.arena_bytes for plan in runner._plans.values()) <= 1 << 20
    assert len(runner._plans) == 2


def test_what_a_loop_stacks_is_limited(session_of):
    session = session_of(LOOP, limits=Limits(tensor_bytes=80))
    feed = {"x": np.ones(2, np.float32)}
    session.run({"trips": np.array(10), **feed})
    with pytest.raises(LimitExceeded, match="11 iterations made more than"):
        session.run({"trips": np.array(11), **feed})


@pytest.mark.parametrize("text", ["0", "-1", "many"])
def test_limits_come_from_the_environment(monkeypatch, text):
    monkeypatch.setenv("MNNX_MAX_ITERATIONS", "77")
    assert Limits().iterations == 77
    monkeypatch.setenv("MNNX_MAX_ITERATIONS", text)
    with pytest.raises(InputError, match="MNNX_MAX_ITERATIONS must be a positive number"):
        Limits()


@pytest.mark.parametrize("ids", [(-1,), ("a",), (1.0,), (None,), 3, "0"])
def test_cpu_ids_are_cpu_numbers(ids):
    with pytest.raises(InputError, match=r"cpu_ids must be a sequence of CPU numbers, 0 or more; it is "):
        mnnx.ScheduleConfig(cpu_ids=ids)


def test_cpus_that_the_process_may_not_use_are_refused(session_of):
    allowed = sorted(os.sched_getaffinity(0))
    with pytest.raises(InputError, match=f"may not run on CPU 9999; it may use {', '.join(map(str, allowed))}$"):
        session_of(MODEL, cpu_ids=(allowed[0], 9999))
    session = session_of(MODEL, num_threads=2, cpu_ids=[np.int64(allowed[-1])])
    assert session.config.cpu_ids == (allowed[-1],)
    assert session.run(GOOD)["y"].tolist() == [[3, 3, 3]] * 2
