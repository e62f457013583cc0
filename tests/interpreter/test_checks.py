"""Values of a wrong kind, given to the public API, end in an InputError that says what is wanted and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mnnx
from mnnx import InputError

IMAGE = np.zeros((4, 4, 3), np.uint8)
RGB = {"source_format": "RGB", "dest_format": "RGB"}
MODEL = '<ir_version: 8, opset_import: ["" : 18]> g (float[n,2] x) => (float[n,2] y) { y = Neg(x) }'


def _process(**fields: Any) -> mnnx.ImageProcess:
    return mnnx.ImageProcess(mnnx.ImageProcessConfig(**RGB, **fields))


def _convert_mnn(source: Any = IMAGE, width: Any = 4, height: Any = 4, stride: Any = 0, dest: Any = None) -> None:
    process = mnnx.CVImageProcess({"sourceFormat": mnnx.CV_ImageFormat_RGB, "destFormat": mnnx.CV_ImageFormat_RGB})
    process.convert(source, width, height, stride, dest)


def _tensor() -> mnnx.Tensor:
    return mnnx.Tensor((1, 2), mnnx.Halide_Type_Float)


WANT_A_NAME: dict[str, Callable[[Any], Any]] = {
    **{f"BackendConfig.{field}": lambda v, f=field: mnnx.BackendConfig(**{f: v}) for field in ("precision", "memory", "power")},
    **{f"ScheduleConfig.{field}": lambda v, f=field: mnnx.ScheduleConfig(**{f: v}) for field in ("backend", "backup")},
    **{
        f"ImageProcessConfig.{field}": lambda v, f=field: mnnx.ImageProcessConfig(**{f: v})
        for field in ("source_format", "dest_format", "filter", "wrap", "yuv_standard", "yuv_range", "layout")
    },
    **{
        f"CVImageProcess {key}": lambda v, k=key: mnnx.CVImageProcess({k: v})
        for key in ("filterType", "sourceFormat", "destFormat", "wrap")
    },
    "dimension type": lambda v: mnnx.Tensor((1, 2), mnnx.Halide_Type_Float, None, v),
    "setSessionMode": lambda v: mnnx.Interpreter.setSessionMode(None, v),
}
WANT_A_WHOLE_NUMBER: dict[str, Callable[[Any], Any]] = {
    "width": lambda v: _process().convert(bytes(48), width=v, height=4),
    "height": lambda v: _process().convert(bytes(48), width=4, height=v),
    "stride": lambda v: _process().convert(bytes(48), width=4, height=4, stride=v),
    "stride of an array": lambda v: _process().convert(IMAGE, stride=v),
    "destination": lambda v: _process().convert(IMAGE, (v, 4)),
    "iw": lambda v: _convert_mnn(width=v),
    "ih": lambda v: _convert_mnn(height=v),
    "bytes per row": lambda v: _convert_mnn(stride=v),
}
WANT_A_NUMBER: dict[str, Callable[[Any], Any]] = {
    "padding": lambda v: _process(padding=v),
    "cubic_coefficient": lambda v: _process(cubic_coefficient=v),
    "setPadding": lambda v: mnnx.CVImageProcess().setPadding(v),
    "setScale": lambda v: mnnx.CVMatrix().setScale(v, 1),
    "preScale": lambda v: mnnx.CVMatrix().preScale(1, 1, v),
    "postTranslate": lambda v: mnnx.CVMatrix().postTranslate(1, v),
    "preRotate": lambda v: mnnx.CVMatrix().preRotate(v),
}
NO_NAMES = [None, 77.5, [], {}, np.ones(2), np.array([]), memoryview(bytearray(2))]
NO_NUMBERS = ["", "7", b"7", [], [[1], [1, 2]], {}, np.ones(2), np.array("a"), object(), 1j]


def _cases(calls: dict[str, Callable[[Any], Any]], values: list[Any]) -> Any:
    rows = [(name, call, i, value) for name, call in calls.items() for i, value in enumerate(values)]
    return pytest.mark.parametrize(
        ("call", "value"),
        [pytest.param(call, value, id=f"{name}-{type(value).__name__}{i}") for name, call, i, value in rows],
    )


@_cases(WANT_A_NAME, NO_NAMES)
def test_a_choice_is_one_of_the_known_values(call: Callable[[Any], Any], value: Any) -> None:
    if value is None and call is WANT_A_NAME["dimension type"]:
        pytest.skip("the default")
    with pytest.raises(InputError):
        call(value)


@_cases(WANT_A_WHOLE_NUMBER, [1.5, float("nan"), float("inf"), *NO_NUMBERS])
def test_a_size_is_a_whole_number(call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(InputError):
        call(value)


@_cases(WANT_A_NUMBER, [None, np.datetime64("2020-01-01"), *NO_NUMBERS])
def test_a_quantity_is_a_number(call: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(InputError):
        call(value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mnnx.ScheduleConfig(save_tensors=[1]), "save_tensors must be a list of names"),
        (lambda: mnnx.ScheduleConfig(save_tensors=np.array(1.5)), "save_tensors must be a list of names"),
        (lambda: mnnx.CVMatrix().setRotate(float("inf")), "an angle must be finite, got inf"),
        (lambda: mnnx.CVMatrix([[1], [1, 2]]), "numbers are wanted"),
        (lambda: mnnx.CVMatrix([2**2000] * 9), "numbers are wanted"),
        (lambda: mnnx.ImageProcess(5), "wants an ImageProcessConfig, got int"),
        (lambda: mnnx.ImageProcess({}), "wants an ImageProcessConfig, got dict"),
        (lambda: _process().convert(IMAGE, dtype="nonsense"), "dtype must be a dtype, got 'nonsense'"),
        (lambda: _process().convert(IMAGE, dtype={"x": 1}), "dtype must be a dtype"),
        (lambda: mnnx.CVImageProcess(5), "wants a dict of settings, got int"),
        (lambda: mnnx.CVImageProcess().setMatrix([[1], [1, 2]]), "numbers are wanted"),
        (lambda: _convert_mnn(dest=None), "wants a Tensor as its destination, got NoneType"),
        (lambda: _convert_mnn(source=(1, 300), dest=_tensor()), "a tuple must hold the image's bytes"),
        (lambda: mnnx.Tensor((1, 2), {"x": 1}), "data type must be a dtype"),
        (lambda: mnnx.Tensor((1,), mnnx.Halide_Type_Int, [float("inf")]), "the data can't be made int32"),
        (lambda: _tensor().copyToHostTensor(None), "copyToHostTensor wants a Tensor, got NoneType"),
        (lambda: mnnx.Interpreter.createRuntime(None), "createRuntime wants a list of at least one config, got None"),
        (lambda: mnnx.Interpreter.createRuntime(np.array(1.5)), "createRuntime wants a list"),
    ],
)
def test_what_is_wanted_is_said(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda session: session.run({"x": np.ones((1, 2), np.float32)}, outputs=np.array(1.5)), "outputs is a list of names, not ndarray"),
        (lambda session: session.interpreter.createSession(np.ones(2)), "config is a dict, not ndarray"),
        (lambda session: session.interpreter.getSessionInput(session, []), r"no input \[\]; its inputs are 'x'"),
        (lambda session: session.interpreter.getSessionOutput(session, {}), "no output {}; its outputs are 'y'"),
        (lambda session: session.interpreter.getSessionInfo(session, np.ones(2)), "getSessionInfo knows the codes 0 … 4"),
    ],
)
def test_what_a_session_wants_is_said(session_of, use: Callable[[mnnx.Session], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        use(session_of(MODEL))


def test_a_picture_larger_than_any_memory() -> None:
    for size in (2**31, 2**62):
        with pytest.raises(mnnx.LimitExceeded):
            _process().convert(IMAGE, (size, size))


def test_an_input_larger_than_any_memory(session_of) -> None:
    huge = np.broadcast_to(np.float32(1), (2**45, 2))
    with pytest.raises(mnnx.LimitExceeded, match="no memory for a copy of input 'x'"):
        session_of(MODEL).inputs["x"].copy_from_host(huge)
