"""Chains compute what their units compute one after the other, and are formed where that is so, whatever memory the units share."""

import random

import numpy as np
import pytest

from mnnx.backends.blocked import block, blocked_bytes
from mnnx.backends.cpu.arguments import arguments
from mnnx.backends.cpu.chaining import Elements, Operand, chained
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops import activation, arithmetic, cast, comparison
from mnnx.schema.ops.base import Spec
from mnnx.schema.ops.fused_quantization import ByteTable
from mnnx.schema.ops.normalization import BatchNormalization
from tests.backends.cpu.native import guarded
from tests.backends.cpu.run import cpu

CHAIN = kernel("chain")
COUNT = kernel("selfcheck.count")
TEAMS = {threads: cpu(threads) for threads in (1, 2, 3)}

#: Ops on integers, in which every pattern of bits is a value: what they are in NumPy.
INTEGER_OPS = {
    arithmetic.Add: np.add,
    arithmetic.Sub: np.subtract,
    arithmetic.Mul: np.multiply,
    arithmetic.Max: np.maximum,
    comparison.BitwiseXor: np.bitwise_xor,
}
DTYPES = ("int32", "uint8", "int64")


def shape_of_chains(commands) -> list[int]:
    """The units of each step that the list's units are run in."""
    return [int(unit.args[0]) if unit.kernel is CHAIN else 1 for unit in chained(commands._units, commands.team.threads)]


class Memory:
    """An arena that ends at a page which may not be touched. `expected`: what it must hold when all that is recorded has run."""

    def __init__(self, backend, nbytes: int):
        self.backend = backend
        self.arena = guarded(nbytes)
        self.arena[:] = np.random.default_rng(nbytes).integers(0, 256, nbytes)
        self.expected = self.arena.copy()
        self.commands = backend.new_commands()

    def tensor(self, dtype: str, shape: tuple[int, ...], offset: int) -> DeviceTensor:
        return DeviceTensor("", Spec(np.dtype(dtype), shape), self.backend, self.arena, offset)

    def value(self, tensor: DeviceTensor) -> np.ndarray:
        """What the tensor holds by now, were everything recorded run."""
        return np.ndarray(tensor.shape, tensor.dtype, self.expected, tensor.offset)

    def record(self, op, function, inputs: list[DeviceTensor], output: DeviceTensor) -> None:
        specs = [tensor.spec for tensor in inputs]
        self.backend.create(op, specs, [output.spec]).on_resize(inputs, [output], None)
        self.value(output)[...] = function(*(self.value(tensor).copy() for tensor in inputs))

    def check(self) -> None:
        self.commands.submit(0, len(self.commands))
        np.testing.assert_array_equal(self.arena, self.expected)


def overlap(a: DeviceTensor, b: DeviceTensor) -> bool:
    return a.offset < b.offset + b.spec.nbytes and b.offset < a.offset + a.spec.nbytes


def record_anything(memory: Memory, shape: tuple[int, int], rng: random.Random) -> None:
    """An op on tensors anywhere in the arena, whose result overlaps its inputs in place only."""
    dtype, broadcast = rng.choice(DTYPES), [(shape[1],), (shape[0], 1), (1,), ()]
    op = cast.Cast(to=np.dtype(rng.choice(DTYPES))) if rng.random() < 0.2 else rng.choice(list(INTEGER_OPS))()
    is_cast = isinstance(op, cast.Cast)
    size, offsets = shape[0] * shape[1], len(memory.arena) - 8 * shape[0] * shape[1]

    def place() -> int:
        return rng.choice([0, 0, 0, 64, 8 * size, 8 * size, 16 * size, offsets, rng.randrange(0, offsets, 8)])

    while True:
        shapes = [shape] if is_cast else rng.sample([shape, rng.choice([shape, *broadcast])], 2)
        inputs = [memory.tensor(dtype, dims, place()) for dims in shapes]
        output = memory.tensor(op.to.name if is_cast else dtype, shape, place())
        in_place = [output.offset == x.offset and output.spec == x.spec for x in inputs]
        if all(same or not overlap(output, x) for same, x in zip(in_place, inputs, strict=True)):
            break
    memory.record(op, (lambda x: x.astype(op.to)) if is_cast else INTEGER_OPS[type(op)], inputs, output)


@pytest.mark.parametrize("threads", TEAMS)
@pytest.mark.parametrize("seed", range(40))
def test_units_that_share_memory_in_any_way(seed, threads):
    rng = random.Random(seed)
    shape = rng.choice([(37, 331), (1, 12247), (5, 7), (64, 128), (129, 64)])
    memory = Memory(TEAMS[threads], 8 * (5 * shape[0] * shape[1] + 8))
    for _ in range(rng.randrange(2, 50)):
        record_anything(memory, shape, rng)
    memory.check()


