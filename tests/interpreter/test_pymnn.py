"""Scripts written for PyMNN run with `import mnnx as MNN`."""
# ruff: noqa: N812 - the names are MNN's.

from __future__ import annotations

import math

import numpy as np
import onnxruntime
import pytest

import mnnx as MNN
from tests.networks import feed_for, mobilenet_like

CLASSES, SIZE = 10, 48
IMAGE = np.random.default_rng(4).integers(0, 256, (60, 80, 3), dtype=np.uint8)
SMALL = '<ir_version: 8, opset_import: ["" : 18]> g (float[n,2] x) => (float[n,2] y) { a = Relu(x) b = Neg(a) y = Exp(b) }'


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """(path of the .mnnx file, what onnxruntime gives for an input)."""
    model = mobilenet_like(SIZE, 0.25, CLASSES)
    path = tmp_path_factory.mktemp("pymnn") / "mobilenet.mnnx"
    MNN.convert(model, path)
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return str(path), lambda x: reference.run(None, {"x": x})[0]


@pytest.fixture
def opened(tmp_path):
    """An interpreter and a session of a small model without fixed sizes."""
    import onnx

    path = str(tmp_path / "small.mnnx")
    MNN.convert(onnx.parser.parse_model(SMALL), path, level=0)
    interpreter = MNN.Interpreter(path)
    return interpreter, interpreter.createSession()


# ---- whole scripts
def test_the_mobilenet_demo(network):
    path, reference = network
    interpreter = MNN.Interpreter(path)
    interpreter.setCacheFile(".tempcache")
    session = interpreter.createSession()
    input_tensor = interpreter.getSessionInput(session)
    image = IMAGE[:SIZE, :SIZE, ::-1] - (103.94, 116.78, 123.68)
    image = (image * (0.017, 0.017, 0.017)).transpose((2, 0, 1)).astype(np.float32)
    tmp_input = MNN.Tensor((1, 3, SIZE, SIZE), MNN.Halide_Type_Float, image, MNN.Tensor_DimensionType_Caffe)
    input_tensor.copyFrom(tmp_input)
    assert interpreter.runSession(session) == 0
    output_tensor = interpreter.getSessionOutput(session)
    ones = np.ones([1, CLASSES]).astype(np.float32)
    tmp_output = MNN.Tensor((1, CLASSES), MNN.Halide_Type_Float, ones, MNN.Tensor_DimensionType_Caffe)
    output_tensor.copyToHostTensor(tmp_output)
    np.testing.assert_allclose(tmp_output.getData(), reference(image[None])[0], rtol=1e-4, atol=1e-6)


def test_the_second_mobilenet_demo(network):
    path, reference = network
    interpreter = MNN.Interpreter(path)
    config = {"precision": "low", "numThread": 1}
    runtime, exists = MNN.Interpreter.createRuntime((config,))
    assert exists == (True,)
    session = interpreter.createSession(config, runtime)
    input_tensor = interpreter.getSessionInput(session)
    interpreter.resizeTensor(input_tensor, (1, 3, SIZE, SIZE))
    assert interpreter.resizeSession(session) is True
    assert interpreter.getSessionInfo(session, 0) > 0.4
    assert interpreter.getSessionInfo(session, 1) > 2
    assert [interpreter.getSessionInfo(session, code) for code in (2, 3, 4)] == [0, 0, 1]
    data = feed_for(mobilenet_like(SIZE, 0.25, CLASSES))["x"]
    assert input_tensor.copyFrom(MNN.Tensor(list(data.shape), MNN.Halide_Type_Float, data, MNN.Tensor_DimensionType_Caffe)) is True
    interpreter.runSession(session)
    np.testing.assert_allclose(interpreter.getSessionOutput(session).getNumpyData(), reference(data), rtol=1e-4, atol=1e-6)
    assert interpreter.updateCacheFile(session, 0) == 0


