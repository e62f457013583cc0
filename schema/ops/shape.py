"""Ops that ask for a tensor's shape, give it another one, or put tensors together, without touching an element's value."""

import math

import numpy as np

from mnnx.schema.ops.axes import normalize_axes, normalize_axis, require_vector
from mnnx.schema.ops.base import DataDependent, Op, Spec, op, require


@op("Shape")
class Shape(Op):
    """The dims start … end-1 of any tensor, as 1-D int64; negative positions count from the back, others are clamped. ONNX Shape-25."""

    start: int = 0
    end: int | None = None

    def infer(self, data: Spec) -> Spec:
        return Spec.of(np.array(data.shape[self.start : self.end], np.int64))


@op("Size")
class Size(Op):
    """The number of elements of any tensor, as a scalar int64. ONNX Size-25."""

    def infer(self, data: Spec) -> Spec:
        return Spec.of(np.array(data.size, np.int64))


@op("Identity")
class Identity(Op):
    """Its input: a tensor, sequence or optional. ONNX Identity-25."""

    def infer(self, data: Spec | None) -> Spec:
        if data is None:
            raise DataDependent
        return data


@op("Reshape")
class Reshape(Op):
    """The elements in row-major order under the dims of `shape` (1-D int64), of which one may be -1: whatever remains.

    A dim of 0 takes the dim of `data` at its place, unless `allowzero`. ONNX Reshape-25.
    """

    allowzero: bool = False

    def infer(self, data: Spec, shape: Spec) -> Spec:
        require_vector(shape, "shape")
        dims = list(shape.ints())
        require(all(d >= -1 for d in dims) and dims.count(-1) <= 1, f"shape must hold sizes and at most one -1, not {dims}")
        if self.allowzero:
            require(not (0 in dims and -1 in dims), f"shape can't hold both 0 and -1 with allowzero: {dims}")
        else:
            require(all(d != 0 or i < data.rank for i, d in enumerate(dims)), f"shape {dims} copies a dim that {data} doesn't have")
            dims = [data.shape[i] if d == 0 else d for i, d in enumerate(dims)]
        if -1 in dims:
            known = math.prod(d for d in dims if d != -1)
            require(data.size % known == 0 if known else data.size == 0, f"{data} can't be reshaped to {dims}")
            dims[dims.index(-1)] = data.size // known if known else 0
        require(math.prod(dims) == data.size, f"{data} can't be reshaped to {dims}")
        return Spec(data.dtype, tuple(dims))


@op("Flatten")
class Flatten(Op):
    """A matrix: the dims before `axis` (-rank … rank) as rows, the others as columns. ONNX Flatten-25."""

    axis: int = 1

    def infer(self, data: Spec) -> Spec:
        require(-data.rank <= self.axis <= data.rank, f"axis must be in [{-data.rank}, {data.rank}], not {self.axis}")
        axis = self.axis + data.rank if self.axis < 0 else self.axis
        return Spec(data.dtype, (math.prod(data.shape[:axis]), math.prod(data.shape[axis:])))


@op("Squeeze")
class Squeeze(Op):
    """Without the dims `axes` (int64), which must be 1; without `axes`, all dims of 1. ONNX Squeeze-25."""

    def infer(self, data: Spec, axes: Spec | None = None) -> Spec:
        if axes is None:
            return Spec(data.dtype, tuple(d for d in data.shape if d != 1))
        removed = normalize_axes(axes.ints(), data.rank)
        require(all(data.shape[a] == 1 for a in removed), f"only dims of 1 can be removed: axes {removed} of {data}")
        return Spec(data.dtype, tuple(d for i, d in enumerate(data.shape) if i not in removed))


@op("Unsqueeze")
class Unsqueeze(Op):
    """With dims of 1 put in at `axes` (int64, positions in the result). ONNX Unsqueeze-25."""

    def infer(self, data: Spec, axes: Spec) -> Spec:
        added = axes.ints()
        rank = data.rank + len(added)
        added = normalize_axes(added, rank)
        dims = iter(data.shape)
        return Spec(data.dtype, tuple(1 if i in added else next(dims) for i in range(rank)))


@op("Expand")
class Expand(Op):
    """Broadcast together with the dims of `shape` (1-D int64), in both directions. ONNX Expand-13."""

    def infer(self, data: Spec, shape: Spec) -> Spec:
        require_vector(shape, "shape")
        dims = shape.ints()
        require(all(d >= 0 for d in dims), f"shape must hold sizes, not {list(dims)}")
        rank = max(data.rank, len(dims))
        pairs = list(zip((1,) * (rank - data.rank) + data.shape, (1,) * (rank - len(dims)) + dims, strict=True))
        require(all(a == b or 1 in (a, b) for a, b in pairs), f"{data} can't be broadcast with {list(dims)}")
        return Spec(data.dtype, tuple(b if a == 1 else a for a, b in pairs))


