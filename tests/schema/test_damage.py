"""A file with any kind of damage gives a Model or a ModelFormatError that says what is wrong: never another error, never a hang."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mnnx.errors import ModelFormatError
from mnnx.schema import layout
from mnnx.schema.emit import emit
from mnnx.schema.model import Graph, Model, Node, Value
from mnnx.schema.reader import read_model, read_model_bytes, structure_size
from mnnx.schema.walk import Walk
from mnnx.schema.writer import encode, serialize, write_model
from tests import mutation
from tests.schema.models import FLOAT, OPS, chain, random_model, small

SMALL = serialize(small())


def refuse(data: bytes) -> str:
    """The message that the reader refuses `data` with."""
    with pytest.raises(ModelFormatError) as caught:
        read_model_bytes(data)
    return str(caught.value)


def survives(data: bytes) -> bool:
    try:
        read_model_bytes(data)
    except ModelFormatError:
        return False
    return True


def edited(edit: Callable[[list], object], model: Model | None = None) -> bytes:
    """A file whose structure is changed: `edit` gets the rows of its tables, as the reader's walk returns them."""
    data = encode(model or small())
    size = structure_size(data)
    rows = Walk(data[:size]).root(layout.MODEL)
    edit(rows)
    structure = emit(rows)
    weights = data[layout.aligned(size) :]
    return bytes(structure) + (bytes(-len(structure) % layout.ALIGNMENT) + weights if rows[2] else b"")


def test_a_file_is_refused_wherever_it_is_cut():
    for size in range(0, len(SMALL), 7):
        assert not survives(SMALL[:size])
    assert "cut short" in refuse(SMALL[:-1])
    assert "empty" in refuse(b"")
    assert "where" in refuse(SMALL + b"\0")


@pytest.mark.parametrize("block", range(8))
def test_flipped_bits_and_worse_never_surprise(block):
    """Thousands of mutants, of a model with everything and of random ones; `make test-slow` tries more."""
    data = SMALL if block < 4 else serialize(random_model(block))
    structure = structure_size(data)
    start = time.monotonic()
    taken = sum(survives(mutation.mutant(data, structure, block, index)) for index in range(1000))
    assert 0 < taken < 1000
    assert time.monotonic() - start < 60


def test_every_bit_of_the_structure_may_flip():
    data = bytearray(serialize(Model([chain(OPS["LeakyRelu"](alpha=0.5), OPS["Transpose"](perm=(1, 0)))])))
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            survives(bytes(data))
            data[place] ^= 1 << bit


@pytest.mark.parametrize(("smallest", "largest"), [(-1, 4), (5, 4), (-5, -4)])
def test_a_range_has_its_limits_in_order(smallest, largest):
    model = Model([chain(OPS["LeakyRelu"](alpha=0.5))], ranges={"N": (smallest, largest)})
    assert f"the dim 'N' can't have the range {smallest}..{largest}" in refuse(encode(model))


