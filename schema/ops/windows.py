"""Windows that slide over the spatial dims of a tensor: the arithmetic of convolutions and poolings, their padding resolved.

All tuples have one entry per spatial dim. Attributes are ONNX's: empty `strides`, `dilations` and `pads` mean 1, 1 and 0; `pads` lists
all begins, then all ends.
"""

from collections.abc import Sequence
from functools import lru_cache

from mnnx.schema.ops.base import require
from mnnx.schema.ops.rules import LIMIT
from mnnx.schema.records import Row

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")

Sizes = tuple[int, ...]


class ConvGeometry(Row):
    """Where every window of a convolution, a transposed convolution or a pooling lies.

    Output position o of a dim reads (transposed: input position o is added to) the positions
    o * stride - begin + k * dilation, k = 0 … kernel-1, of the input (transposed: of the output); those outside are padding.
    `end` may be less than the last windows reach beyond the end (ceil_mode).
    """

    input: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    begin: Sizes
    end: Sizes
    output: Sizes

    @property
    def extents(self) -> Sizes:
        """From the first to the last tap of a window, both included."""
        return extents(self.kernel, self.dilations)

    @property
    def all_see_the_input(self) -> bool:
        """Whether every window has a tap that isn't padding."""
        return all(
            any(0 <= window * stride - begin + tap * dilation < size for tap in range(taps))
            for size, taps, stride, dilation, begin, count in zip(
                self.input, self.kernel, self.strides, self.dilations, self.begin, self.output, strict=True
            )
            for window in range(count)
        )


def extents(kernel: Sizes, dilations: Sizes) -> Sizes:
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))


def check_windows(kernel: Sizes, strides: Sizes, dilations: Sizes, pads: Sizes, auto_pad: str) -> None:
    """What must hold of the attributes whatever the inputs; for an op's `check`."""
    for name, values in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        require(all(0 < v < LIMIT for v in values), f"{name} must be positive; it is {list(values)}")
    require(all(0 <= v < LIMIT for v in pads), f"pads must not be negative; they are {list(pads)}")
    require(auto_pad in AUTO_PADS, f"auto_pad must be one of {', '.join(AUTO_PADS)}; it is {auto_pad!r}")


def per_dim(values: Sizes, rank: int, default: int, name: str) -> Sizes:
    """`values`, `default` for every dim where they are empty; there must be `rank` of them."""
    require(len(values) in (0, rank), f"{name} must have {rank} entries; it has {len(values)}")
    return tuple(values) or (default,) * rank


def resolve_pads(auto_pad: str, pads: Sizes, sizes: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes) -> tuple[Sizes, Sizes]:
    """The begin and end padding of each dim: `pads` where auto_pad is NOTSET, else what auto_pad asks for on these input sizes."""
    rank = len(sizes)
    if auto_pad == "NOTSET":
        pads = per_dim(pads, 2 * rank, 0, "pads")
        return pads[:rank], pads[rank:]
    if auto_pad == "VALID":
        return (0,) * rank, (0,) * rank
    totals = [
        max(0, (-(-size // stride) - 1) * stride + extent - size)
        for size, stride, extent in zip(sizes, strides, extents(kernel, dilations), strict=True)
    ]
    return _halves(totals, larger_first=auto_pad == "SAME_LOWER")


@lru_cache(256)
def window_geometry(
    sizes: Sizes, kernel: Sizes, strides: Sizes, dilations: Sizes, pads: Sizes, auto_pad: str, ceil_mode: bool = False
) -> ConvGeometry:
    """The windows of a convolution or pooling over an input of these spatial sizes.

    With ceil_mode the last window may reach beyond the padded input, but must start inside the input or its begin padding.
    Raises RuleError where a window doesn't fit even once.
    """
    rank = len(sizes)
    require(len(kernel) == rank, f"the kernel must have {rank} dims, as many as the input has spatial ones; it is {list(kernel)}")
    require(all(k > 0 for k in kernel), f"the kernel must not be empty; it is {list(kernel)}")
    strides = per_dim(strides, rank, 1, "strides")
    dilations = per_dim(dilations, rank, 1, "dilations")
    begin, end = resolve_pads(auto_pad, pads, sizes, kernel, strides, dilations)
    output = []
    for size, stride, first, last, extent in zip(sizes, strides, begin, end, extents(kernel, dilations), strict=True):
        room = size + first + last - extent
        require(
            size > 0 and (room >= 0 or (ceil_mode and room > -stride)),
            f"a window of {extent} must fit in each spatial dim; the input has {size} with {first} + {last} padding",
        )
        count = room // stride + 1
        if ceil_mode and room % stride and count * stride < size + first:
            count += 1
        output.append(count)
    return ConvGeometry(tuple(sizes), tuple(kernel), strides, dilations, begin, end, tuple(output))


def transposed_geometry(
    sizes: Sizes,
    kernel: Sizes,
    strides: Sizes,
    dilations: Sizes,
    pads: Sizes,
    auto_pad: str,
    output_padding: Sizes,
    output_shape: Sizes,
) -> ConvGeometry:
    """The windows of a transposed convolution over an input of these spatial sizes.

    Where `output_shape` (or auto_pad SAME_*: sizes * strides) says how large the output is, the padding follows from it.
    Raises RuleError where an output dim would not be positive.
    """
    rank = len(sizes)
    require(len(kernel) == rank, f"the kernel must have {rank} dims, as many as the input has spatial ones; it is {list(kernel)}")
    require(all(s > 0 for s in sizes) and all(k > 0 for k in kernel), f"input {list(sizes)} and kernel {list(kernel)} must not be empty")
    strides = per_dim(strides, rank, 1, "strides")
    dilations = per_dim(dilations, rank, 1, "dilations")
    extra = per_dim(output_padding, rank, 0, "output_padding")
    full = [
        (size - 1) * stride + extent + more
        for size, stride, extent, more in zip(sizes, strides, extents(kernel, dilations), extra, strict=True)
    ]
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    if output_shape or same:
        output = (
            per_dim(output_shape, rank, 0, "output_shape") if output_shape else tuple(n * s for n, s in zip(sizes, strides, strict=True))
        )
        begin, end = _halves([max(0, f - o) for f, o in zip(full, output, strict=True)], larger_first=auto_pad != "SAME_UPPER")
    else:
        begin, end = resolve_pads(auto_pad, pads, sizes, kernel, strides, dilations)
        output = tuple(f - b - e for f, b, e in zip(full, begin, end, strict=True))
    require(all(o > 0 for o in output), f"every output dim must be positive; they would be {list(output)}")
    return ConvGeometry(tuple(sizes), tuple(kernel), strides, dilations, begin, end, tuple(output))


def _halves(totals: Sequence[int], larger_first: bool) -> tuple[Sizes, Sizes]:
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (large, small) if larger_first else (small, large)