def test_a_script_that_makes_its_tensors_like_the_sessions(network):
    path, reference = network

    def create_tensor(tensor):
        shape = tensor.getShape()
        return MNN.Tensor(shape, tensor.getDataType(), np.ones(shape, dtype=np.float32), tensor.getDimensionType())

    net = MNN.Interpreter(path)
    net.setSessionMode(9)
    session = net.createSession({"backend": "CPU", "precision": "high"})
    net.resizeTensor(net.getSessionInput(session), (2, 3, SIZE, SIZE))
    net.resizeSession(session)
    inputs = net.getSessionInputAll(session)
    inputs["x"].copyFrom(create_tensor(inputs["x"]))
    net.runSession(session)
    outputs = net.getSessionOutputAll(session)
    host = create_tensor(outputs["y"])
    outputs["y"].copyToHostTensor(host)
    assert host.getShape() == (2, CLASSES)
    np.testing.assert_allclose(host.getNumpyData(), reference(np.ones((2, 3, SIZE, SIZE), np.float32)), rtol=1e-4, atol=1e-6)


def test_images_in_tensorflows_layout(network):
    path, reference = network
    interpreter = MNN.Interpreter(path)
    session = interpreter.createSession({"numThread": 2})
    config = {
        "sourceFormat": MNN.CV_ImageFormat_BGR,
        "destFormat": MNN.CV_ImageFormat_RGB,
        "mean": (127.5, 127.5, 127.5, 0),
        "normal": (0.00784, 0.00784, 0.00784, 1),
        "filterType": MNN.CV_Filter_BILINEAL,
    }
    process, matrix = MNN.CVImageProcess(config), MNN.CVMatrix()
    matrix.setScale(IMAGE.shape[1] / SIZE, IMAGE.shape[0] / SIZE)
    process.setMatrix(matrix)
    tensor = MNN.Tensor((1, SIZE, SIZE, 3), MNN.Halide_Type_Float, MNN.Tensor_DimensionType_Tensorflow)
    process.convert(IMAGE, IMAGE.shape[1], IMAGE.shape[0], 0, tensor)
    interpreter.getSessionInput(session, "x").copyFrom(tensor)
    interpreter.runSession(session)
    output = MNN.Tensor(interpreter.getSessionOutput(session, "y"), MNN.Tensor_DimensionType_Caffe)
    planar = np.ascontiguousarray(tensor.getNumpyData().transpose(0, 3, 1, 2))
    np.testing.assert_allclose(output.getNumpyData(), reference(planar), rtol=1e-4, atol=1e-6)


# ---- tensors
def test_a_tensor_converts_what_it_is_given_and_says_what_it_is():
    tensor = MNN.Tensor((1, 3), MNN.Halide_Type_Float, (1.0, 2, 3), MNN.Tensor_DimensionType_Caffe)
    assert isinstance(tensor, MNN.Tensor)
    assert tensor.getShape() == (1, 3)
    assert tensor.getDataType() == MNN.Halide_Type_Float
    assert tensor.getDimensionType() == MNN.Tensor_DimensionType_Caffe
    assert tensor.getData() == (1.0, 2.0, 3.0)
    assert tensor.getNumpyData().dtype == np.float32


@pytest.mark.parametrize("data", [np.arange(6.0), tuple(range(6)), list(range(6)), np.arange(6, dtype=np.int32).tobytes()])
def test_data_comes_as_an_array_a_tuple_a_list_or_bytes(data):
    tensor = MNN.Tensor((2, 3), MNN.Halide_Type_Int, data, MNN.Tensor_DimensionType_Caffe)
    assert tensor.getData() == (0, 1, 2, 3, 4, 5)


def test_a_tensor_keeps_a_copy_of_its_data():
    data = np.zeros(2, np.float32)
    tensor = MNN.Tensor((2,), MNN.Halide_Type_Float, data, MNN.Tensor_DimensionType_Caffe)
    data[:] = 1
    assert tensor.getData() == (0.0, 0.0)


