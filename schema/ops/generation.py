"""Ops that make tensors of their attributes: constants, ranges, random numbers, windows. ONNX Range-27, RandomNormal-22, Dropout-22, … ."""

import math
from typing import ClassVar

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.dtypes import DtypeSet
from mnnx.schema.ops.axes import require_scalar
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import BOOL, FLOATS, INTEGERS, NUMERIC, require_dtype, require_inputs

FLOAT32 = np.dtype("float32")
INT32 = np.dtype("int32")
INT64 = np.dtype("int64")


def _require_scalar_of(accepts: DtypeSet, spec: Spec, what: str) -> None:
    require_scalar(spec, what)
    require_dtype(spec, accepts, what)


@op("ConstantOfShape")
class ConstantOfShape(Op):
    """A tensor of the shape that the int64 input lists, filled with the one element of `value` (left out: float32 zeros)."""

    value: np.ndarray | None = None

    def check(self):
        require(self.value is None or self.value.size == 1, "value must have one element")

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        require(inputs[0].dtype == INT64 and inputs[0].rank <= 1, f"the shape must be a vector of int64; found {inputs[0]}")
        shape = inputs[0].ints()
        require(all(dim >= 0 for dim in shape), f"dims must not be negative; found {list(shape)}")
        return Spec(FLOAT32 if self.value is None else self.value.dtype, shape)


