"""Convolutions in the blocked layout against a naive computation in float64."""

import itertools

import numpy as np
import pytest

from mnnx.backends.backend import SharedWeights
from mnnx.backends.blocked import blocked_bytes
from mnnx.backends.cpu import creators
from mnnx.backends.cpu.backend import CpuBackend
from mnnx.backends.tensor import DeviceTensor
from mnnx.backends.tuning import Choice, Tuner
from mnnx.interpreter.config import BackendConfig, ScheduleConfig
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.fused import FusedConv, FusedConvTranspose

RNG = np.random.default_rng(11)
START = RNG.bit_generator.state
#: Winograd's transforms round more than plain sums: up to 3.5e-6 of the largest value was seen over many random images.
WINOGRAD_BOUND = 6e-6


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    RNG.bit_generator.state = START


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def blocked(op: Op, x, w, bias=None, residual=None, threads=1, plain_source=False, memory="normal", tuner=None):
    """The result of `op` with x (unless plain_source), the residual and the result blocked; None where it has no such way.

    memory "low": without Winograd's algorithm.
    """
    backend = CpuBackend(ScheduleConfig(num_threads=threads, backend_config=BackendConfig(memory=memory)), SharedWeights())
    backend.tuner = tuner
    arrays = [x, w, bias, residual][: 4 if residual is not None else 3 if bias is not None else 2]
    constants = (1, 2)
    specs = [None if a is None else Spec(a.dtype, a.shape, a if i in constants else None) for i, a in enumerate(arrays)]
    result = op.infer(*specs)
    create, supports = creators.find(type(op))
    assert supports(op, specs, (result,)) is None
    execution = create(op, backend, specs, (result,))
    source = 0 if plain_source else backend.block_width
    ways = [way for way in execution.layouts(specs, (result,), backend.block_width) if way.inputs[0] == source]
    if not ways:
        return None
    (execution.way,) = ways
    nbytes = execution.scratch_bytes(specs, (result,))
    scratch = DeviceTensor("", Spec(np.dtype("uint8"), (nbytes,)), backend, backend.allocate(nbytes)) if nbytes else None
    tensors = []
    for i, (array, layout) in enumerate(zip(arrays, execution.way.inputs, strict=True)):
        if array is None or i in constants:
            tensors.append(None if array is None else backend.constant("", array))
            continue
        tensors.append(_tensor(backend, Spec(array.dtype, array.shape), layout))
        tensors[-1].copy_from_host(array)
        if layout:  # lanes past the last channel hold anything finite
            memory = tensors[-1].memory.view(np.float32).reshape(array.shape[0], -1, *array.shape[2:], layout)
            memory[:, -1, ..., (array.shape[1] - 1) % layout + 1 :] = 1e3
    y = _tensor(backend, result, execution.way.outputs[0])
    y.memory.view(np.float32)[:] = np.nan
    commands = backend.new_commands()
    execution.on_resize(tensors, (y,), scratch)
    commands.submit(0, len(commands))
    assert np.isfinite(y.memory.view(np.float32)).all()
    backend.release()
    return y.copy_to_host()


def _tensor(backend, spec, layout):
    nbytes = blocked_bytes(spec.shape, layout) if layout else spec.nbytes
    return DeviceTensor("", spec, backend, backend.allocate(nbytes), layout=layout)


def expected(op: Conv, x, w, bias=None, residual=None):
    """2-D (or 1-D) convolution, tap by tap."""
    if x.ndim == 3:
        flat = Conv(
            group=op.group, strides=(1, *(op.strides or (1,))), dilations=(1, *(op.dilations or (1,))),
            pads=(0, *(op.pads or (0, 0))[:1], 0, *(op.pads or (0, 0))[1:]),
        )  # fmt: skip
        return expected(flat, x[:, :, None], w[:, :, None], bias)[:, :, 0]
    g = op.geometry(x.shape, w.shape)
    n, m = x.shape[0], w.shape[0]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((b, e + 64) for b, e in zip(g.begin, g.end, strict=True))))
    y = np.zeros((n, m, *g.output))
    per_group, outputs = w.shape[1], m // op.group
    for ky, kx in itertools.product(*map(range, g.kernel)):
        top, left = ky * g.dilations[0], kx * g.dilations[1]
        taps = padded[:, :, top :: g.strides[0], left :: g.strides[1]][:, :, : g.output[0], : g.output[1]]
        for group in range(op.group):
            part = taps[:, group * per_group : (group + 1) * per_group]
            rows = slice(group * outputs, (group + 1) * outputs)
            y[:, rows] += np.einsum("oc,nchw->nohw", w[rows, :, ky, kx].astype(np.float64), part)
    if bias is not None:
        y += bias[:, None, None]
    return y if residual is None else y + residual