def test_chains_are_formed_of_such_units():
    lengths = []
    for seed in range(40):
        memory, rng = Memory(TEAMS[1], 8 * (5 * 35 + 8)), random.Random(seed)
        for _ in range(20):
            record_anything(memory, (5, 7), rng)
        lengths += shape_of_chains(memory.commands)
    assert max(lengths) > 3
    assert 40 < lengths.count(1) < len(lengths) - 40


@pytest.mark.parametrize("threads", TEAMS)
def test_parts_of_a_chain_run_alone(threads):
    memory = Memory(TEAMS[threads], 8 * 20000)
    x, y = memory.tensor("int32", (20000,), 0), memory.tensor("int32", (20000,), 80000)
    memory.record(arithmetic.Add(), np.add, [x, x], y)
    for _ in range(3):
        memory.record(arithmetic.Add(), np.add, [x, y], y)
    assert shape_of_chains(memory.commands) == [4]
    start, values = memory.value(x).copy(), np.ndarray((20000,), np.int32, memory.arena, 80000)
    for first, last, factor in ((0, 1, 2), (1, 2, 3), (1, 4, 6), (3, 4, 7), (0, 2, 3), (2, 2, 3), (0, 4, 5)):
        memory.commands.submit(first, last)
        np.testing.assert_array_equal(values, start * np.int32(factor))


def test_chains_end_at_other_units_and_host_functions():
    backend, seen = TEAMS[2], []
    memory = Memory(backend, 4 * 3000)
    x, y, z = (memory.tensor("int32", (1000,), offset) for offset in (0, 4000, 8000))
    counted = np.zeros(1000, np.float32)
    memory.record(arithmetic.Add(), np.add, [x, x], y)
    memory.record(arithmetic.Mul(), np.multiply, [y, x], z)
    backend.commands.record(COUNT, arguments(counted, counted.size))
    memory.record(arithmetic.Sub(), np.subtract, [z, y], x)
    backend.commands.record_host(lambda: seen.append(np.ndarray((1000,), np.int32, memory.arena).copy()))
    after = memory.value(x).copy()
    memory.record(arithmetic.Max(), np.maximum, [z, x], x)
    memory.check()
    np.testing.assert_array_equal(seen, [after])
    assert (counted == 1).all()
    assert shape_of_chains(_without_host(memory.commands)) == [2, 1, 2]


def test_long_chains_are_several():
    memory = Memory(TEAMS[2], 8 * 5000)
    x, y = memory.tensor("int32", (5000,), 0), memory.tensor("int32", (5000,), 20000)
    for _ in range(80):
        memory.record(arithmetic.Add(), np.add, [x, y], y)
    lengths = shape_of_chains(memory.commands)
    assert sum(lengths) == 80
    assert 1 < len(lengths) < 10
    memory.check()


def _without_host(commands):
    commands._units = [unit for unit in commands._units if not callable(unit)]
    return commands


WHOLE = Operand(1000, 1400, 4)
#: A unit's inputs and result, the next one's, and whether they may be chained.
PAIRS = {
    "reads what was made": ([Operand(0, 400, 4)], WHOLE, [WHOLE], Operand(2000, 2400, 4), True),
    "in place": ([WHOLE], WHOLE, [WHOLE], WHOLE, True),
    "overwrites what was read": ([WHOLE], Operand(2000, 2400, 4), [Operand(2000, 2400, 4)], WHOLE, True),
    "makes it anew": ([], WHOLE, [], WHOLE, True),
    "reads it one element further": ([], WHOLE, [Operand(1004, 1404, 4)], Operand(2000, 2400, 4), False),
    "reads its bytes": ([], WHOLE, [Operand(1000, 1100, 1)], Operand(2000, 2400, 4), False),
    "reads it in another shape": ([], WHOLE, [Operand(1000, 1400, 0)], Operand(2000, 2400, 4), False),
    "reads some of it for all": ([], WHOLE, [Operand(1000, 1004, 0)], Operand(2000, 2400, 4), False),
    "overwrites what was read for all": ([Operand(1396, 1400, 0)], Operand(0, 400, 4), [], WHOLE, False),
    "overwrites what was read one element further": ([Operand(1004, 1404, 4)], Operand(0, 400, 4), [], WHOLE, False),
    "overwrites what was read in other sizes": ([Operand(1000, 1800, 8)], Operand(0, 400, 4), [], WHOLE, False),
    "overwrites a part of what was made": ([], WHOLE, [], Operand(996, 1396, 4), False),
    "overwrites what was made in other sizes": ([], WHOLE, [], Operand(1000, 1100, 1), False),
    "has nothing to do with it": ([Operand(0, 400, 4)], WHOLE, [Operand(400, 404, 0)], Operand(1400, 1800, 4), True),
    "reads the same": ([Operand(0, 4, 0)], WHOLE, [Operand(0, 4, 0)], Operand(1400, 1800, 4), True),
}


