"""Models with weights in files of their own, on both sides: external data in, a sidecar out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mnnx
from mnnx.converter import convert
from mnnx.schema.writer import write_model

TABLES = 3


def _write(folder: Path, rows: int, columns: int) -> Path:
    """A model that adds row i of three tables of float32, which lie in one sparse file: table k is k + 1 in its first row, -k - 1 in
    its last, else zero."""
    size = rows * columns * 4
    with open(folder / "tables.bin", "wb") as file:
        file.truncate(TABLES * size)
        for k in range(TABLES):
            for row, value in ((0, k + 1), (rows - 1, -k - 1)):
                file.seek(k * size + row * columns * 4)
                file.write(np.full(columns, value, np.float32).tobytes())
    tables = [TensorProto(name=f"t{k}", data_type=1, dims=[rows, columns], data_location=TensorProto.EXTERNAL) for k in range(TABLES)]
    for k, table in enumerate(tables):
        for key, value in {"location": "tables.bin", "offset": k * size, "length": size}.items():
            table.external_data.add(key=key, value=str(value))
    nodes = [helper.make_node("Gather", [f"t{k}", "i"], [f"row{k}"]) for k in range(TABLES)]
    nodes.append(helper.make_node("Sum", [f"row{k}" for k in range(TABLES)], ["y"]))
    infos = [helper.make_tensor_value_info("i", 7, ["N"])], [helper.make_tensor_value_info("y", 1, ["N", columns])]
    model = helper.make_model(helper.make_graph(nodes, "tables", *infos, tables), opset_imports=[helper.make_opsetid("", 17)])
    model.metadata_props.add(key="labels", value="a,b")
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def _check(source: Path, rows: int, columns: int) -> None:
    target = source.with_suffix(".mnnx")
    report = mnnx.convert(source, target)
    sidecar = target.with_name("m.mnnx.weights")
    weights = TABLES * rows * columns * 4
    assert report.source_bytes == source.stat().st_size + weights
    assert report.target_bytes == target.stat().st_size + sidecar.stat().st_size > weights
    interpreter = mnnx.Interpreter.from_file(target)
    assert interpreter.metadata == {"labels": "a,b"}
    y = interpreter.create_session().run({"i": np.array([0, 1, rows - 1])})["y"]
    np.testing.assert_array_equal(y, np.repeat(np.float32([[6], [0], [-6]]), columns, 1))


def test_external_data_becomes_a_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "write_model", partial(write_model, sidecar_limit=1000))
    _check(_write(tmp_path, 40, 16), 40, 16)


@pytest.mark.slow
def test_more_than_two_gib(tmp_path: Path) -> None:
    """Needs 2.3 GB of disk and 5 GB of memory."""
    _check(_write(tmp_path, 1 << 15, 6 << 10), 1 << 15, 6 << 10)


@pytest.mark.parametrize("target", ["tables.bin", "tables"])
def test_a_file_of_external_data_is_never_overwritten(tmp_path: Path, target: str) -> None:
    source = _write(tmp_path, 4, 4)
    if target == "tables":  # whose sidecar would have the name of the data
        model = onnx.load(source, load_external_data=False)
        for tensor in model.graph.initializer:
            tensor.external_data[0].value = "tables.weights"
        onnx.save(model, source)
        (tmp_path / "tables.bin").rename(tmp_path / "tables.weights")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for write in (mnnx.convert, partial(mnnx.extract, outputs=["row0"])):
        with pytest.raises(mnnx.ConversionError, match="holds weights of the source"):
            write(source, tmp_path / target)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_part_never_overwrites_the_weights_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "write_model", partial(write_model, sidecar_limit=1000))
    mnnx.convert(_write(tmp_path, 40, 16), tmp_path / "m.mnnx")
    before = (tmp_path / "m.mnnx.weights").read_bytes()
    with pytest.raises(mnnx.ConversionError, match="holds weights of the source"):
        mnnx.extract(tmp_path / "m.mnnx", tmp_path / "m.mnnx.weights", outputs=["row0"])
    assert (tmp_path / "m.mnnx.weights").read_bytes() == before