@pytest.mark.parametrize("value", [0, 1, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_every_word_may_be_anything(value):
    data = bytearray(SMALL)
    for place in range(0, structure_size(SMALL), 4):
        old = bytes(data[place : place + 4])
        struct.pack_into("<I", data, place, value)
        survives(bytes(data))
        data[place : place + 4] = old


def test_other_files_are_told_apart(tmp_path):
    assert "not an .mnnx model" in refuse(b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert "not an .mnnx model" in refuse(b"\x08\x07")
    onnx = b"\x08\x07" + b"\x12\x07pytorch" + b"\x1a\x032.1" + b"\x3a\xff\x01" + bytes(300)
    (tmp_path / "model.onnx").write_bytes(onnx)
    with pytest.raises(ModelFormatError, match=r"model\.onnx: this is an ONNX model: convert it first"):
        read_model(tmp_path / "model.onnx")


def test_real_onnx_files_are_told_apart():
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph([], "g", [], [])
    assert "this is an ONNX model" in refuse(onnx.helper.make_model(graph, producer_name="tests").SerializeToString())


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "none.mnnx")
    with pytest.raises(IsADirectoryError):
        read_model(tmp_path)


def test_a_newer_format_is_named():
    assert "format version 2, and this mnnx reads up to 1" in refuse(edited(lambda rows: rows.__setitem__(0, 2)))
    assert "format version is 0" in refuse(edited(lambda rows: rows.__setitem__(0, 0)))


def put(*path_and_value) -> Callable[[list], None]:
    """An edit that puts the last argument where the others lead, from field to field (by name) and row to row (by number)."""
    *path, value = path_and_value

    def edit(rows: list) -> None:
        table, thing, place = layout.MODEL, rows, None
        for step in path:
            holder = thing
            if isinstance(step, str):
                place = [field.name for field in table.fields].index(step)
                form = table.fields[place].form
                table = form.element if isinstance(form, layout.Vector) else form
            else:
                place = step
            thing = holder[place]
        holder[place] = value

    return edit


MAIN = ("graphs", 0)
WEIGHT = ("constants", 0)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("graphs", []), "the model has no graph"),
        (put(*MAIN, "inputs", (0, 1, 99)), "graph 'main': its input is value 99 of 10"),
        (put(*MAIN, "inputs", (0, 1, 1, 8)), "its input 'x' is a constant, or an input already"),
        (put(*MAIN, "inputs", (0, 1, 2, 8)), "its input 'weight' is a constant, or an input already"),
        (put(*MAIN, "outputs", (5, -1)), "its output is value -1 of 10"),
        (put(*MAIN, "outputs", (5, 5)), "the outputs of the model must have names, each its own; 2 have the name 'y'"),
        (put(*MAIN, "inputs", (0, 1)), r"node 'rename' \(Identity\): its input 'list' is not made before it"),
        (put(*MAIN, "nodes", 1, "inputs", (0, 5)), r"node 'choose' \(If\): its input 'y' is not made before it"),
        (put(*MAIN, "nodes", 0, "inputs", (1, 10)), r"node 'multiply' \(MatMul\): an input is value 10 of 10"),
        (put(*MAIN, "nodes", 0, "inputs", (1, -2)), "an input is value -2 of 10"),
        (put(*MAIN, "nodes", 1, "outputs", (4,)), "its output 'product' is made already"),
        (put(*MAIN, "nodes", 1, "outputs", (1,)), "its output 'x' is made already"),
        (put(*MAIN, "nodes", 1, "outputs", (2,)), "its output 'weight' is made already"),
        (put(*MAIN, "nodes", 1, "outputs", (-2,)), "an output is value -2 of 10"),
        (put(*MAIN, "nodes", 0, "outputs", (-1,)), "its input 'product' is not made before it"),
        (put(*MAIN, "nodes", 3, "outputs", ()), "its output 'same list' is made by no node"),
        (put(*MAIN, "nodes", 0, "op", "Frobnicate"), r"node 'multiply' \(Frobnicate\): this mnnx doesn't know the operator"),
        (put(*MAIN, "nodes", 0, "attributes", [["alpha", 1, 1, None, "", (), (), ()]]), "MatMul has no attribute 'alpha'"),
        (put("graphs", 2, "nodes", 0, "attributes", 0, "kind", 3), "LeakyRelu.alpha must be a float, not a string"),
        (put(*MAIN, "nodes", 1, "attributes", 0, "integer", 0), "its subgraph is graph 0, which must stand behind graph 0"),
        (put(*MAIN, "nodes", 1, "attributes", 0, "integer", 3), "its subgraph is graph 3 of 3"),
        (put(*MAIN, "nodes", 1, "attributes", 0, "integer", -1), "its subgraph is graph -1 of 3"),
        (put(*MAIN, "nodes", 1, "attributes", 0, "integer", 2), r"its subgraph 'else' is used by node 'choose' \(If\) already"),
        (lambda rows: rows[7].append(rows[7][1]), "graph 'then' is used by no op"),
        (put(*MAIN, "values", 0, "dtype", 77), "value 'condition' has the unknown element type 77"),
        (put(*MAIN, "values", 0, "kind", 4), "value 'condition' is of an unknown kind"),
        (put(*MAIN, "values", 1, "dims", (-3, 4)), "value 'x' has a dim named by symbol 1 of 1"),
        (put(*MAIN, "values", 1, "dims", (-(2**63),)), "value 'x' has a dim named by symbol"),
        (put(*MAIN, "values", 1, "dims", (1,) * 33), "value 'x' has 33 dims"),
        (put(*MAIN, "values", 2, "constant", 99), "value 'weight' is constant 99 of"),
        (put(*MAIN, "values", 2, "constant", -2), "value 'weight' is of an unknown kind"),
        (put(*MAIN, "values", 2, "kind", 1), "value 'weight' is constant 0 of 4, or not a tensor"),
        (put(*MAIN, "values", 1, "quantization", [4, -1, -1, 0]), "value 'x' is quantized with a constant that isn't there"),
        (put(*WEIGHT, "dtype", 0), "constant 0 has the unknown element type 0"),
        (put(*WEIGHT, "dtype", 8), "constant 0 is not where a constant of its element type is"),
        (put(*WEIGHT, "dtype", 11), r"constant 0, float64 of shape \[4, 4\], can't have 64 bytes"),
        (put(*WEIGHT, "dims", (4, -4)), r"constant 0 can't have the shape \[4, -4\]"),
        (put(*WEIGHT, "dims", (2**62, 2**62, 2**62)), "can't have 64 bytes"),
        (put(*WEIGHT, "dims", (2**32, 2**32)), "can't have 64 bytes"),
        (put(*WEIGHT, "dims", (1,) * 33), "can't have the shape"),
        (put(*WEIGHT, "storage", 1), "constant 0 lies in a file that isn't named"),
        (put(*WEIGHT, "storage", 2), "constant 0 is not where"),
        (put(*WEIGHT, "storage", 7), "constant 0 lies in a file that isn't named"),
        (put(*WEIGHT, "offset", 4), "constant 0 can't lie at byte 4 with 64 bytes"),
        (put(*WEIGHT, "offset", 2**40), "can't lie at byte"),
        (put(*WEIGHT, "offset", 2**64 - 64), "can't lie at byte"),
        (put(*WEIGHT, "size", 60), "can't have 60 bytes"),
        (put("constants", 1, "dims", (4,)), r"constant 1 of shape \[4\] has 3 strings"),
        (put("constants", 1, "texts", ()), r"constant 1 of shape \[3\] has 0 strings"),
        (put("weights_size", 2**63), "the file is cut short"),
    ],
    ids=lambda value: value if isinstance(value, str) else "edit",
)
def test_what_cannot_be_is_named(edit, message):
    with pytest.raises(ModelFormatError, match=message):
        read_model_bytes(edited(edit))