@pytest.mark.parametrize("shape", [(2, 4, 5, 3), (2, 4, 3), (1, 2, 4, 5, 3)])
@pytest.mark.parametrize("planar", [MNN.Tensor_DimensionType_Caffe, MNN.Tensor_DimensionType_Caffe_C4])
def test_copies_between_dimension_types_move_the_channels(shape, planar):
    data = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    last = MNN.Tensor(shape, MNN.Halide_Type_Float, data, MNN.Tensor_DimensionType_Tensorflow)
    moved = np.moveaxis(data, -1, 1)
    second = MNN.Tensor(moved.shape, MNN.Halide_Type_Float, planar)
    assert second.copyFromHostTensor(last)
    np.testing.assert_array_equal(second.getNumpyData(), moved)
    back = MNN.Tensor(shape, MNN.Halide_Type_Float, MNN.Tensor_DimensionType_Tensorflow)
    assert second.copyToHostTensor(back)
    np.testing.assert_array_equal(back.getNumpyData(), data)
    np.testing.assert_array_equal(MNN.Tensor(last, planar).getNumpyData(), moved)


def test_tensors_of_as_many_values_take_each_others():
    source = MNN.Tensor((257, 2), MNN.Halide_Type_Float, np.arange(514), MNN.Tensor_DimensionType_Caffe)
    target = MNN.Tensor((1, 257, 1, 2), MNN.Halide_Type_Float, MNN.Tensor_DimensionType_Caffe)
    target.copyFrom(source)
    assert target.getData() == source.getData()


def test_integers_keep_their_values_or_are_refused(session_of):
    session = session_of('<ir_version: 8, opset_import: ["" : 18]> g (int64[2] x, bool[2] m) => (int64[2] y) { y = Where(m, x, x) }')
    session.inputs["x"].copyFrom(MNN.Tensor((2,), MNN.Halide_Type_Int, (3, -4), MNN.Tensor_DimensionType_Caffe))
    assert session.inputs["x"].getData() == (3, -4)
    session.inputs["m"].copyFrom(MNN.Tensor((2,), MNN.Halide_Type_Int, (1, 0), MNN.Tensor_DimensionType_Caffe))
    assert session.inputs["m"].getDataType() == MNN.Halide_Type_Int
    with pytest.raises(MNN.InputError, match="int32 don't fit bool"):
        session.inputs["m"].copyFrom(MNN.Tensor((2,), MNN.Halide_Type_Int, (1, 2), MNN.Tensor_DimensionType_Caffe))
    with pytest.raises(MNN.InputError, match="int64 can't take float32"):
        session.inputs["x"].copyFrom(MNN.Tensor((2,), MNN.Halide_Type_Float, (1, 2), MNN.Tensor_DimensionType_Caffe))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((2, 3), MNN.Halide_Type_Float, (1, 2), 1), "6 values, the data 2"),
        (((2,), MNN.Halide_Type_Float, 7), "dimension type is one of"),
        (((-1, 2), MNN.Halide_Type_Float, 1), "not be negative"),
        (((2,), None, (1, 2), 1), "needs a dtype"),
        (((2,), MNN.Halide_Type_Float, ("a", "b"), 1), "can't be made float32"),
        (((2**40, 2**40), MNN.Halide_Type_Float, 1), "can't be made float32"),
        (((2.5,), MNN.Halide_Type_Float, 1), "wants a sequence of ints"),
        (((2,), "no type", 1), "data type must be a dtype, got 'no type'"),
    ],
)
def test_wrong_tensors_are_refused(arguments, message):
    with pytest.raises(MNN.InputError, match=message):
        MNN.Tensor(*arguments)


def test_tensors_of_different_sizes_are_refused(opened):
    _, session = opened
    four = MNN.Tensor((4,), MNN.Halide_Type_Float, MNN.Tensor_DimensionType_Caffe)
    with pytest.raises(MNN.InputError, match="numbers of values differ"):
        MNN.Tensor((3,), MNN.Halide_Type_Float, MNN.Tensor_DimensionType_Caffe).copyFrom(four)
    with pytest.raises(MNN.InputError, match=r"wants the shape \[n, 2\] \(rank 2\), got \[4\]"):
        session.inputs["x"].copyFrom(four)
    with pytest.raises(MNN.SessionStateError, match="is an output"):
        session.outputs["y"].copyFrom(four)
    with pytest.raises(MNN.InputError, match="wants a Tensor, got ndarray"):
        session.inputs["x"].copyFrom(np.zeros((1, 2), np.float32))


