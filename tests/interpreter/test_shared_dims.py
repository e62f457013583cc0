"""One name of a dim has one size in all inputs, which the optimizer relies on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import mnnx

MODEL = """<ir_version: 9, opset_import: ["" : 20]>
agraph (float[N, 8] a, float[M, 8] b, int64[K] k) => (float[P, 8] y) { y = Concat<axis = 0>(a, b) }"""


def _session(tmp_path: Path, level: int = 2, **names: str) -> mnnx.Session:
    model = onnx.parser.parse_model(MODEL)
    for info in model.graph.input:
        dim = info.type.tensor_type.shape.dim[0]
        dim.dim_param = names.get(info.name, dim.dim_param)
    mnnx.convert(model, tmp_path / "m.mnnx", level=level)
    return mnnx.Interpreter.from_file(tmp_path / "m.mnnx").create_session()


def _feed(a: int, b: int) -> dict[str, np.ndarray]:
    return {"a": np.ones((a, 8), np.float32), "b": np.zeros((b, 8), np.float32), "k": np.zeros(3, np.int64)}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    ("names", "sizes", "message"),
    [
        ({"b": "N"}, (4, 1), "the dim 'N' is 4 in the input 'a' and 1 in 'b': it has one size"),
        ({"b": "2*N"}, (2, 5), r"the dim '2\*N' of the input 'b' must be 4, for N is 2; it is 5"),
        ({"b": "(N + 1)//2"}, (4, 3), r"must be 2, for N is 4; it is 3"),
    ],
)
def test_other_sizes_are_refused(names: dict[str, str], sizes: tuple[int, int], message: str, level: int, tmp_path: Path) -> None:
    session = _session(tmp_path, level, **names)
    with pytest.raises(mnnx.InputError, match=message):
        session.run(_feed(*sizes))
    with pytest.raises(mnnx.InputError, match=message):
        session.resize({name: value.shape for name, value in _feed(*sizes).items()})


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        ({}, (4, 1)),
        ({"b": "N"}, (4, 4)),
        ({"b": "2*N"}, (2, 4)),
        ({"b": "N//2 + K"}, (5, 5)),
        ({"b": "N + K"}, (5, 1)),  # a mask that is broadcast
        ({"b": "2*Q"}, (2, 5)),  # of a dim that no input has
        ({"b": "N!"}, (2, 5)),
        ({"a": "?", "b": "?"}, (2, 5)),
        ({"a": "None", "b": "None"}, (2, 5)),
    ],
)
def test_sizes_that_fit_are_taken(names: dict[str, str], sizes: tuple[int, int], tmp_path: Path) -> None:
    session = _session(tmp_path, **names)
    result = session.run(_feed(*sizes))["y"]
    assert (result.shape, result.sum()) == ((sum(sizes), 8), 8 * sizes[0])
    session.resize({name: value.shape for name, value in _feed(*sizes).items()})
    assert session.outputs["y"].shape == (sum(sizes), 8)