def test_an_empty_constant_has_limits_too():
    model = Model([Graph("main", [Value("c", constant=np.zeros((0, 3)))], (), (0,), [])])
    assert survives(edited(put("constants", 0, "dims", (0, 2**40)), model))
    assert "can't have 0 bytes" in refuse(edited(put("constants", 0, "dims", (0, 2**40, 2**40)), model))


def test_bytes_that_are_no_bool_are_refused():
    data = serialize(Model([Graph("main", [Value("c", constant=np.array([True, False]))], (), (0,), [])]))
    assert "constant 0 holds bytes that are no bool" in refuse(data[:-1] + b"\2")


def nested(depth: int) -> Graph:
    graph = chain(name="innermost")
    for level in range(depth):
        values = [Value("n", np.dtype("int64"), ()), Value("go on", np.dtype(bool), ()), Value("x", FLOAT), Value("y", FLOAT)]
        loop = Node(f"loop {level}", OPS["Loop"](body=graph, states=1), (0, 1, 2), (3,))
        graph = Graph(f"level {level}", values, (0, 1, 2), (3,), [loop])
    return graph


def test_subgraphs_nest_only_so_deep():
    assert survives(encode(Model([nested(layout.MAX_DEPTH)])))
    assert "nested more than 32 deep" in refuse(encode(Model([nested(layout.MAX_DEPTH + 1)])))