# ---- sessions
@pytest.mark.parametrize("precision", ["high", "normal", "low", 0, 1, 2])
def test_precision_is_a_word_or_a_number(opened, precision):
    session = opened[0].createSession({"backend": 0, "precision": precision})
    assert session.config.backend_config.precision == {0: "normal", 1: "high", 2: "low"}.get(precision, precision)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"threads": 4}, MNN.InputError, "no key 'threads'; known ones: backend, numThread"),
        ({"inputPaths": ("x",)}, MNN.InputError, "no key 'inputPaths'"),
        ({"precision": "best"}, MNN.InputError, "precision is one of"),
        ({"numThread": "4"}, MNN.InputError, "num_threads"),
        ({"saveTensors": "a"}, MNN.InputError, "tuple of names"),
        ({"saveTensors": ("zz",)}, MNN.InputError, "no tensor 'zz'; its outputs are 'y'"),
        ({"backend": "TPU"}, MNN.BackendUnavailable, "no backend 'tpu'"),
        ({"backend": 99}, MNN.BackendUnavailable, "no backend '99'"),
        ({"saveTensors": 5}, MNN.InputError, "tuple of names"),
        ({"memory": ["high"]}, MNN.InputError, "memory is one of"),
        (5, MNN.InputError, "config is a dict, not int"),
    ],
)
def test_a_wrong_config_is_an_error(opened, config, error, message):
    with pytest.raises(error, match=message):
        opened[0].createSession(config)


def test_what_is_no_session_is_an_error(opened):
    interpreter = opened[0]
    for use in (
        interpreter.runSession,
        interpreter.resizeSession,
        interpreter.getSessionInput,
        interpreter.getSessionOutputAll,
        interpreter.runSessionWithCallBack,
        interpreter.releaseSession,
        lambda session: interpreter.getSessionInfo(session, 0),
    ):
        with pytest.raises(MNN.InputError, match="wants a session, as createSession gives it, not NoneType"):
            use(None)


def test_save_tensors_keeps_tensors_as_outputs(opened):
    interpreter, _ = opened
    session = interpreter.createSession({"saveTensors": ("a",)})
    x = np.array([[-1, 2]], np.float32)
    session.inputs["x"].copyFrom(MNN.Tensor((1, 2), MNN.Halide_Type_Float, x, MNN.Tensor_DimensionType_Caffe))
    interpreter.runSession(session)
    assert interpreter.getSessionOutput(session, "a").getData() == (0.0, 2.0)
    np.testing.assert_allclose(interpreter.getSessionOutput(session).getNumpyData(), [[1, np.exp(-2)]], rtol=1e-6)
    with pytest.raises(MNN.InputError, match="no output 'b'; its outputs are 'y', 'a'; list a tensor inside"):
        interpreter.getSessionOutput(session, "b")


def test_resizing(opened):
    interpreter, session = opened
    x = interpreter.getSessionInput(session)
    assert x.getShape() == (-1, 2)
    with pytest.raises(MNN.SessionStateError, match=r"'x' has open dims \[-1, 2\]"):
        interpreter.resizeSession(session)
    for rows in (3, 5):
        interpreter.resizeTensor(x, [rows, 2])
        interpreter.resizeSession(session)
        assert interpreter.getSessionOutput(session).getShape() == (rows, 2)
        x.copyFrom(MNN.Tensor((rows, 2), MNN.Halide_Type_Float, np.zeros((rows, 2)), MNN.Tensor_DimensionType_Caffe))
        assert interpreter.runSession(session) == 0
        assert interpreter.getSessionOutput(session).getData() == (1.0,) * (2 * rows)
    with pytest.raises(MNN.InputError, match="dim 1 must be 2"):
        interpreter.resizeTensor(x, (3, 3))
    with pytest.raises(MNN.InputError, match="wants an input of a session"):
        interpreter.resizeTensor(interpreter.getSessionOutput(session), (3, 2))


