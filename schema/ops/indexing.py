"""Ops that read or write elements at indices held by a tensor, and ops whose results are indices.

Indices are int32 or int64, and count from the back where negative. One out of range is an error when the op runs.
"""

import numpy as np

from mnnx.schema.ops.axes import normalize_axis, require_integers, require_scalar
from mnnx.schema.ops.base import Op, Spec, op, require

_INT64 = np.dtype("int64")
REDUCTIONS = ("none", "add", "mul", "max", "min")


@op("Gather")
class Gather(Op):
    """The slices of `data` along `axis` at `indices` of any shape, which takes the place of that dim. ONNX Gather-13."""

    axis: int = 0

    def infer(self, data: Spec, indices: Spec) -> Spec:
        axis = normalize_axis(self.axis, data.rank)
        require_integers(indices, "indices")
        return Spec(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


@op("GatherElements")
class GatherElements(Op):
    """out[i][j][k] = data[i][indices[i][j][k]][k] (here for axis 1): the shape of `indices`. ONNX GatherElements-13."""

    axis: int = 0

    def infer(self, data: Spec, indices: Spec) -> Spec:
        _check_elements(self.axis, data, indices)
        return Spec(data.dtype, indices.shape)


def _check_elements(axis: int, data: Spec, indices: Spec) -> None:
    axis = normalize_axis(axis, data.rank)
    require_integers(indices, "indices")
    fits = indices.rank == data.rank and all(n <= d or i == axis for i, (n, d) in enumerate(zip(indices.shape, data.shape, strict=True)))
    require(fits, f"indices must have as many dims as the data, none larger but for axis {axis}: {indices}, {data}")


@op("GatherND")
class GatherND(Op):
    """The slices of `data` at the index tuples in the last dim of `indices`, behind `batch_dims` common dims. ONNX GatherND-13."""

    batch_dims: int = 0

    def infer(self, data: Spec, indices: Spec) -> Spec:
        require_integers(indices, "indices")
        b = self.batch_dims
        require(0 <= b < min(data.rank, indices.rank), f"batch_dims must be in [0, {min(data.rank, indices.rank) - 1}], not {b}")
        require(data.shape[:b] == indices.shape[:b], f"the first {b} dims of {data} and {indices} must agree")
        depth = indices.shape[-1]
        require(depth <= data.rank - b, f"an index tuple must have at most {data.rank - b} entries, not {depth}")
        return Spec(data.dtype, indices.shape[:-1] + data.shape[b + depth :])


def _check_reduction(reduction: str) -> None:
    require(reduction in REDUCTIONS, f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")


@op("ScatterElements")
class ScatterElements(Op):
    """`data` with out[i][indices[i][j][k]][k] = updates[i][j][k] (here for axis 1), or reduced with it. ONNX ScatterElements-18."""

    axis: int = 0
    reduction: str = "none"

    def check(self) -> None:
        _check_reduction(self.reduction)

    def infer(self, data: Spec, indices: Spec, updates: Spec) -> Spec:
        _check_elements(self.axis, data, indices)
        require(updates.shape == indices.shape, f"updates must have the shape of indices {list(indices.shape)}, not {updates}")
        require(updates.dtype == data.dtype, f"updates must be of the dtype of {data}, not {updates}")
        return Spec(data.dtype, data.shape)


@op("ScatterND")
class ScatterND(Op):
    """`data` with its slices at the index tuples in the last dim of `indices` replaced by `updates`, or reduced. ONNX ScatterND-18."""

    reduction: str = "none"

    def check(self) -> None:
        _check_reduction(self.reduction)

    def infer(self, data: Spec, indices: Spec, updates: Spec) -> Spec:
        require_integers(indices, "indices")
        require(indices.rank >= 1, "indices must have at least one dim")
        depth = indices.shape[-1]
        require(depth <= data.rank, f"an index tuple must have at most {data.rank} entries, not {depth}")
        wanted = indices.shape[:-1] + data.shape[depth:]
        require(updates.shape == wanted and updates.dtype == data.dtype, f"updates must be {Spec(data.dtype, wanted)}, not {updates}")
        return Spec(data.dtype, data.shape)


@op("TensorScatter")
class TensorScatter(Op):
    """`past_cache` (B, …, S, …) with `update` (B, …, s, …) written along `axis` at write_indices[b] (else 0). ONNX TensorScatter-24.

    Mode linear: the update must fit behind its index. Mode circular: positions count modulo S.
    """

    axis: int = -2
    mode: str = "linear"

    def check(self) -> None:
        require(self.mode in ("linear", "circular"), f"mode must be linear or circular, not {self.mode!r}")

    def infer(self, past_cache: Spec, update: Spec, write_indices: Spec | None = None) -> Spec:
        axis = normalize_axis(self.axis, past_cache.rank)
        require(axis != 0, "axis must not be the batch dim 0")
        fits = update.rank == past_cache.rank and all(
            a <= b if i == axis else a == b for i, (a, b) in enumerate(zip(update.shape, past_cache.shape, strict=True))
        )
        require(
            fits and update.dtype == past_cache.dtype, f"update must agree with {past_cache} but for a smaller dim {axis}, not {update}"
        )
        if write_indices is not None:
            require_integers(write_indices, "write_indices")
            require(write_indices.shape == past_cache.shape[:1], f"write_indices must be 1-D with {past_cache.shape[0]} entries")
        return Spec(past_cache.dtype, past_cache.shape)


@op("OneHot")
class OneHot(Op):
    """A new dim of size `depth` at `axis`: values[1] at the index, values[0] elsewhere and for indices out of range. ONNX OneHot-28."""

    axis: int = -1

    def infer(self, indices: Spec, depth: Spec, values: Spec) -> Spec:
        axis = normalize_axis(self.axis, indices.rank + 1)
        require_scalar(depth, "depth")
        require(values.shape == (2,), f"values must be the two elements off, on; not {values}")
        size = int(depth.known().item())
        require(size >= 0, f"depth must not be negative: {size}")
        return Spec(values.dtype, (*indices.shape[:axis], size, *indices.shape[axis:]))


@op("NonZero")
class NonZero(Op):
    """The indices of all elements that aren't 0: int64 (rank, how many), in row-major order. ONNX NonZero-13."""


@op("Unique")
class Unique(Op):
    """The distinct elements (or slices along `axis`), sorted or by first occurrence. ONNX Unique-28.

    Further outputs, 1-D int64: the first occurrence of each, for each element its place in the result, and how often each occurs.
    """

    axis: int | None = None
    sorted: bool = True


@op("TopK")
class TopK(Op):
    """The K largest (or smallest) elements along `axis` and their int64 indices; of equal elements the first comes first. ONNX TopK-24."""

    axis: int = -1
    largest: bool = True
    sorted: bool = True

    def infer(self, x: Spec, k: Spec) -> tuple[Spec, Spec]:
        axis = normalize_axis(self.axis, x.rank)
        require_scalar(k, "K")
        (count,) = k.ints()
        require(0 <= count <= x.shape[axis], f"K must be in [0, {x.shape[axis]}], the size of axis {axis}, not {count}")
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        return Spec(x.dtype, shape), Spec(_INT64, shape)