def expected_transposed(op: ConvTranspose, x, w, bias=None, residual=None):
    """2-D transposed convolution: every input pixel is added, tap by tap, to the whole output, which is cropped then."""
    g = op.geometry(x.shape, w.shape)
    per_group, outputs = x.shape[1] // op.group, w.shape[1]
    room = [(n - 1) * s + (k - 1) * d + 1 + 64 for n, s, k, d in zip(g.input, g.strides, g.kernel, g.dilations, strict=True)]
    y = np.zeros((x.shape[0], outputs * op.group, *room))
    for ky, kx in itertools.product(*map(range, g.kernel)):
        rows, columns = (
            slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, n, s in zip((ky, kx), g.dilations, g.input, g.strides, strict=True)
        )
        for group in range(op.group):
            source = slice(group * per_group, (group + 1) * per_group)
            terms = np.einsum("co,nchw->nohw", w[source, :, ky, kx].astype(np.float64), x[:, source])
            y[:, group * outputs : (group + 1) * outputs, rows, columns] += terms
    y = y[:, :, g.begin[0] : g.begin[0] + g.output[0], g.begin[1] : g.begin[1] + g.output[1]]
    if bias is not None:
        y += bias[:, None, None]
    return y if residual is None else y + residual


def check(op, x, w, bias=None, residual=None, activation=lambda y: y, bound=3e-6, **options):
    got = blocked(op, x, w, bias, residual, **options)
    assert got is not None
    sums = (expected_transposed if isinstance(op, ConvTranspose) else expected)(op, x, w, bias, residual)
    want = activation(sums)
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= bound * max(1, np.abs(sums).max())


class Forced(Tuner):
    """Chooses the candidate at an index, where there are so many; notes their names."""

    def __init__(self, index: int):
        super().__init__()
        self.index = index
        self.offered: dict[str, list[str]] = {}

    def choose(self, backend, problem, candidates, prepare):
        self.offered[problem] = list(candidates)
        name = candidates[min(self.index, len(candidates) - 1)]
        return Choice(name, {name: 1})


def check_all_candidates(op, x, w, bias=None, residual=None, **options):
    """The same for every candidate that tuning has; gives their names."""
    index, names = 0, [""]
    while index < len(names):
        tuner = Forced(index)
        check(op, x, w, bias, residual, tuner=tuner, bound=WINOGRAD_BOUND, **options)
        names = max(tuner.offered.values(), key=len)
        index += 1
    return names


@pytest.mark.parametrize(
    ("channels", "outputs", "size"),
    [(16, 16, (5, 7)), (3, 5, (1, 2)), (24, 40, (14, 14)), (17, 100, (3, 2)), (64, 48, (13, 13)), (33, 65, (1, 31)), (8, 1000, (7, 7))],
)
def test_pointwise(channels, outputs, size):
    check(Conv(), f32(2, channels, *size), f32(outputs, channels, 1, 1), f32(outputs))


@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (7, 7), (1, 3), (3, 1), (2, 2), (4, 6)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 3), (3, 1)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 3, 1)])
def test_windows(kernel, strides, pads):
    x, w = f32(1, 19, 15, 17), f32(21, 19, *kernel)
    check(Conv(strides=strides, pads=pads), x, w, f32(21))


@pytest.mark.parametrize("width", [1, 2, 3, 5, 6, 13, 14, 15, 27, 29, 30, 55])
@pytest.mark.parametrize("stride", [1, 2])
def test_widths(width, stride):
    op = Conv(pads=(1, 1, 1, 1), strides=(stride, stride))
    check(op, f32(1, 20, 4, width), f32(33, 20, 3, 3), memory="low")


@pytest.mark.parametrize("height", [1, 4, 7, 14])
@pytest.mark.parametrize("width", [2, 5, 12, 31])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 2, 3, 1), (2, 0, 2, 2)])
def test_squares(height, width, pads):
    """Where Winograd's algorithm is chosen, on images that aren't whole squares."""
    check(Conv(pads=pads), f32(2, 40, height, width), f32(72, 40, 3, 3), f32(72), bound=WINOGRAD_BOUND)


def test_squares_of_few_and_many_channels():
    check(Conv(pads=(1, 1, 1, 1)), f32(1, 16, 56, 56), f32(16, 16, 3, 3), f32(16), bound=WINOGRAD_BOUND)
    check(Conv(pads=(1, 1, 1, 1)), f32(1, 256, 28, 30), f32(32, 256, 3, 3), f32(32), bound=WINOGRAD_BOUND)


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 7, 9])
def test_numbers_of_output_channels(blocks):
    for memory in ("normal", "low"):
        check(Conv(pads=(1, 1, 1, 1)), f32(1, 16, 9, 9), f32(16 * blocks - 3, 16, 3, 3), f32(16 * blocks - 3), memory=memory)


