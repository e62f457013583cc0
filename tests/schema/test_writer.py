"""A file is written whole or not at all, and a large model's weights go to a sidecar that is known to be its own."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from mnnx.errors import ConversionError, ModelFormatError
from mnnx.schema.model import Graph, Model, Node, Value
from mnnx.schema.ops.control_flow import If
from mnnx.schema.reader import read_model, read_model_bytes
from mnnx.schema.writer import serialize, write_model
from tests.schema.models import chain, plain, small


def weights(*arrays: np.ndarray) -> Model:
    values = [Value(f"c{i}", constant=a) for i, a in enumerate(arrays)]
    return Model([Graph("main", values, (), tuple(range(len(arrays))), [])])


def test_an_existing_file_is_replaced_while_it_is_in_use(tmp_path):
    path = tmp_path / "m.mnnx"
    write_model(weights(np.zeros(1000)), path)
    old = read_model(path)
    write_model(weights(np.ones(1000)), path)
    assert old.graphs[0].values[0].constant.sum() == 0
    assert read_model(path).graphs[0].values[0].constant.sum() == 1000
    assert os.listdir(tmp_path) == ["m.mnnx"]


def test_files_get_the_usual_permissions(tmp_path):
    write_model(small(), tmp_path / "m.mnnx")
    (tmp_path / "other").touch()
    assert (tmp_path / "m.mnnx").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("name", ["no/such/folder/m.mnnx", "folder", ".", "x" * 300])
def test_a_path_that_cannot_be_written_is_named(tmp_path, name):
    (tmp_path / "folder").mkdir()
    for limit in (0, 1 << 30):
        with pytest.raises(ConversionError, match=name[:20].replace(".", r"\.")):
            write_model(small(), tmp_path / name if name != "." else ".", sidecar_limit=limit)
    assert os.listdir(tmp_path) == ["folder"]


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """A limit on the size of files stands in for the disk."""
    script = f"""
import numpy as np, resource, signal
from mnnx.errors import ConversionError
from mnnx.schema.writer import write_model
from tests.schema.test_writer import weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for limit in (0, 1 << 30):
    try:
        write_model(weights(np.arange(100_000)), {str(tmp_path / "m.mnnx")!r}, limit)
    except ConversionError as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=os.getcwd())
    assert result.stdout.count("m.mnnx can't be written: File too large") == 2
    assert os.listdir(tmp_path) == []


def test_an_illegal_model_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.mnnx"
    write_model(small(), path)
    broken = small()
    broken.graphs[0].nodes.reverse()
    with pytest.raises(ConversionError, match=r"m\.mnnx is not written.* is not made before it"):
        write_model(broken, path)
    assert plain(read_model(path)) == plain(small())
    assert os.listdir(tmp_path) == ["m.mnnx"]


def test_a_subgraph_belongs_to_one_op():
    branch = chain(name="branch")
    values = [Value("c"), Value("x"), Value("y")]
    main = Graph("main", values, (0, 1), (2,), [Node("if", If(then_branch=branch, else_branch=branch), (0, 1), (2,))])
    with pytest.raises(ConversionError, match="the subgraph 'branch' belongs to more than one op"):
        serialize(Model([main]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: setattr(model.graphs[0].values[1], "shape", (-1, 4)), "value 'x' can't be written.*a dim is -1"),
        (lambda model: setattr(model.graphs[0].values[1], "kind", "tree"), "value 'x' can't be written"),
        (lambda model: setattr(model.graphs[0].values[2], "constant", np.array(["a"])), "value 'weight' can't be written"),
        (lambda model: setattr(model.graphs[0].values[1], "name", "\ud800"), "can't be written"),
        (lambda model: setattr(model, "opset", 2**40), "can't be written"),
        (lambda model: model.graphs.clear(), "the model has no graph"),
        (lambda model: setattr(model.graphs[0].values[1], "name", "condition"), "inputs of the model must have names, each its own"),
    ],
)
def test_what_a_file_cannot_hold_is_named(change, message):
    model = small()
    change(model)
    with pytest.raises(ConversionError, match=message):
        serialize(model)


