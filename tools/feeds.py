"""What commands feed to a model: files, values and pictures that the user names, and seeded random values for the rest."""

from __future__ import annotations

import functools
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mnnx.errors import InputError, LimitExceeded, MnnxError

if TYPE_CHECKING:
    import numpy as np

    from mnnx.interpreter.tensor import SessionTensor

_WORDS = ("alpha", "beta", "gamma", "delta", "one", "two", "three", "Ünïcode")


@dataclass(frozen=True)
class FeedOptions:
    """The options that `feed_options` adds to a command."""

    values: Mapping[str, str]  # input name → file or JSON; "" where no name was given
    shapes: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, int]  # name of a dim → its size
    seed: int
    image: Mapping[str, Any]  # keywords of ImageProcessConfig, None where not given


def shape_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --shape and --dim to a command, which gets them as `feeds: FeedOptions`."""

    @functools.wraps(function)
    def bundled(shapes, sizes, **others):
        return function(feeds=FeedOptions({}, dict(shapes), dict(sizes), 0, {}), **others)

    return _with_options(bundled, _SHAPES)


def feed_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --input, --shape, --dim, --seed, and the options for pictures to a command, which gets them as `feeds: FeedOptions`."""

    @functools.wraps(function)
    def bundled(values, shapes, sizes, seed, dest_format, mean, normal, filter, layout, **others):
        image = {"dest_format": dest_format, "mean": mean, "normal": normal, "filter": filter, "layout": layout}
        return function(feeds=FeedOptions(dict(values), dict(shapes), dict(sizes), seed, image), **others)

    return _with_options(bundled, [_INPUT, *_SHAPES, _SEED, *_PICTURES])


