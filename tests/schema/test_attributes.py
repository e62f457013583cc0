"""Attributes of every annotation go into a file and come back; what an op doesn't allow is refused with its name."""

import ml_dtypes
import numpy as np
import pytest

from mnnx.errors import ConversionError, ModelFormatError
from mnnx.schema import attributes
from mnnx.schema.attributes import Attribute
from mnnx.schema.model import Graph, Model, Node, Value
from mnnx.schema.ops.base import OPS, Op, Subgraph, load_all, op
from mnnx.schema.reader import read_model_bytes
from mnnx.schema.writer import encode, serialize
from tests.schema.models import chain, plain


class Everything(Op):
    needed: int
    flag: bool = False
    number: float = 0.5
    text: str = "a"
    dtype: np.dtype = np.dtype("float32")
    maybe: int | None = 3
    absent: float | None = None
    ints: tuple[int, ...] = (1, 2)
    floats: tuple[float, ...] = ()
    texts: tuple[str, ...] = ("x",)
    lists: tuple[tuple[int, ...], ...] = ()
    array: np.ndarray | None = None
    body: Subgraph | None = None


@pytest.fixture(autouse=True)
def everything():
    load_all()
    op("tests::Everything")(Everything)
    yield
    del OPS["tests::Everything"]


def model_of(one: Op) -> Model:
    return Model([Graph("main", [Value("x"), Value("y")], (0,), (1,), [Node("n", one, (0,), (1,))])])


def round_trip(one: Op) -> Op:
    return read_model_bytes(serialize(model_of(one))).graphs[0].nodes[0].op


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"flag": True, "number": -0.0, "text": "", "dtype": np.dtype(ml_dtypes.bfloat16), "maybe": None, "absent": float("inf")},
        {"number": 0.0, "dtype": np.dtype(object), "maybe": -(2**63), "ints": (), "floats": (1e300, -2.5), "texts": ("", "ü")},
        {"ints": tuple(range(1000)), "lists": ((), (1, 2), (-3,)), "array": np.arange(6.0).reshape(2, 3)},
        {"array": np.array(["a", "b"], object), "body": chain(name="inner")},
    ],
    ids=str,
)
def test_every_annotation_survives(values):
    one = Everything(needed=7, **values)
    assert plain(round_trip(one)) == plain(one)
    assert repr(round_trip(one).number) == repr(one.number)


def test_defaults_take_no_room():
    rows = attributes.encode(Everything(needed=7, number=0.5, ints=(1, 2)), lambda array: 0, lambda graph: 0)
    assert [row.name for row in rows] == ["needed"]


@pytest.mark.parametrize("operator", sorted(load_all()))
def test_every_operator_can_be_written(operator):
    attributes.kinds(OPS[operator])


def decode(*rows: Attribute) -> Op:
    return attributes.decode(Everything, rows, [np.zeros(2)], lambda index: None)


NEEDED = Attribute("needed", attributes.INT, integer=1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "needs the attribute 'needed'"),
        ([NEEDED, NEEDED], "given twice"),
        ([NEEDED, Attribute("color", attributes.INT)], "has no attribute 'color'"),
        ([Attribute("needed", attributes.FLOAT, real=1.0)], "must be an int, not a float"),
        ([Attribute("needed", 99)], "must be an int, not something of kind 99"),
        ([Attribute("needed", attributes.NONE)], "must be an int, not nothing"),
        ([NEEDED, Attribute("flag", attributes.INT, integer=2)], "must be bool"),
        ([NEEDED, Attribute("number", attributes.FLOAT)], "must be float"),
        ([NEEDED, Attribute("dtype", attributes.DTYPE, text="f8,i4")], "no dtype"),
        ([NEEDED, Attribute("dtype", attributes.STRING, text="float32")], "must be a dtype, not a string"),
        ([NEEDED, Attribute("array", attributes.TENSOR, integer=1)], "constant 1 of 1"),
        ([NEEDED, Attribute("array", attributes.TENSOR, integer=-1)], "constant -1 of 1"),
        ([NEEDED, Attribute("lists", attributes.INT_LISTS, integers=(3, 1, 2))], "a list of 3 ints stands where 2 are left"),
        ([NEEDED, Attribute("lists", attributes.INT_LISTS, integers=(-1, 1))], "a list of -1 ints"),
    ],
    ids=str,
)
def test_what_the_op_does_not_allow_is_refused(rows, message):
    with pytest.raises((TypeError, ValueError), match=message):
        decode(*rows)


def test_an_illegal_attribute_names_its_node(monkeypatch):
    data = encode(model_of(Everything(needed=2)))
    monkeypatch.setattr(Everything, "check", lambda self: 1 // 0)
    with pytest.raises(ModelFormatError, match=r"graph 'main': node 'n' \(tests::Everything\): illegal attributes: .*by zero"):
        read_model_bytes(data)


def test_what_a_file_cannot_hold_names_its_node():
    with pytest.raises(ConversionError, match=r"graph 'main': node 'n' \(tests::Everything\)"):
        serialize(model_of(Everything(needed=1, array=np.array([b"bytes"], object))))
    with pytest.raises(ConversionError, match="written"):
        serialize(model_of(Everything(needed=2**63)))