def shared_vector(count: int) -> bytes:
    """The structure of a model whose graphs vector points `count` times at one graph, whose nodes point `count` times at one node."""
    import flatbuffers

    from mnnx.schema.generated import mnnx_generated as fbs

    def again(table: int) -> int:
        builder.StartVector(4, count, 4)
        for _ in range(count):
            builder.PrependUOffsetTRelative(table)
        return builder.EndVector()

    builder = flatbuffers.Builder(0)
    op = builder.CreateString("Relu")
    fbs.NodeStart(builder)
    fbs.NodeAddOp(builder, op)
    nodes = again(fbs.NodeEnd(builder))
    fbs.GraphStart(builder)
    fbs.GraphAddNodes(builder, nodes)
    graphs = again(fbs.GraphEnd(builder))
    fbs.ModelStart(builder)
    fbs.ModelAddGraphs(builder, graphs)
    builder.Finish(fbs.ModelEnd(builder), file_identifier=layout.IDENTIFIER)
    return bytes(builder.Output())


def test_a_small_file_cannot_make_much_of_itself():
    from mnnx.schema.walk import Damage

    start = time.process_time()
    with pytest.raises(Damage, match="the same bytes are used again and again"):
        Walk(shared_vector(20_000)).root(layout.MODEL)
    assert time.process_time() - start < 2


def test_overlapping_strings_cannot_make_much_of_themselves():
    """Every word is the length of a string that reaches to the end of the file."""
    from mnnx.schema.walk import Damage

    count = 50_000
    word = struct.pack("<I", 4 * count - 64 & ~0xFF80FF80 or 4)
    offsets = b"".join(struct.pack("<I", 4 * count + 4) for _ in range(count))
    walk = Walk(struct.pack("<I", count) + offsets + word * 2 * count + bytes(4))
    with pytest.raises(Damage, match="again and again"):
        walk._reader(layout.Vector("string"))(0)


def test_the_verifier_reads_what_flatc_writes(tmp_path):
    """Another writer may order fields, tables and vtables in its own way."""
    import shutil
    import subprocess
    import sys

    beside_python = Path(sys.executable).with_name("flatc")
    flatc = str(beside_python) if beside_python.exists() else shutil.which("flatc")
    if flatc is None:
        pytest.skip("flatc is not installed; it is in the dev extra")
    schema = Path(layout.__file__).with_name("mnnx.fbs")
    text = """{format_version: 1, structure_size: %d, symbols: ["N"], graphs: [{name: "main", inputs: [0], outputs: [1],
    values: [{name: "x", dtype: 1, dims: [-2, 4]}, {name: "y"}],
    nodes: [{name: "n", op: "LeakyRelu", inputs: [0], outputs: [1], attributes: [{name: "alpha", kind: FLOAT, real: 0.5}]}]}]}"""
    for size in (1, 0):
        (tmp_path / "model.json").write_text(text % (size or (tmp_path / "model.mnnx").stat().st_size))
        subprocess.run([flatc, "-b", "-o", str(tmp_path), str(schema), str(tmp_path / "model.json")], check=True)
    graph = read_model(tmp_path / "model.mnnx").graphs[0]
    assert graph.nodes[0].op.alpha == 0.5
    assert graph.values[0].shape == ("N", 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_more_mutants(seed, tmp_path):
    write_model(random_model(100 + seed) if seed else small(), tmp_path / "m.mnnx")
    report = mutation.run(tmp_path / "m.mnnx", "mnnx.schema.reader:read_model_bytes", seed, 10_000)
    assert not report.failures, report