def test_running_without_an_input_is_an_error(opened):
    interpreter, session = opened
    interpreter.resizeTensor(interpreter.getSessionInput(session), (1, 2))
    interpreter.resizeSession(session)
    with pytest.raises(MNN.SessionStateError, match="'x' was never filled"):
        interpreter.runSession(session)


def filled(opened):
    interpreter, session = opened
    session.inputs["x"].copyFrom(MNN.Tensor((1, 2), MNN.Halide_Type_Float, (-1, 2), MNN.Tensor_DimensionType_Caffe))
    return interpreter, session


def test_callbacks_get_tensors_and_names(opened):
    interpreter, session = filled(opened)
    seen = []

    def begin(tensors, name):
        seen.append((tensors[0].getShape(), name))

    def end(tensors, name):
        host = MNN.Tensor((1, 2), MNN.Halide_Type_Float, MNN.Tensor_DimensionType_Caffe)
        tensors[0].copyToHostTensor(host)
        seen.append(host.getData())
        return True

    assert interpreter.runSessionWithCallBack(session, begin, end) == 0
    names = [row.op for row in session.placement()]
    assert [s for s in seen if s[1] in names] == [((1, 2), name) for name in names]
    assert seen[1] == (0.0, 2.0)
    assert interpreter.runSessionWithCallBack(session) == 0


@pytest.mark.parametrize("stop", [False, 0])
def test_callbacks_get_infos_and_stop_the_run(opened, stop):
    interpreter, session = filled(opened)
    types = []

    def end(tensors, info):
        assert info.getName()
        types.append(info.getType())
        return True if len(types) < 2 else stop

    assert interpreter.runSessionWithCallBackInfo(session, lambda tensors, info: True, end) == 11
    assert types == ["Relu", "Neg"]


def test_a_cache_file_keeps_what_a_tuned_session_measured(network, tmp_path):
    path = tmp_path / "cache"
    for tuned in (True, False):
        interpreter = MNN.Interpreter(network[0])
        interpreter.setCacheFile(str(path))
        session = interpreter.createSession({"numThread": 1, "tune": True})
        interpreter.resizeTensor(interpreter.getSessionInput(session), (1, 3, SIZE, SIZE))
        interpreter.resizeSession(session)
        assert path.exists()
        assert (session.info()["tuned_from_cache"] > 0) is not tuned
        assert interpreter.updateCacheFile(session, 0) == 0


def test_a_session_that_is_not_tuned_writes_no_cache_file(network, tmp_path):
    interpreter = MNN.Interpreter(network[0])
    interpreter.setCacheFile(str(tmp_path / "cache"))
    session = interpreter.createSession()
    interpreter.updateCacheFile(session, 0)
    assert not (tmp_path / "cache").exists()


def test_releasing(opened):
    interpreter, session = filled(opened)
    weight_bytes = session.info()["weight_bytes"]
    interpreter.releaseModel()
    assert interpreter.runSession(session) == 0
    assert session.info()["weight_bytes"] == weight_bytes
    with pytest.raises(MNN.SessionStateError, match="interpreter was released"):
        interpreter.createSession()
    assert interpreter.releaseSession(session) is True
    with pytest.raises(MNN.SessionStateError, match="session was released"):
        interpreter.runSession(session)


def test_unknown_codes_are_errors(opened):
    interpreter, session = opened
    with pytest.raises(MNN.InputError, match="codes 0 … 4, not 9"):
        interpreter.getSessionInfo(session, 9)
    with pytest.raises(MNN.InputError, match="modes 0 … 9, not 10"):
        interpreter.setSessionMode(10)
    assert interpreter.getSessionInfo(session, 3) == 2


def test_version_is_a_text():
    assert MNN.version() == MNN.__version__