@op("Tile")
class Tile(Op):
    """Repeated `repeats[i]` times along dim i (1-D int64, one per dim). ONNX Tile-13."""

    def infer(self, data: Spec, repeats: Spec) -> Spec:
        require_vector(repeats, "repeats")
        counts = repeats.ints()
        require(len(counts) == data.rank and min(counts, default=0) >= 0, f"repeats must give {data.rank} counts, not {list(counts)}")
        return Spec(data.dtype, tuple(d * r for d, r in zip(data.shape, counts, strict=True)))


@op("Transpose")
class Transpose(Op):
    """Dim i of the result is dim perm[i] of `data`; all dims in reverse order without `perm`. ONNX Transpose-25."""

    perm: tuple[int, ...] | None = None

    def order(self, rank: int) -> tuple[int, ...]:
        """`perm` for this rank, counted from the front."""
        if self.perm is None:
            return tuple(reversed(range(rank)))
        require(len(self.perm) == rank, f"perm must have {rank} entries, not {self.perm}")
        return normalize_axes(self.perm, rank, "perm")

    def infer(self, data: Spec) -> Spec:
        return Spec(data.dtype, tuple(data.shape[a] for a in self.order(data.rank)))


@op("Concat")
class Concat(Op):
    """Tensors of one dtype, whose dims agree but for `axis`, one after another along it. ONNX Concat-13."""

    axis: int

    def infer(self, *inputs: Spec) -> Spec:
        require(inputs and all(i is not None for i in inputs), "Concat needs at least one input, and none left out")
        first = inputs[0]
        axis = normalize_axis(self.axis, first.rank)
        for other in inputs[1:]:
            require(
                other.dtype == first.dtype
                and other.rank == first.rank
                and all(a == b for i, (a, b) in enumerate(zip(first.shape, other.shape, strict=True)) if i != axis),
                f"inputs must agree in dtype and in all dims but {axis}: {first}, {other}",
            )
        return Spec(first.dtype, (*first.shape[:axis], sum(i.shape[axis] for i in inputs), *first.shape[axis + 1 :]))


@op("Split")
class Split(Op):
    """Parts along `axis`, of the sizes `split` (1-D int64); without it, equal ones, of which the last may be smaller. ONNX Split-18."""

    num_outputs: int
    axis: int = 0

    def check(self) -> None:
        require(0 < self.num_outputs <= 1 << 16, f"num_outputs must be 1 … {1 << 16}, not {self.num_outputs}")

    def sizes(self, dim: int, split: Spec | None) -> tuple[int, ...]:
        """The sizes of the parts of a dim."""
        if split is not None:
            require_vector(split, "split")
            require(split.size == self.num_outputs, f"split must give {self.num_outputs} sizes, not {split}")
            sizes = split.ints()
        else:
            each = -(-dim // self.num_outputs)
            require(each * (self.num_outputs - 1) <= dim, f"a dim of {dim} can't be split into {self.num_outputs} parts")
            sizes = (each,) * (self.num_outputs - 1) + (dim - each * (self.num_outputs - 1),)
        require(min(sizes) >= 0 and sum(sizes) == dim, f"sizes {list(sizes)} don't split a dim of {dim}")
        return sizes

    def infer(self, data: Spec, split: Spec | None = None) -> tuple[Spec, ...]:
        axis = normalize_axis(self.axis, data.rank)
        return tuple(Spec(data.dtype, (*data.shape[:axis], n, *data.shape[axis + 1 :])) for n in self.sizes(data.shape[axis], split))


class PixelBlocks(Op):
    """What moves blocks of pixels to channels and back. Channels run over (b, b, C) in mode DCR, over (C, b, b) in CRD."""

    blocksize: int
    mode: str = "DCR"

    def check(self) -> None:
        require(self.blocksize > 0, f"blocksize must be positive, not {self.blocksize}")
        require(self.mode in ("DCR", "CRD"), f"mode must be DCR or CRD, not {self.mode!r}")


@op("DepthToSpace")
class DepthToSpace(PixelBlocks):
    """(N, C·b·b, H, W) → (N, C, H·b, W·b). ONNX DepthToSpace-28."""

    def infer(self, data: Spec) -> Spec:
        require(data.rank == 4, f"the input must be (N, C, H, W), not {data}")
        n, c, h, w = data.shape
        b = self.blocksize
        require(c % (b * b) == 0, f"channels must be a multiple of blocksize² = {b * b}, not {c}")
        return Spec(data.dtype, (n, c // (b * b), h * b, w * b))


@op("SpaceToDepth")
class SpaceToDepth(PixelBlocks):
    """(N, C, H·b, W·b) → (N, C·b·b, H, W). ONNX SpaceToDepth-28."""

    def infer(self, data: Spec) -> Spec:
        require(data.rank == 4, f"the input must be (N, C, H, W), not {data}")
        n, c, h, w = data.shape
        b = self.blocksize
        require(h % b == 0 and w % b == 0, f"height and width must be multiples of blocksize {b}, not {h}×{w}")
        return Spec(data.dtype, (n, c * b * b, h // b, w // b))