@op("Range")
class Range(Op):
    """start, start + delta, … up to but without limit; three scalars of one dtype.

    `stash_type` is the dtype in which float16 and bfloat16 are computed.
    """

    stash_type: np.dtype = FLOAT32

    def infer(self, *inputs):
        require_inputs(inputs, 3)
        for spec, what in zip(inputs, ("start", "limit", "delta"), strict=True):
            _require_scalar_of(NUMERIC, spec, what)
            require(spec.dtype == inputs[0].dtype, f"inputs must be of one dtype; found {', '.join(map(str, inputs))}")
        return Spec(inputs[0].dtype, (self.count(*(spec.known().reshape(-1)[0] for spec in inputs)),))

    def count(self, start: np.generic, limit: np.generic, delta: np.generic) -> int:
        """The number of elements."""
        require(delta != 0, "delta must not be 0")
        if start.dtype in INTEGERS:
            return max(-((int(start) - int(limit)) // int(delta)), 0)
        steps = (float(limit) - float(start)) / float(delta)
        require(math.isfinite(steps), f"the range must be finite; found {start} to {limit} by {delta}")
        return max(math.ceil(steps), 0)


@op("EyeLike")
class EyeLike(Op):
    """Ones on the diagonal `k` (above the main one where positive), else zeros; shape (and dtype, if not given) of the 2-D input."""

    dtype: np.dtype | None = None
    k: int = 0

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        require(inputs[0].rank == 2, f"wants a matrix; found {inputs[0]}")
        dtype = inputs[0].dtype if self.dtype is None else self.dtype
        require(dtype in NUMERIC | {BOOL}, f"there is no identity matrix of {dtypes.name(dtype)}")
        return Spec(dtype, inputs[0].shape)


class Random(Op):
    """Random numbers in `shape`. With a `seed` every run gives the same ones."""

    deterministic: ClassVar[bool] = False
    shape: tuple[int, ...]
    dtype: np.dtype = FLOAT32
    seed: float | None = None

    def check(self):
        require(self.dtype in FLOATS, f"dtype must be a float; found {dtypes.name(self.dtype)}")
        require(all(dim >= 0 for dim in self.shape), f"dims must not be negative; found {list(self.shape)}")

    def infer(self, *inputs):
        require_inputs(inputs, 0)
        return Spec(self.dtype, self.shape)


class RandomLike(Op):
    """Random numbers in the shape (and dtype, where not given) of the input. With a `seed` every run gives the same ones."""

    deterministic: ClassVar[bool] = False
    dtype: np.dtype | None = None
    seed: float | None = None

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        dtype = inputs[0].dtype if self.dtype is None else self.dtype
        require(dtype in FLOATS, f"random numbers must be floats; found {dtypes.name(dtype)}")
        return Spec(dtype, inputs[0].shape)


@op("RandomNormal")
class RandomNormal(Random):
    """Normally distributed."""

    mean: float = 0.0
    scale: float = 1.0


@op("RandomNormalLike")
class RandomNormalLike(RandomLike):
    """Normally distributed."""

    mean: float = 0.0
    scale: float = 1.0


@op("RandomUniform")
class RandomUniform(Random):
    """Uniform in [low, high)."""

    low: float = 0.0
    high: float = 1.0


@op("RandomUniformLike")
class RandomUniformLike(RandomLike):
    """Uniform in [low, high)."""

    low: float = 0.0
    high: float = 1.0


@op("Bernoulli")
class Bernoulli(Op):
    """1 with the probability that the input gives, else 0; dtype of the input where not given."""

    deterministic: ClassVar[bool] = False
    dtype: np.dtype | None = None
    seed: float | None = None

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        require_dtype(inputs[0], FLOATS)
        dtype = inputs[0].dtype if self.dtype is None else self.dtype
        require(dtype in NUMERIC | {BOOL}, f"dtype must be a number or bool; found {dtypes.name(dtype)}")
        return Spec(dtype, inputs[0].shape)


@op("Multinomial")
class Multinomial(Op):
    """`sample_size` classes drawn per row of unnormalized log-probabilities [batch, classes]: [batch, sample_size] of int32 or int64."""

    deterministic: ClassVar[bool] = False
    dtype: np.dtype = INT32
    sample_size: int = 1
    seed: float | None = None

    def check(self):
        require(self.dtype in (INT32, INT64), f"dtype must be int32 or int64; found {dtypes.name(self.dtype)}")
        require(self.sample_size >= 0, f"sample_size must not be negative; found {self.sample_size}")

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        require_dtype(inputs[0], FLOATS)
        require(inputs[0].rank == 2 and inputs[0].shape[1] > 0, f"wants [batch, classes]; found {inputs[0]}")
        return Spec(self.dtype, (inputs[0].shape[0], self.sample_size))


@op("Dropout")
class Dropout(Op):
    """Inputs (x, ratio, training_mode), the last two optional scalars; results (y, mask).

    In training each element is dropped with the probability `ratio` (0.5 where left out) and the others are scaled by 1 / (1 - ratio);
    otherwise y is x. The boolean mask says which elements stayed.
    """

    deterministic: ClassVar[bool] = False
    seed: int | None = None

    def infer(self, *inputs):
        require_inputs(inputs, 1, 3)
        x, ratio, training = (*inputs, None, None)[:3]
        require_dtype(x, FLOATS)
        if ratio is not None:
            _require_scalar_of(FLOATS, ratio, "ratio")
        if training is not None:
            _require_scalar_of(frozenset({BOOL}), training, "training_mode")
        return Spec(x.dtype, x.shape), Spec(BOOL, x.shape)


class Window(Op):
    """A window of as many elements as the integer scalar input says; `periodic` ones are a symmetric one, longer by 1, less its last."""

    output_datatype: np.dtype = FLOAT32
    periodic: bool = True

    def check(self):
        require(self.output_datatype in NUMERIC, f"output_datatype must be a number; found {dtypes.name(self.output_datatype)}")

    def infer(self, *inputs):
        require_inputs(inputs, 1)
        _require_scalar_of(INTEGERS, inputs[0], "size")
        (size,) = inputs[0].ints()
        require(size >= 0, f"size must not be negative; found {size}")
        return Spec(self.output_datatype, (size,))


@op("HannWindow")
class HannWindow(Window):
    """0.5 - 0.5 cos."""


@op("HammingWindow")
class HammingWindow(Window):
    """25/46 - 21/46 cos."""


@op("BlackmanWindow")
class BlackmanWindow(Window):
    """0.42 - 0.5 cos + 0.08 cos of twice the angle."""


@op("MelWeightMatrix")
class MelWeightMatrix(Op):
    """Triangular filters on the mel scale, [dft_length / 2 + 1, num_mel_bins].

    Scalar inputs (num_mel_bins, dft_length, sample_rate: integers; lower_edge_hertz, upper_edge_hertz: floats).
    """

    output_datatype: np.dtype = FLOAT32

    def check(self):
        require(self.output_datatype in NUMERIC, f"output_datatype must be a number; found {dtypes.name(self.output_datatype)}")

    def infer(self, *inputs):
        require_inputs(inputs, 5)
        for index, what in enumerate(("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")):
            _require_scalar_of(INTEGERS if index < 3 else FLOATS, inputs[index], what)
        bins, length, rate = (inputs[index].ints()[0] for index in range(3))
        require(bins >= 0 and length >= 0 and rate > 0, f"sizes must not be negative; found {bins} bins, DFT of {length} at {rate} Hz")
        return Spec(self.output_datatype, (length // 2 + 1, bins))