@pytest.mark.parametrize("dilation", [2, 3, 6])
def test_dilations(dilation):
    pads = (dilation,) * 4
    check(Conv(dilations=(dilation, dilation), pads=pads), f32(1, 18, 11, 20), f32(20, 18, 3, 3), f32(20))
    check(Conv(dilations=(dilation, 1), strides=(2, 2), pads=pads), f32(1, 18, 16, 20), f32(20, 18, 3, 3), f32(20))


@pytest.mark.parametrize("pads", [(5, 5, 5, 5), (0, 9, 0, 0), (9, 0, 9, 9)])
def test_windows_within_the_padding(pads):
    check(Conv(pads=pads), f32(1, 16, 4, 5), f32(16, 16, 3, 3), f32(16))


@pytest.mark.parametrize("channels", [1, 3, 4, 20])
@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_plain_source(channels, kernel, stride):
    op = Conv(strides=(stride, stride), pads=(kernel // 2,) * 4)
    check(op, f32(2, channels, 30, 31), f32(24, channels, kernel, kernel), f32(24), plain_source=True)


def test_plain_source_with_dilation():
    check(Conv(dilations=(2, 2), pads=(2, 2, 2, 2)), f32(1, 3, 30, 31), f32(24, 3, 3, 3), f32(24), plain_source=True)


@pytest.mark.parametrize("groups", [2, 3])
def test_groups_of_whole_blocks(groups):
    check(Conv(group=groups, pads=(1, 1, 1, 1)), f32(2, 32 * groups, 9, 8), f32(48 * groups, 32, 3, 3), f32(48 * groups))


def test_groups_of_odd_sizes_run_plain():
    assert blocked(Conv(group=2), f32(1, 10, 4, 4), f32(32, 5, 1, 1)) is None
    assert blocked(Conv(group=2), f32(1, 32, 4, 4), f32(10, 16, 1, 1)) is None


def test_one_dimension():
    check(Conv(pads=(2, 2)), f32(2, 20, 50), f32(30, 20, 5), f32(30))


@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (1, 7), (7, 1), (2, 4)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 2, 3, 1)])
def test_depthwise(kernel, strides, pads):
    check(Conv(group=37, strides=strides, pads=pads), f32(2, 37, 15, 17), f32(37, 1, *kernel), f32(37))


@pytest.mark.parametrize("width", [1, 2, 3, 5, 6, 7, 13, 14, 15, 16, 27, 28, 55])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_widths(width, stride):
    check(Conv(group=16, strides=(stride, stride), pads=(1, 1, 1, 1)), f32(1, 16, 5, width), f32(16, 1, 3, 3), f32(16))


