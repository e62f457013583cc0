"""Windows over images as kernels take them: over three spatial dims, those that are missing with a size of 1."""

from __future__ import annotations

import math

from mnnx.schema.ops.windows import ConvGeometry
from mnnx.schema.records import Row

Three = tuple[int, int, int]

#: The parameters that a kernel takes, in this order, from `Windows.params`.
PARAMS = ", ".join(f"int {name}_{axis}" for name in ("in", "out", "kernel", "stride", "dilation", "begin") for axis in ("d", "h", "w"))


class Windows(Row):
    """Windows over D × H × W images, see ConvGeometry."""

    input: Three
    output: Three
    kernel: Three
    strides: Three
    dilations: Three
    begin: Three

    @classmethod
    def of(cls, geometry: ConvGeometry) -> Windows | None:
        """None where more than three dims are left when those in which nothing slides (all sizes 1) are left out."""
        rows = zip(
            geometry.input, geometry.output, geometry.kernel, geometry.strides, geometry.dilations, geometry.begin, strict=True
        )  # fmt: skip
        dims = [row for row in rows if (row[0], row[1], row[2], row[5]) != (1, 1, 1, 0)]
        return None if len(dims) > 3 else cls(*zip(*[(1, 1, 1, 1, 1, 0)] * (3 - len(dims)), *dims, strict=True))

    @property
    def params(self) -> list[int]:
        return [n for three in self for n in three]

    @property
    def in_pixels(self) -> int:
        return math.prod(self.input)

    @property
    def out_pixels(self) -> int:
        return math.prod(self.output)

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def reach(self) -> Three:
        """How many pixels, padding included, the windows reach over."""
        return tuple(
            (o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(self.output, self.strides, self.kernel, self.dilations, strict=True)
        )

    @property
    def padded(self) -> bool:
        """Whether some window reaches beyond the image."""
        return any(b > 0 or r - b > n for n, b, r in zip(self.input, self.begin, self.reach, strict=True))

    def after_padding(self) -> Windows:
        """The same windows over an image that has just the pixels they reach over."""
        return self._replace(input=self.reach, begin=(0, 0, 0))
