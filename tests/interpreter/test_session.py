"""A session's life: runs, callbacks, `with`, release."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import onnx
import pytest

import mnnx
from mnnx import InputError, SessionStateError

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
MODEL = HEAD + "g (float[n,2] x) => (float[n,2] y) { a = Relu(x) b = Neg(a) y = Exp(b) }"
X = np.array([[-1, 2]], np.float32)
Y = np.exp(-np.maximum(X, 0))


@pytest.fixture
def path(tmp_path):
    mnnx.convert(onnx.parser.parse_model(MODEL), tmp_path / "m.mnnx", level=0)
    return tmp_path / "m.mnnx"


def test_runs_on_a_feed_and_on_filled_inputs(session_of):
    session = session_of(MODEL)
    np.testing.assert_allclose(session.run({"x": X})["y"], Y, rtol=1e-6)
    session.inputs["x"].copy_from_host(2 * X)
    session.run()
    np.testing.assert_allclose(session.outputs["y"].copy_to_host(), Y**2, rtol=1e-6)


def test_mapped_inputs_are_filled_in_place_and_mapped_outputs_are_read(session_of):
    session = session_of(MODEL)
    with pytest.raises(InputError, match="resize the session first"), session.inputs["x"].map():
        pass
    with pytest.raises(SessionStateError, match="no value yet"), session.outputs["y"].map():
        pass
    session.resize({"x": X.shape})
    with session.inputs["x"].map() as memory:
        memory[...] = X
    session.run()
    with session.outputs["y"].map() as memory:
        np.testing.assert_allclose(memory, Y, rtol=1e-6)
        with pytest.raises(ValueError, match="read-only"):
            memory[...] = 0


def test_a_sequence_cannot_be_mapped(session_of):
    session = session_of(HEAD + "g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity(x) }")
    session.run({"x": [np.ones(2, np.float32)]})
    for tensor in (session.inputs["x"], session.outputs["y"]):
        with pytest.raises(InputError), tensor.map():
            pass


def test_results_belong_to_the_caller(session_of):
    session = session_of(MODEL)
    session.run({"x": X})["y"][:] = 7
    np.testing.assert_allclose(session.outputs["y"].copy_to_host(), Y, rtol=1e-6)
    session.outputs["y"].copy_to_host()[:] = 7
    np.testing.assert_allclose(session.outputs["y"].copy_to_host(), Y, rtol=1e-6)


def test_sequences_belong_to_the_caller(session_of):
    session = session_of(HEAD + "g (seq(float[2]) x) => (seq(float[2]) y, seq(float[2]) z) { y = Identity(x) z = SequenceErase(x) }")
    fed = [np.ones(2, np.float32), np.zeros(2, np.float32)]
    result = session.run({"x": fed})
    fed[0][:] = result["y"][0][:] = result["z"][0][:] = 7
    for name in ("y", "z"):
        kept = session.outputs[name].copy_to_host()
        kept.pop(0)[:] = 7
        assert session.outputs[name].copy_to_host()[0].tolist() == [1, 1]


def test_tensors_tell_what_they_are(session_of):
    session = session_of(MODEL)
    x = session.inputs["x"]
    assert (x.name, x.dtype, x.shape, x.dims, x.kind) == ("x", np.float32, (-1, 2), ("n", 2), "tensor")
    session.resize({"x": (3, 2)})
    assert (x.shape, x.dims, session.outputs["y"].shape) == ((3, 2), ("n", 2), (3, 2))


def test_a_fixed_model_is_planned_when_the_session_is_made(session_of):
    session = session_of(HEAD + "g (float[3,2] x) => (float[2,3] y) { y = Transpose(x) }")
    assert session.outputs["y"].shape == (2, 3)
    assert session.placement()[0].op_type == "Transpose"


def test_objects_show_what_they_are(session_of):
    session = session_of(MODEL)
    assert repr(session.inputs["x"]) == "<input 'x': float32 [n, 2], no value yet>"
    assert repr(session).startswith(
        "Session([<input 'x': float32 [n, 2], no value yet>] → [<output 'y': float32 [n, 2], no value yet>], cpu, "
    )
    session.run({"x": X})
    assert repr(session.outputs["y"]) == "<output 'y': float32 [1, 2], filled>"
    interpreter = session.interpreter
    assert repr(interpreter).endswith("model.mnnx', [x] → [y], 3 ops)")
    interpreter.release()
    assert (repr(session), repr(interpreter)) == ("Session(released)", "Interpreter(released)")
    assert repr(mnnx.Tensor((1, 2), np.float32)) == "Tensor('', float32, [1, 2])"


def test_info_says_whether_all_is_planned(session_of):
    text = HEAD + "g (float[3] x) => (float[1,m] y) { i = NonZero(x) f = Cast<to=1>(i) y = Exp(f) }"
    session = session_of(text)
    assert session.info()["complete"] is False
    session.run({"x": np.array([1, 0, 2], np.float32)})
    assert session.info()["complete"] is True
    assert session_of(HEAD + "g (float[3,2] x) => (float[2,3] y) { y = Transpose(x) }").info()["complete"] is True
    assert session_of(MODEL).info()["complete"] is False


# ---- callbacks
def test_callbacks_see_every_op_with_its_tensors(session_of):
    session = session_of(MODEL, level=0)
    seen = []

    def before(tensors, info):
        seen.append(("before", info.type, info.backend, [t.copy_to_host().tolist() for t in tensors]))

    def after(tensors, info):
        seen.append(("after", info.name, [(t.name, t.shape, t.dtype) for t in tensors]))

    assert session.run_with_callbacks(before, after, {"x": X}) == 0
    assert [event[1] for event in seen[::2]] == ["Relu", "Neg", "Exp"]
    assert seen[2] == ("before", "Neg", "cpu", [[[0, 2]]])
    assert seen[-1][2] == [("y", (1, 2), np.float32)]
    np.testing.assert_allclose(session.outputs["y"].copy_to_host(), Y, rtol=1e-6)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_callback_stops_the_run(session_of, where):
    session = session_of(MODEL, level=0)
    seen = []

    def stop(tensors, info):
        seen.append(info.type)
        return info.type != "Neg"

    callbacks = {"before": lambda t, i: True, "after": lambda t, i: None} | {where: stop}
    assert session.run_with_callbacks(callbacks["before"], callbacks["after"], {"x": X}) == 11
    assert seen == ["Relu", "Neg"]
    with pytest.raises(SessionStateError, match="'y' has no value yet"):
        session.outputs["y"].copy_to_host()
    np.testing.assert_allclose(session.run({"x": X})["y"], Y, rtol=1e-6)


def test_what_a_callback_raises_comes_through(session_of):
    session = session_of(MODEL)

    def fail(tensors, info):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        session.run_with_callbacks(fail, fail, {"x": X})
    session.run({"x": X})
    with pytest.raises(InputError, match="two functions"):
        session.run_with_callbacks(None, fail, {"x": X})


def test_what_a_callback_raises_inside_a_body_is_not_blamed_on_the_op(session_of):
    session = session_of(
        """<ir_version: 8, opset_import: ["" : 18]> g (int64 n, float[2] x) => (float[2] y) {
            y = Loop(n, , x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Identity(c) t = Relu(s) }>
        }"""
    )

    def fail(tensors, info):
        if info.type == "Relu":
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        session.run_with_callbacks(fail, lambda t, i: None, {"n": np.array(2), "x": np.ones(2, np.float32)})


def test_callbacks_cant_use_their_own_session(session_of):
    session = session_of(MODEL)
    with pytest.raises(SessionStateError, match="callback can't release"):
        session.run_with_callbacks(lambda t, i: session.release(), lambda t, i: None, {"x": X})
    with pytest.raises(SessionStateError, match="callback can't use the session that calls it"):
        session.run_with_callbacks(lambda t, i: session.run({"x": X}), lambda t, i: None, {"x": X})
    session.run({"x": X})


def test_callbacks_see_host_ops_too(session_of):
    text = HEAD + "g (float[n] x) => (int64[1,m] y) { a = Relu(x) y = NonZero(a) }"
    seen = {}
    session = session_of(text)
    session.run_with_callbacks(
        lambda tensors, info: None,
        lambda tensors, info: seen.update({info.type: (tensors[0].name, tensors[0].shape, tensors[0].copy_to_host().tolist())}),
        {"x": np.array([1, -1, 2], np.float32)},
    )
    assert seen["NonZero"] == ("y", (1, 2), [[0, 2]])


# ---- life
def test_with_releases(path):
    with mnnx.Interpreter.from_file(path) as interpreter:
        with interpreter.create_session() as session:
            session.run({"x": X})
        with pytest.raises(SessionStateError, match="session was released"):
            session.run({"x": X})
        other = interpreter.create_session()
    for use in (lambda: other.run({"x": X}), interpreter.create_session, lambda: interpreter.metadata):
        with pytest.raises(SessionStateError, match="was released"):
            use()
    interpreter.release()
    session.release()


def test_a_session_keeps_its_model_alive(path):
    session = mnnx.Interpreter(path).create_session()
    gc.collect()
    np.testing.assert_allclose(session.run({"x": X})["y"], Y, rtol=1e-6)


def test_sessions_of_a_file_share_the_model_until_it_changes(path):
    first, second = mnnx.Interpreter(path), mnnx.Interpreter(str(path))
    assert first.model is second.model
    mnnx.convert(onnx.parser.parse_model(MODEL.replace("Exp", "Sqrt")), path)
    assert mnnx.Interpreter(path).model is not first.model
    np.testing.assert_allclose(first.create_session().run({"x": X})["y"], Y, rtol=1e-6)


def test_a_model_nobody_uses_is_let_go(path):
    interpreter = mnnx.Interpreter(path)
    session = interpreter.create_session()
    session.run({"x": X})
    model = weakref.ref(interpreter._loaded)
    session.release()
    del interpreter, session
    gc.collect()
    assert model() is None


def test_a_model_from_bytes(path):
    data = path.read_bytes()
    for buffer in (data, bytearray(data), memoryview(data)):
        np.testing.assert_allclose(mnnx.Interpreter.from_bytes(buffer).create_session().run({"x": X})["y"], Y, rtol=1e-6)


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_of_released_sessions_comes_back(path):
    """200 sessions, made, run and released: resident memory grows by less than 5 MB after the tenth."""
    interpreter = mnnx.Interpreter(path)
    x = np.ones((20_000, 2), np.float32)
    for round_ in range(200):
        with interpreter.create_session(mnnx.ScheduleConfig(num_threads=2)) as session:
            session.run({"x": x})
        del session
        if round_ == 10:
            gc.collect()
            before = resident_bytes()
    gc.collect()
    assert resident_bytes() - before < 5e6