@pytest.mark.parametrize("case", PAIRS)
def test_who_may_follow_whom(case):
    first, made, second, result, legal = PAIRS[case]
    earlier, later = Elements(100, made, tuple(first), 1.0), Elements(100, result, tuple(second), 1.0)
    assert later.follows(earlier) == legal
    assert not later._replace(count=50).follows(earlier)


@pytest.mark.parametrize("backend", TEAMS.values())
def test_floats_are_the_same_to_the_bit(backend):
    """x * a, sigmoid, times x, tanh, in chains on any number of threads and unit by unit."""
    memory = Memory(backend, 12 * 40013)
    x, y, z = (memory.tensor("float32", (40013,), offset * 40013) for offset in (0, 4, 8))
    a = backend.constant("", np.array(0.7, np.float32))
    ops = [(arithmetic.Mul(), [x, a], y), (activation.Sigmoid(), [y], z), (arithmetic.Mul(), [z, y], y), (arithmetic.Tanh(), [y], y)]
    for op, inputs, output in ops:
        backend.create(op, [tensor.spec for tensor in inputs], [output.spec]).on_resize(inputs, [output], None)
    assert shape_of_chains(memory.commands) == [4]
    x.copy_from_host(np.random.default_rng(1).normal(0, 3, x.shape).astype(np.float32))
    memory.commands.submit(0, 4)
    chain = y.copy_to_host()
    alone = TEAMS[1].new_commands()
    for unit in memory.commands._units:
        alone.record(unit.kernel, unit.args)
    alone.submit(0, 4)
    np.testing.assert_array_equal(chain, y.copy_to_host())
    scaled = x.copy_to_host() * np.float64(np.float32(0.7))
    np.testing.assert_allclose(chain, np.tanh(scaled / (1 + np.exp(-scaled))), atol=2e-6)


@pytest.mark.parametrize("count", [256, 100_003])
def test_tables_of_bytes_in_chains(count):
    memory = Memory(TEAMS[2], 6 * 102_400)
    x, y, z = (memory.tensor(dtype, (count,), offset * 102_400) for dtype, offset in (("uint8", 0), ("uint8", 1), ("int32", 2)))
    tables = [TEAMS[2].constant("", np.random.default_rng(2).permutation(256).astype(dtype)) for dtype in ("uint8", "int32")]
    for source, table, target in ((x, tables[0], y), (y, tables[1], z)):
        TEAMS[2].create(ByteTable(), [source.spec, table.spec], [target.spec]).on_resize([source, table], [target], None)
        memory.value(target)[...] = table.constant[memory.value(source)]
    memory.record(arithmetic.Add(), np.add, [z, z], z)
    assert shape_of_chains(memory.commands) == [3]
    memory.check()


def test_blocked_tensors_in_chains():
    backend = TEAMS[2]
    lanes, shape, rng = backend.block_width, (2, 4 * backend.block_width, 31, 33), np.random.default_rng(3)
    spec = Spec(np.dtype(np.float32), shape)
    x, y = (DeviceTensor("", spec, backend, backend.allocate(blocked_bytes(shape, lanes)), layout=lanes) for _ in range(2))
    scale, bias, mean, variance = (rng.uniform(0.5, 2, shape[1]).astype(np.float32) for _ in range(4))
    factor = rng.uniform(-1, 1, (shape[1], 1, 1)).astype(np.float32)
    image = rng.normal(0, 1, shape).astype(np.float32)
    x.memory.view(np.float32)[:] = block(image, lanes).reshape(-1)
    normalize, weights = BatchNormalization(), [backend.constant("", array) for array in (scale, bias, mean, variance)]
    commands = backend.new_commands()
    backend.create(normalize, [spec, *(w.spec for w in weights)], [spec]).on_resize([x, *weights], [y], None)
    for op, other in ((activation.Relu(), None), (arithmetic.Mul(), backend.constant("", factor)), (arithmetic.Add(), x)):
        inputs = [y] if other is None else [y, other]
        backend.create(op, [Spec(t.dtype, t.shape, t.constant) for t in inputs], [spec]).on_resize(inputs, [y], None)
    assert shape_of_chains(commands) == [4]
    commands.submit(0, 4)
    per_channel = [array.astype(np.float64).reshape(-1, 1, 1) for array in (scale, bias, mean, variance)]
    normal = per_channel[0] * (image - per_channel[2]) / np.sqrt(per_channel[3] + normalize.epsilon) + per_channel[1]
    np.testing.assert_allclose(y.copy_to_host(), np.maximum(normal, 0) * factor + image, atol=1e-5)
