"""Normalizations: to mean 0 and variance 1, or by a norm. Statistics are in float32 at least, whatever the dtype of x."""

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.axes import normalize_axes, normalize_axis
from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import FLOATS
from mnnx.schema.ops.rules import LIMIT, require_floats, require_given, require_shape


def _require_channels(op_name: str, x: Spec, least: int, **parameters: Spec) -> None:
    """x must have channels in dim 1 (one channel where its rank is 1), and each parameter one entry per channel."""
    require(x.rank >= least, f"{op_name} needs an input of rank {least} or more (N, C, …); it is {x}")
    require_given(**parameters)
    channels = x.shape[1] if x.rank > 1 else 1
    for name, spec in parameters.items():
        require_shape(name, spec, (channels,))


def _require_broadcast(name: str, spec: Spec | None, shape: tuple[int, ...]) -> None:
    """The parameter must broadcast to `shape` without enlarging it."""
    if spec is not None:
        padded = (1,) * (len(shape) - spec.rank) + spec.shape
        fits = spec.rank <= len(shape) and all(n in (1, m) for n, m in zip(padded, shape, strict=True))
        require(fits, f"{name} must broadcast to {list(shape)}; it is {spec}")


@op("BatchNormalization")
class BatchNormalization(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias per channel; x [N, C, …], the others [C]. BatchNormalization-15.

    With training_mode mean and variance are those of x, and outputs 1 and 2 are the running ones: given * momentum + x's * (1 -
    momentum). The floats of x, of scale and bias, and of mean and variance may differ. Source: Ioffe and Szegedy, 2015.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9
    training_mode: bool = False

    def infer(self, x: Spec, scale: Spec, bias: Spec, mean: Spec, variance: Spec) -> Spec | tuple[Spec, Spec, Spec]:
        require_floats(x=x)
        require_floats(scale=scale, bias=bias)
        require_floats(mean=mean, variance=variance)
        _require_channels(self.name, x, 1, scale=scale, bias=bias, mean=mean, variance=variance)
        y = Spec(x.dtype, x.shape)
        return (y, Spec(mean.dtype, mean.shape), Spec(variance.dtype, mean.shape)) if self.training_mode else y


@op("InstanceNormalization")
class InstanceNormalization(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the spatial dims of x [N, C, spatial…]; scale, bias [C]. …-22."""

    epsilon: float = 1e-5

    def infer(self, x: Spec, scale: Spec, bias: Spec) -> Spec:
        require_floats(x=x, scale=scale, bias=bias)
        _require_channels(self.name, x, 3, scale=scale, bias=bias)
        return Spec(x.dtype, x.shape)


@op("GroupNormalization")
class GroupNormalization(Op):
    """As InstanceNormalization, with statistics over num_groups groups of neighbouring channels. GroupNormalization-21."""

    num_groups: int
    epsilon: float = 1e-5
    stash_type: np.dtype = np.dtype(np.float32)

    def check(self) -> None:
        require(0 < self.num_groups < LIMIT, f"num_groups must be positive; it is {self.num_groups}")
        _check_stash(self.stash_type)

    def infer(self, x: Spec, scale: Spec, bias: Spec) -> Spec:
        require_floats(x=x, scale=scale, bias=bias)
        _require_channels(self.name, x, 2, scale=scale, bias=bias)
        require(x.shape[1] % self.num_groups == 0, f"the {x.shape[1]} channels must be a multiple of num_groups {self.num_groups}")
        return Spec(x.dtype, x.shape)


def _check_stash(stash_type: np.dtype) -> None:
    require(stash_type in FLOATS, f"stash_type must be a float type of 16, 32 or 64 bits; it is {dtypes.name(stash_type)}")


@op("LayerNormalization")
class LayerNormalization(Op):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the dims axis … of x; scale and bias broadcast to x.

    Outputs 1 and 2 are the mean and 1 / sqrt(variance + epsilon) as stash_type, with size 1 in the normalized dims. …-17. Source: Ba
    et al., 2016.
    """

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: np.dtype = np.dtype(np.float32)

    def check(self) -> None:
        _check_stash(self.stash_type)

    def infer(self, x: Spec, scale: Spec, bias: Spec | None = None) -> tuple[Spec, Spec, Spec]:
        require_given(scale=scale)
        require_floats(x=x, scale=scale, bias=bias)
        axis = normalize_axis(self.axis, x.rank)
        _require_broadcast("scale", scale, x.shape)
        _require_broadcast("bias", bias, x.shape)
        statistics = Spec(self.stash_type, (*x.shape[:axis], *(1 for _ in x.shape[axis:])))
        return Spec(x.dtype, x.shape), statistics, statistics


@op("RMSNormalization")
class RMSNormalization(Op):
    """x / sqrt(mean(x²) + epsilon) * scale over the dims axis … of x; scale broadcasts to x and gives the dtype. RMSNormalization-23.

    Output 1 (not in ONNX, but in the SimplifiedLayerNormalization of older models) is 1 / sqrt(mean(x²) + epsilon) as stash_type, with
    size 1 in the normalized dims. Source: Zhang and Sennrich, 2019.
    """

    axis: int = -1
    epsilon: float = 1e-5
    stash_type: np.dtype = np.dtype(np.float32)

    def check(self) -> None:
        _check_stash(self.stash_type)

    def infer(self, x: Spec, scale: Spec) -> tuple[Spec, Spec]:
        require_floats(x=x)
        require_floats(scale=scale)
        axis = normalize_axis(self.axis, x.rank)
        _require_broadcast("scale", scale, x.shape)
        return Spec(scale.dtype, x.shape), Spec(self.stash_type, (*x.shape[:axis], *(1 for _ in x.shape[axis:])))


@op("LpNormalization")
class LpNormalization(Op):
    """x divided by its p-norm along `axis` (p is 1 or 2); 0 where the norm is 0. LpNormalization-22."""

    axis: int = -1
    p: int = 2

    def check(self) -> None:
        require(self.p in (1, 2), f"p must be 1 or 2; it is {self.p}")

    def infer(self, x: Spec) -> Spec:
        require_floats(x=x)
        normalize_axis(self.axis, x.rank)
        return Spec(x.dtype, x.shape)


@op("LRN")
class LRN(Op):
    """x / (bias + alpha / size * s)^beta, s the sum of squares of the `size` neighbouring channels, fewer at the ends. LRN-13.

    Channel c's neighbours are c - (size-1)//2 … c + size//2. Source: Krizhevsky et al., 2012.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0

    def check(self) -> None:
        require(0 < self.size < LIMIT, f"size must be positive; it is {self.size}")

    def infer(self, x: Spec) -> Spec:
        require_floats(x=x)
        require(x.rank >= 2, f"LRN needs an input of rank 2 or more (N, C, …); it is {x}")
        return Spec(x.dtype, x.shape)


@op("MeanVarianceNormalization")
class MeanVarianceNormalization(Op):
    """(x - mean) / (standard deviation + 1e-9) over `axes`. MeanVarianceNormalization-13 (the constant is in its function body)."""

    axes: tuple[int, ...] = (0, 2, 3)

    def infer(self, x: Spec) -> Spec:
        require_floats(x=x)
        normalize_axes(self.axes, x.rank)
        return Spec(x.dtype, x.shape)
