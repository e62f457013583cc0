"""Native elementwise kernels compute what the table's expressions mean."""

import numpy as np
import pytest

from mnnx.backends import elementwise
from mnnx.backends.cpu.executions.elementwise import collapse
from mnnx.schema.ops import activation, arithmetic, cast, comparison
from mnnx.schema.ops.base import RuleError, Spec
from mnnx.schema.ops.quantized_arithmetic import QuantizedAdd, QuantizedMul
from tests.backends.cpu.run import cpu, run

RNG = np.random.default_rng(5)
BACKEND = cpu(2)
NAMES = ("float32", "int32", "uint8", "bool", "float64", "int8", "int64", "uint64")
#: Shapes per input: broadcasting within, before and behind.
SHAPES = ((2, 3, 5, 37), (3, 1, 37), (37,))


def values(dtype, shape):
    if dtype == "bool":
        return RNG.random(shape) > 0.5
    if dtype.startswith("f"):
        return RNG.uniform(-3, 3, shape).astype(dtype)
    return RNG.integers(0 if dtype.startswith("u") else -9, 9, shape).astype(dtype)


def cases():
    for op_class in elementwise.TABLE:
        if op_class is comparison.BitShift:
            ops = [op_class(direction="LEFT"), op_class(direction="RIGHT")]
        elif op_class in (cast.Cast, QuantizedAdd, QuantizedMul):
            continue  # these have cases of their own
        elif op_class is arithmetic.Mod:
            ops = [op_class(), op_class(fmod=1)]
        else:
            ops = [op_class()]
        for op in ops:
            common = op_class in (arithmetic.Div, arithmetic.Mod, arithmetic.Max, comparison.BitShift, comparison.And, comparison.Equal)
            for dtype in NAMES if common else NAMES[:2]:
                yield pytest.param(op, dtype, id=f"{op}-{dtype}")


@pytest.mark.parametrize(("op", "dtype"), list(cases()))
def test_expression(op, dtype):
    arity = {arithmetic.Clip: 3, arithmetic.Sum: 3, arithmetic.Mean: 2, arithmetic.Max: 2, arithmetic.Min: 2}.get(
        type(op), len(getattr(elementwise.TABLE[type(op)], "inputs", "ab" if op.arity == 2 else "x"))
    )
    inputs = [values(dtype, shape) for shape in SHAPES[:arity]]
    if isinstance(op, arithmetic.Clip):
        inputs[1:] = [np.array(-1 if dtype[0] in "fi" else 1, dtype), np.array(2, dtype)]
    if isinstance(op, comparison.Where):
        inputs[0] = values("bool", SHAPES[0])
    try:
        op.infer(*map(Spec.of, inputs))
    except RuleError:
        pytest.skip(f"{op} takes no {dtype}")
    kind, (result,) = run(BACKEND, op, *inputs)
    assert kind == "ElementwiseExecution"
    expected = elementwise.evaluate(op, *inputs)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=3e-6, atol=2e-6)


@pytest.mark.parametrize("target", ["float32", "int32", "uint8", "bool", "float64"])
@pytest.mark.parametrize("source", ["float32", "int64", "bool", "uint8"])
def test_cast(source, target):
    x = np.abs(values(source, (7, 19)))
    kind, (result,) = run(BACKEND, cast.Cast(to=np.dtype(target)), x)
    assert kind == "ElementwiseExecution"
    np.testing.assert_array_equal(result, x.astype(target))


@pytest.mark.parametrize(
    ("op", "function", "atol"),
    [
        (arithmetic.Exp(), np.exp, 3e-45),
        (arithmetic.Log(), np.log, 3e-45),
        (arithmetic.Tanh(), np.tanh, 3e-45),
        (activation.Sigmoid(), lambda x: 1 / (1 + np.exp(-x)), 1e-7),  # a fit that promises no more
    ],
)
def test_float32_functions_on_all_magnitudes(op, function, atol):
    x = np.arange(0, 2**32, 65537, dtype=np.uint64).astype(np.uint32).view(np.float32)
    (result,) = run(BACKEND, op, x)[1]
    with np.errstate(all="ignore"):
        expected = function(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(result, expected, rtol=3e-7, atol=atol)


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -1.0, -2.0, 1.7])
def test_powers_with_a_known_exponent(exponent):
    x = np.abs(values("float32", (5, 9)))
    (result,) = run(BACKEND, arithmetic.Pow(), x, np.array(exponent, np.float32))[1]
    np.testing.assert_allclose(result, x**exponent, rtol=1e-6)


def test_results_may_lie_where_an_input_lay():
    x = values("float32", (100, 100))
    spec = Spec(x.dtype, x.shape)
    assert BACKEND.create(arithmetic.Add(), [spec, spec], [spec]).in_place == (0, 1)
    assert BACKEND.create(arithmetic.Add(), [Spec(x.dtype, (100,)), spec], [spec]).in_place == (1,)
    tensor, other = BACKEND.constant("", x.copy()), BACKEND.constant("", x)
    commands = BACKEND.new_commands()
    BACKEND.create(arithmetic.Mul(), [spec, spec], [spec]).on_resize([tensor, other], [tensor], None)
    commands.submit(0, len(commands))
    np.testing.assert_array_equal(tensor.copy_to_host(), x * x)


@pytest.mark.parametrize(
    ("shapes", "sizes", "steps"),
    [
        ([(2, 3, 4), (2, 3, 4)], [24], [[1], [1]]),
        ([(2, 3, 4), ()], [24], [[1], [0]]),
        ([(2, 3, 4), (4,)], [6, 4], [[4, 1], [0, 1]]),
        ([(2, 3, 4, 5), (3, 1, 1)], [2, 3, 20], [[60, 20, 1], [0, 1, 0]]),
        ([(1, 1), (1,)], [1], [[1], [1]]),
        ([(4, 1), (1, 5)], [4, 5], [[1, 0], [0, 1]]),
    ],
)
def test_dims_collapse(shapes, sizes, steps):
    assert collapse(np.broadcast_shapes(*shapes), shapes) == (sizes, steps)


def test_dtypes_without_kernels_run_with_numpy():
    x = values("float32", (3, 4)).astype(np.float16)
    kind, (result,) = run(BACKEND, arithmetic.Add(), x, x)
    assert kind == "HostExecution"
    np.testing.assert_array_equal(result, x + x)