@pytest.fixture
def with_sidecar(tmp_path):
    model = weights(np.arange(100), np.ones((3, 3), np.float32), np.array(["text"], object), np.zeros((0, 2)))
    write_model(model, tmp_path / "m.mnnx", sidecar_limit=64)
    return model, tmp_path / "m.mnnx", tmp_path / "m.mnnx.weights"


def test_large_weights_go_to_a_sidecar(with_sidecar):
    model, path, sidecar = with_sidecar
    assert sidecar.stat().st_size == 64 + 13 * 64 + 36
    assert plain(read_model(path, verify_weights=True)) == plain(model)
    for value in read_model(path).graphs[0].values:
        if value.dtype != np.dtype(object) and value.constant.size:
            assert value.constant.ctypes.data % 64 == 0
            assert not value.constant.flags.owndata


def test_both_files_can_be_moved(with_sidecar, tmp_path):
    model, path, sidecar = with_sidecar
    (tmp_path / "new").mkdir()
    for file in (path, sidecar):
        file.rename(tmp_path / "new" / file.name)
    assert plain(read_model(tmp_path / "new" / "m.mnnx")) == plain(model)


def test_a_sidecar_that_is_not_there_is_named(with_sidecar):
    _, path, sidecar = with_sidecar
    sidecar.unlink()
    with pytest.raises(ModelFormatError, match=r"should be in the file .*m\.mnnx\.weights, which isn't there"):
        read_model(path)


def test_a_buffer_has_no_sidecar(with_sidecar):
    with pytest.raises(ModelFormatError, match=r"lie in the file 'm\.mnnx\.weights'"):
        read_model_bytes(with_sidecar[1].read_bytes())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "bytes where"),
        (lambda data: data + b"\0", "bytes where"),
        (lambda data: b"", "0 bytes where"),
        (lambda data: b"X" + data[1:], "the weights of another model"),
        (lambda data: data[:20] + b"X" + data[21:], "the weights of another model"),
        (lambda data: data[:-1] + b"X", "don't have their checksum"),
    ],
)
def test_a_wrong_sidecar_is_refused(with_sidecar, change, message):
    _, path, sidecar = with_sidecar
    sidecar.write_bytes(change(sidecar.read_bytes()))
    with pytest.raises(ModelFormatError, match=message):
        read_model(path, verify_weights=True)


def test_damaged_weights_in_the_file_are_refused_where_they_are_checked(tmp_path):
    path = tmp_path / "m.mnnx"
    write_model(weights(np.arange(100), np.ones((3, 3), np.float32)), path)
    assert read_model(path, verify_weights=True).fingerprint
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    read_model(path)
    with pytest.raises(ModelFormatError, match="its weights are damaged: they don't have their checksum"):
        read_model(path, verify_weights=True)


def test_the_sidecar_of_another_model_is_refused(with_sidecar, tmp_path):
    _, path, sidecar = with_sidecar
    write_model(weights(np.arange(100) + 1, np.ones((3, 3), np.float32)), tmp_path / "n.mnnx", sidecar_limit=64)
    (tmp_path / "n.mnnx.weights").replace(sidecar)
    with pytest.raises(ModelFormatError, match="the weights of another model"):
        read_model(path)


@pytest.mark.parametrize("name", ["../weights.txt", "/etc/passwd12", "..", "a/b", "a\\b", ".", "\0"])
def test_a_sidecar_lies_in_the_same_folder(with_sidecar, name):
    _, path, _ = with_sidecar
    data = path.read_bytes()
    place = data.index(b"m.mnnx.weights")
    text = name.encode().ljust(14, b"\0")
    size = len(name).to_bytes(4, "little")
    path.write_bytes(data[: place - 4] + size + text + data[place + 14 :])
    with pytest.raises(ModelFormatError, match="not the name of a file"):
        read_model(path)
