"""Weights stored in 16 bits: the file halves, numbers stay within what 16 bits can tell, and float32 arrays don't pile up."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import mnnx
from mnnx.backends import expansion
from mnnx.schema import dtypes

#: One weight that is packed, one that is read as it is too (Gather), and one that two ops share.
MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 64] x, int64[2] i) => (float[N, 64] y, float[2, 64] z, float[N, 32] u)
    { p = MatMul(x, w) q = Relu(p) y = MatMul(q, shared) z = Gather(shared, i) v = MatMul(x, narrow) u = Add(v, bias) }"""


def small_model(scale: float = 1.0) -> onnx.ModelProto:
    model, rng = onnx.parser.parse_model(MODEL), np.random.default_rng(0)
    for name, shape in (("w", (64, 64)), ("shared", (64, 64)), ("narrow", (64, 32)), ("bias", (32,))):
        array = (rng.standard_normal(shape) * (scale if name == "w" else 1)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


FEED = {"x": np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32), "i": np.array([3, 60])}


@pytest.fixture
def files(tmp_path: Path):
    def make(weights: str, model: onnx.ModelProto | None = None, level: int = 2) -> tuple[Path, mnnx.ConversionReport]:
        path = tmp_path / f"{weights}.mnnx"
        return path, mnnx.convert(model or small_model(), path, level=level, weights=weights)

    return make


def _outputs(path: Path) -> dict[str, np.ndarray]:
    with mnnx.Interpreter.from_file(path) as interpreter, interpreter.create_session() as session:
        return session.run(FEED)


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize(("weights", "bound"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_the_file_halves_and_numbers_stay(files, weights: str, bound: float, level: int) -> None:
    (whole, report), (half, halves) = files("float32", level=level), files(weights, level=level)
    assert halves.target_bytes < 0.6 * report.target_bytes
    assert halves.passes[-1].counts == {f"stored as {weights}": 3}
    for name, wanted in _outputs(whole).items():
        np.testing.assert_allclose(_outputs(half)[name], wanted, atol=bound * np.abs(wanted).max())
    stored = dtypes.from_name(weights)
    rows = mnnx.Interpreter.from_file(half).model.graphs[0].values
    assert {v.constant.dtype for v in rows if v.constant is not None and v.constant.size > 32} == {stored}


def test_what_is_computed_is_what_float32_weights_of_these_values_give(files, tmp_path: Path) -> None:
    model = small_model()
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        rounded = array.astype(np.float16).astype(np.float32) if array.nbytes >= 4096 else array
        tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    mnnx.convert(model, tmp_path / "rounded.mnnx")
    for name, wanted in _outputs(tmp_path / "rounded.mnnx").items():
        np.testing.assert_array_equal(_outputs(files("float16")[0])[name], wanted)


def test_a_weight_out_of_range_stays_and_is_reported(files, caplog) -> None:
    _, report = files("float16", small_model(scale=1e6))
    kept = "kept as float32, not to be expressed in float16"
    assert report.passes[-1].counts == {"stored as float16": 2, kept: 1}
    assert "the weight 'w' stays float32: its values don't fit into float16" in caplog.text
    assert files("bfloat16", small_model(scale=1e6))[1].passes[-1].counts == {"stored as bfloat16": 3}
    assert files("float16", small_model(scale=1e-9))[1].passes[-1].counts[kept] == 1


def _living() -> int:
    gc.collect()
    return len(expansion._LIVING)


def test_float32_arrays_go_where_all_ops_pack_them(files) -> None:
    """Of three weights two are packed only; the one that Gather reads stays. Other sessions and shapes pack nothing anew."""
    before = _living()
    with mnnx.Interpreter.from_file(files("float16")[0]) as interpreter:
        session = interpreter.create_session()
        session.run(FEED)
        assert _living() - before == 1
        packed = dict(session._loaded.weights.packed)
        session.run(FEED | {"x": np.ones((5, 64), np.float32)})
        other = interpreter.create_session()
        other.run(FEED)
        assert _living() - before == 1
        assert session._loaded.weights.packed.keys() == packed.keys()
        session.release()
        other.release()
    del session, other, interpreter, packed
    assert _living() == before


@pytest.mark.parametrize("weights", ["float8", None, 16, "FLOAT16"])
def test_other_kinds_are_an_error(tmp_path: Path, weights) -> None:
    with pytest.raises(mnnx.ConversionError, match="weights must be stored as one of float32, float16, bfloat16"):
        mnnx.convert(small_model(), tmp_path / "m.mnnx", weights=weights)