@pytest.mark.parametrize("dilation", [2, 3])
def test_depthwise_dilations(dilation):
    check(Conv(group=40, dilations=(dilation, dilation), pads=(dilation,) * 4), f32(1, 40, 20, 20), f32(40, 1, 3, 3), f32(40))


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("group", [1, 32])
@pytest.mark.parametrize("width", [14, 23])
def test_residual_and_activation(kernel, group, width):
    op = FusedConv(group=group, pads=(kernel // 2,) * 4, activation="Clip", activation_parameters=(0.0, 6.0))
    x, w, residual = f32(1, 32, 14, width), f32(32, 32 // group, kernel, kernel), f32(1, 32, 14, width)
    for memory in ("normal", "low"):
        check(op, x, w, f32(32), residual, activation=lambda y: np.clip(y, 0, 6), memory=memory)


@pytest.mark.parametrize("activation", ["Relu", "HardSwish", "Sigmoid"])
def test_activations(activation):
    functions = {
        "Relu": lambda y: np.maximum(y, 0),
        "HardSwish": lambda y: y * np.clip(y / 6 + 0.5, 0, 1),
        "Sigmoid": lambda y: 1 / (1 + np.exp(-y)),
    }
    op = FusedConv(pads=(1, 1, 1, 1), activation=activation)
    check(op, f32(1, 16, 9, 9), f32(16, 16, 3, 3) / 12, f32(16), activation=functions[activation])


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize(("channels", "outputs", "size", "kernel"), [(64, 320, 7, 1), (32, 64, 28, 3), (16, 16, 56, 1), (512, 64, 3, 3)])
def test_threads(threads, channels, outputs, size, kernel):
    op = Conv(pads=(kernel // 2,) * 4)
    for memory in ("normal", "low"):
        check(op, f32(1, channels, size, size), f32(outputs, channels, kernel, kernel), f32(outputs), threads=threads, memory=memory)
    if channels == 64:
        check(Conv(group=64, pads=(1, 1, 1, 1)), f32(1, 64, 28, 28), f32(64, 1, 3, 3), f32(64), threads=threads)


@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (4, 4), (2, 5)])
@pytest.mark.parametrize("strides", [(2, 2), (1, 1), (2, 3)])
@pytest.mark.parametrize(("pads", "more"), [((0, 0, 0, 0), (0, 0)), ((1, 1, 1, 1), (0, 0)), ((1, 0, 1, 2), (0, 1))])
def test_transposed(kernel, strides, pads, more):
    op = ConvTranspose(strides=strides, pads=pads, output_padding=more)
    x, w = f32(1, 20, 6, 9), f32(20, 35, *kernel)
    if any(k < s for k, s in zip(kernel, strides, strict=True)):
        assert blocked(op, x, w) is None
    else:
        check(op, x, w, f32(35))


def test_transposed_with_groups_and_residual():
    op = FusedConvTranspose(strides=(2, 2), group=2, activation="Relu")
    x, w, residual = f32(2, 32, 7, 7), f32(32, 16, 2, 2), f32(2, 32, 14, 14)
    check(op, x, w, f32(32), residual, activation=lambda y: np.maximum(y, 0))


@pytest.mark.parametrize("size", [(1, 1), (1, 30), (15, 2)])
def test_transposed_sizes(size):
    check(ConvTranspose(strides=(2, 2), pads=(1, 1, 1, 1)), f32(1, 16, *size), f32(16, 16, 4, 4), f32(16), threads=2)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("outputs", "height", "width"), [(72, 13, 14), (20, 28, 9), (150, 7, 7)])
def test_every_algorithm_and_tile_that_tuning_tries(outputs, height, width, threads):
    x, bias, residual = f32(1, 40, height, width), f32(outputs), f32(1, outputs, height, width)
    w = f32(outputs, 40, 3, 3)
    names = check_all_candidates(Conv(pads=(1, 1, 1, 1)), x, w, bias, threads=threads)
    assert len({name.rpartition(" ")[0] for name in names}) >= 2
    names = check_all_candidates(FusedConv(pads=(1, 1, 1, 1)), x, w, bias, residual, threads=threads, memory="low")
    assert all(name.startswith(("product", "plain", "from plain")) for name in names)
    assert len(check_all_candidates(FusedConv(), x, w[:, :, :1, :1].copy(), bias, residual, threads=threads)) >= 2


@pytest.mark.parametrize("stride", [1, 2])
def test_every_tile_that_tuning_tries_for_other_sources_and_kinds(stride):
    op = Conv(strides=(stride, stride), pads=(1, 1, 1, 1))
    assert len(check_all_candidates(op, f32(1, 3, 30, 31), f32(64, 3, 3, 3), f32(64), plain_source=True)) >= 3
    depthwise = Conv(group=37, strides=(stride, stride), pads=(1, 1, 1, 1))
    assert len(check_all_candidates(depthwise, f32(2, 37, 15, 28), f32(37, 1, 3, 3), f32(37))) >= 3
    check_all_candidates(ConvTranspose(strides=(stride, stride)), f32(1, 20, 6, 9), f32(20, 35, 3, 3), f32(35))


@pytest.mark.parametrize(("channels", "outputs", "kernel", "size"), [(64, 96, 3, 14), (24, 144, 1, 28), (512, 512, 3, 7), (32, 16, 1, 56)])
@pytest.mark.parametrize("memory", ["normal", "low"])
def test_the_first_candidate_is_the_one_without_tuning(channels, outputs, kernel, size, memory):
    backend = CpuBackend(ScheduleConfig(num_threads=2, backend_config=BackendConfig(memory=memory)), SharedWeights())
    w, tuner = f32(outputs, channels, kernel, kernel), Forced(0)
    specs = [Spec(np.dtype("float32"), (1, channels, size, size)), Spec(w.dtype, w.shape, w)]
    op = Conv(pads=(kernel // 2,) * 4)
    chosen = creators.find(Conv)[0](op, backend, specs, (op.infer(*specs),)).plan(True).name
    backend.tuner = tuner
    creators.find(Conv)[0](op, backend, specs, (op.infer(*specs),)).layouts(specs, (op.infer(*specs),), backend.block_width)
    (names,) = tuner.offered.values()
    assert next(name for name in names if name != "plain") == chosen
    backend.release()