def _with_options(function: Callable[..., Any], options: list[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


def make_feed(
    inputs: Mapping[str, SessionTensor], options: FeedOptions, resize: Callable[[dict[str, tuple[int, ...]]], None] | None = None
) -> dict[str, Any]:
    """A value for every input of a session.

    resize: the session's, called with all shapes before random values are made, so that a model that asks for too much is stopped
    first. Raises InputError where a value can't be made: a missing file, an open dim, an unknown name; click.UsageError where --dim and
    --shape contradict each other.
    """
    import numpy as np

    given = _given(inputs, options.values)
    _check_names(inputs, options)
    feed: dict[str, Any] = {name: _read(inputs[name], value, options) for name, value in given.items()}
    for name, value in feed.items():
        _check_given_shape(inputs[name], getattr(value, "shape", None), options)
    shapes: dict[str, tuple[int, ...]] = {}
    fed = {name: value.shape for name, value in feed.items() if inputs[name].kind == "tensor"}
    sizes = _sizes(inputs, options, fed)
    still_open = []
    for name, tensor in inputs.items():
        if name not in given and tensor.kind == "tensor":
            shape = _fixed_shape(tensor, options, sizes)
            if shape is None:
                still_open.append(tensor)
            else:
                tensor.check_shape(shape)
                shapes[name] = shape
        elif name not in given and tensor.kind != "optional":
            raise InputError(f"input {name!r} is a {tensor.kind}, which has no random values; the command line can't feed it")
    if still_open:
        raise InputError(_open_message(still_open, options))
    if resize is not None:
        resize(shapes | fed)
    rng = np.random.default_rng(options.seed)
    for name, shape in shapes.items():
        _check_size(inputs[name], shape)
        feed[name] = random_value(name, inputs[name].dtype, shape, rng)
    return feed


@contextmanager
def telling_of_random_values(inputs: Mapping[str, SessionTensor], options: FeedOptions) -> Iterator[None]:
    """Where an op fails, its error also says which inputs had random values, for these may be why."""
    try:
        yield
    except MnnxError as error:
        given = _given(inputs, options.values)
        names = ", ".join(repr(name) for name, tensor in inputs.items() if name not in given and tensor.kind == "tensor")
        if not names or not str(error).startswith("op "):
            raise
        raise type(error)(f"{error}. These inputs had random values: {names}; give real ones with -i NAME=FILE") from error


def fixed_shapes(inputs: Mapping[str, SessionTensor], options: FeedOptions) -> dict[str, tuple[int, ...]] | None:
    """The shapes of all inputs, as far as --shape and --dim settle them; None where one is open or isn't a tensor."""
    _check_names(inputs, options)
    sizes = _sizes(inputs, options, {})
    shapes = {name: _fixed_shape(tensor, options, sizes) if tensor.kind == "tensor" else None for name, tensor in inputs.items()}
    return None if None in shapes.values() else shapes


def random_value(name: str, dtype: np.dtype | None, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Values that most models take: floats in [-1, 1), 8-bit integers of the whole range, other integers 0 … 9 (masks: 1; types: 0, 1)."""
    import numpy as np

    from mnnx.schema import dtypes

    if dtype == dtypes.STRING:
        return rng.choice(np.array(_WORDS, object), shape) if shape else np.array(_WORDS[0], object)
    dtype = np.dtype(np.float32) if dtype is None else dtype
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu" and dtype.itemsize == 1 and dtype.isbuiltin == 1:
        information = np.iinfo(dtype)
        return np.asarray(rng.integers(information.min, information.max, shape, dtype, endpoint=True))
    if dtype.kind in "iu":
        low, high = (1, 2) if "mask" in name.lower() else (0, 2) if "type" in name.lower() else (0, 10)
        return np.asarray(rng.integers(low, high, shape), dtype)
    precision = np.dtype(np.float64 if dtype in (np.float64, np.complex128) else np.float32)
    values = _uniform(shape, precision, rng)
    if dtype.kind == "c":
        values = values + 1j * _uniform(shape, precision, rng)
    return values.astype(dtype, copy=False)


def _uniform(shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    import numpy as np

    values = np.asarray(rng.random(shape, dtype))
    values *= 2
    values -= 1
    return values


def _check_size(tensor: SessionTensor, shape: tuple[int, ...]) -> None:
    from mnnx.interpreter.config import Limits

    limit, nbytes = Limits().tensor_bytes, math.prod(shape) * (tensor.dtype.itemsize if tensor.dtype is not None else 4)
    if nbytes > limit:
        raise LimitExceeded(
            f"random values for the input {tensor.name!r} {list(shape)} would take {nbytes >> 20} MiB; the limit is {limit >> 20} MiB "
            "(MNNX_MAX_TENSOR_MB)"
        )


def _sizes(inputs: Mapping[str, SessionTensor], options: FeedOptions, fed: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The sizes of named dims that are given, be it by the shape of an input, and of batches, which are 1 where they may."""
    from mnnx.interpreter.shared_dims import sizes_of

    given = sizes_of({name: tensor.dims for name, tensor in inputs.items()}, {**options.shapes, **fed}) | dict(options.sizes)
    firsts = {tensor.dims[0]: tensor.ranges for tensor in inputs.values() if tensor.dims}
    batches = {dim: max(1, ranges.get(dim, (1, None))[0]) for dim, ranges in firsts.items() if isinstance(dim, str) and dim.isidentifier()}
    return batches | given


def _fixed_shape(tensor: SessionTensor, options: FeedOptions, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    from mnnx.schema.dim_names import size_of

    if tensor.name in options.shapes:
        return options.shapes[tensor.name]
    if tensor.dims is None:
        return None
    shape = [size_of(dim, sizes) if isinstance(dim, str) else dim for dim in tensor.dims]
    if shape and shape[0] is None:
        shape[0] = max(1, tensor.ranges.get(tensor.dims[0], (1, None))[0])  # the batch
    return None if None in shape else tuple(shape)


def _open_message(tensors: Sequence[SessionTensor], options: FeedOptions) -> str:
    from mnnx.schema.model import dims_text

    found = ", ".join(f"{t.name!r} {dims_text(t.dims)}" for t in tensors)
    return f"these inputs have open dims: {found}. Give their sizes: {_command_line(tensors, options)} (or by name: --dim DIM=SIZE)"


def _command_line(tensors: Sequence[SessionTensor], options: FeedOptions) -> str:
    """The present command with a --shape for each of these inputs, to be filled in."""
    context = click.get_current_context(silent=True)
    words = ["mnnx run", "MODEL"] if context is None else [context.command_path, shlex.quote(context.params.get("model", "MODEL"))]
    words += [f"-i {shlex.quote(f'{name}={text}' if name else text)}" for name, text in options.values.items()]
    words += [f"--shape {shlex.quote(f'{name}={_commas(shape)}')}" for name, shape in options.shapes.items()]
    for tensor in tensors:
        if tensor.dims is None:
            sizes: Sequence[Any] = ("SIZE", "…")
        else:
            sizes = [d if isinstance(d, int) else options.sizes.get(d, 1 if axis == 0 else "SIZE") for axis, d in enumerate(tensor.dims)]
        words.append(f"--shape {shlex.quote(f'{tensor.name}=')}{_commas(sizes)}")
    return " ".join(words)


def _commas(sizes: Sequence[Any]) -> str:
    return ",".join(map(str, sizes))


def _check_names(inputs: Mapping[str, SessionTensor], options: FeedOptions) -> None:
    from mnnx.schema.model import dims_text

    for name in options.shapes:
        if name not in inputs:
            raise _unknown(name, inputs)
        for dim, size in zip(inputs[name].dims or (), options.shapes[name], strict=False):
            if options.sizes.get(dim, size) != size:
                raise click.UsageError(
                    f"--dim {dim}={options.sizes[dim]} and --shape {name}={_commas(options.shapes[name])} contradict each other: "
                    f"{name!r} is {dims_text(inputs[name].dims)}"
                )
    known = {dim for tensor in inputs.values() for dim in tensor.dims or () if isinstance(dim, str)}
    for name in options.sizes:
        if name not in known:
            raise InputError(f"no input has a dim {name!r}; named dims are {', '.join(map(repr, sorted(known))) or 'none'}")


def _check_given_shape(tensor: SessionTensor, shape: tuple[int, ...] | None, options: FeedOptions) -> None:
    """Raises click.UsageError where a value has another shape than --shape and --dim say."""
    if shape is None:
        return
    wanted = options.shapes.get(tensor.name)
    if wanted is not None and wanted != shape:
        raise click.UsageError(
            f"--shape {tensor.name}={_commas(wanted)} and the value of -i {tensor.name}, of shape {_commas(shape)}, contradict each other"
        )
    for dim, size in zip(tensor.dims or (), shape, strict=False):
        if options.sizes.get(dim, size) != size:
            raise click.UsageError(
                f"--dim {dim}={options.sizes[dim]} and the value of -i {tensor.name}, of shape {_commas(shape)}, contradict each other"
            )


def _unknown(name: str, inputs: Mapping[str, SessionTensor]) -> InputError:
    return InputError(f"the model has no input {name!r}; its inputs are {', '.join(map(repr, inputs)) or 'none'}")


def _given(inputs: Mapping[str, SessionTensor], values: Mapping[str, str]) -> dict[str, Any]:
    """Input name → file or JSON text, or an array of an .npz file given without a name."""
    found: dict[str, Any] = {name: text for name, text in values.items() if name}
    if "" in values:
        text = values[""]
        if text.endswith(".npz") and len(inputs) != 1:
            more = _load(Path(text))
        elif len(inputs) == 1:
            more = {next(iter(inputs)): text}
        else:
            raise InputError(f"write NAME={text}: the model has {len(inputs)} inputs, {', '.join(map(repr, inputs)) or 'none'}")
        for name in found.keys() & more:
            raise InputError(f"the input {name!r} has two values: {found[name]}, and one of {text}")
        found.update(more)
    for name in found:
        if name not in inputs:
            raise _unknown(name, inputs)
    return found


def _read(tensor: SessionTensor, value: Any, options: FeedOptions) -> Any:
    if not isinstance(value, str):
        return _as_stored(value, tensor)
    path = Path(value)
    if path.suffix in (".npy", ".npz"):
        array = _load(path)
        if isinstance(array, dict):
            if len(array) > 1 and tensor.name not in array:
                raise InputError(f"{path} has no array {tensor.name!r}; it has {', '.join(map(repr, array))}")
            array = array[tensor.name] if tensor.name in array else next(iter(array.values()))
        return _as_stored(array, tensor)
    if path.is_file():
        from mnnx.tools.pictures import read_picture

        return read_picture(path, tensor, options.shapes.get(tensor.name), options.image)
    from mnnx.tools.json_values import parse

    return parse(value, tensor.name, tensor.dtype)


def _as_stored(array: np.ndarray, tensor: SessionTensor) -> np.ndarray:
    """.npy files can't hold bfloat16 and its kin: these are read from any type. Nothing else is cast."""
    small = tensor.dtype is not None and tensor.dtype.isbuiltin != 1
    return array.astype(tensor.dtype) if small and array.dtype != tensor.dtype else array


def _load(path: Path) -> Any:
    """The array of an .npy file, or the arrays of an .npz file by name."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except FileNotFoundError as error:
        raise InputError(f"there is no file {str(path)!r}") from error
    except Exception as error:  # whatever NumPy, zipfile and zlib make of a damaged file
        raise InputError(f"{path} can't be read as NumPy arrays: {str(error) or type(error).__name__}") from error


def each(parse: Callable[[str], tuple[str, Any]]) -> Callable[..., list[tuple[str, Any]]]:
    """The callback of an option that can be given several times, but for one name only once."""

    def parsed(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> list[tuple[str, Any]]:
        pairs = [parse(text) for text in texts]
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise click.BadParameter(f"{name!r} is given twice" if name else "it is given twice without NAME=")
        return pairs

    return parsed


def _assignment(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    return (name, value) if found else ("", text)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, found, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError:
        shape = (-1,)
    if not found or any(size < 0 for size in shape):
        raise click.BadParameter(f"{text!r} isn't NAME=SIZE,SIZE,… with whole numbers (NAME= for a scalar)")
    return name, shape


def _size(text: str) -> tuple[str, int]:
    name, found, size = text.rpartition("=")
    if not found or not size.isdecimal():
        raise click.BadParameter(f"{text!r} isn't DIM=SIZE with a whole number")
    return name, int(size)


def _numbers(_context: Any, _parameter: Any, text: str | None) -> tuple[float, ...] | float | None:
    if text is None:
        return None
    try:
        numbers = tuple(float(number) for number in text.split(","))
        if not all(map(math.isfinite, numbers)):
            raise ValueError(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} isn't a number or numbers with commas between them") from None
    return numbers if len(numbers) > 1 else numbers[0]


_INPUT = click.option(
    "-i",
    "--input",
    "values",
    multiple=True,
    callback=each(_assignment),
    metavar="NAME=FILE",
    help="A .npy or .npz file, a picture, or a JSON value for an input. NAME= may be left out for a model with one input, and for an .npz "
    "that holds arrays by input name. Inputs without a value get random ones.",
)
DIM = click.option("--dim", "sizes", multiple=True, callback=each(_size), metavar="DIM=SIZE", help="The size of a named dim.")
_SHAPES = [
    click.option("--shape", "shapes", multiple=True, callback=each(_shape), metavar="NAME=1,3,224,224", help="The shape of an input."),
    DIM,
]
_SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random values.")
_PICTURES = [
    click.option(
        "--format", "dest_format", help="Pictures: the colours that the model wants (default: RGB, GRAY or RGBA, by its channels)."
    ),
    click.option("--mean", callback=_numbers, metavar="M[,M…]", help="Pictures: (pixel - mean) * normal; one number, or one a channel."),
    click.option("--normal", callback=_numbers, metavar="N[,N…]", help="Pictures: see --mean."),
    click.option("--filter", type=click.Choice(["nearest", "bilinear", "bicubic"]), help="Pictures: how to scale (default: bilinear)."),
    click.option(
        "--layout", type=click.Choice(["auto", "NCHW", "NHWC"]), help="Pictures: where the input has the colours (default: auto)."
    ),
]
