"""Windows over images as the kernels take them: spatial dims brought to three, the spread image, and where the taps lie in it."""

from __future__ import annotations

import itertools
import math

import numpy as np

from mnnx.backends.cpu.kernels.blocks import Geometry
from mnnx.schema.ops.windows import ConvGeometry
from mnnx.schema.records import Row

Three = tuple[int, int, int]
_MOST_TAPS = 1 << 16


class Windows(Row):
    """Windows over D × H × W images. Dims in which nothing slides (size, kernel and output 1) are left out of the original ones."""

    input: Three
    kernel: Three
    strides: Three
    dilations: Three
    begin: Three
    output: Three
    padded: bool  # whether some window reaches beyond the image

    @classmethod
    def reason_against(cls, geometry: ConvGeometry) -> str | None:
        """Why the kernels don't take such windows; None where they do."""
        windows = cls.of(geometry)
        if windows is None:
            return "it has more than 3 spatial dims"
        return "its windows are far larger than the image" if windows.excessive else None

    @classmethod
    def of(cls, geometry: ConvGeometry) -> Windows | None:
        """None where more than three dims are left."""
        dims = list(
            zip(
                geometry.input, geometry.kernel, geometry.strides, geometry.dilations, geometry.begin, geometry.output, strict=True
            )
        )  # fmt: skip
        dims = [(n, k, s, d, b, o) for n, k, s, d, b, o in dims if (n, k, b, o) != (1, 1, 0, 1)]
        if len(dims) > 3:
            return None
        dims = [(1, 1, 1, 1, 0, 1)] * (3 - len(dims)) + dims
        padded = any(b > 0 or (o - 1) * s - b + (k - 1) * d >= n for n, k, s, d, b, o in dims)
        return cls(*zip(*dims, strict=True), padded)

    @classmethod
    def pointwise_over(cls, input: Three) -> Windows:
        """Windows of one pixel each."""
        ones = (1, 1, 1)
        return cls(input, ones, ones, ones, (0, 0, 0), input, False)

    @property
    def pixels(self) -> int:
        return math.prod(self.output)

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def pointwise(self) -> bool:
        """Whether output pixel i sees input pixel i alone."""
        return self.taps == 1 and self.input == self.output and not self.padded

    @property
    def spread_needed(self) -> bool:
        return self.padded or any(s > 1 for s in self.strides)

    @property
    def phases(self) -> Three:
        """How many phases of the stride any tap reads."""
        return tuple(
            1 if d % s == 0 else min(s, (k - 1) * d + 1) for k, s, d in zip(self.kernel, self.strides, self.dilations, strict=True)
        )

    @property
    def spread(self) -> Three:
        """The dims of one phase of a spread channel."""
        return tuple(o + (k - 1) * d // s for k, s, d, o in zip(self.kernel, self.strides, self.dilations, self.output, strict=True))

    @property
    def spread_rows(self) -> int:
        return math.prod(self.phases) * self.spread[0] * self.spread[1]

    @property
    def spread_size(self) -> int:
        """Elements of a spread channel."""
        return self.spread_rows * self.spread[2]

    @property
    def excessive(self) -> bool:
        """Whether padding, dilation or kernel are so much larger than the image that spreading it would be absurd."""
        room = math.prod(self.input) + math.prod(self.output)
        return self.taps > _MOST_TAPS or self.spread_size > 8 * room + _MOST_TAPS

    @property
    def geometry(self) -> Geometry:
        return Geometry(*self.input, *self.phases, *self.spread, *self.strides, *self.begin)

    def band(self, height: int) -> Windows:
        """The same windows for the first `height` rows of the output alone."""
        return self._replace(output=(self.output[0], height, self.output[2]))

    def tap_offsets(self) -> np.ndarray:
        """Elements from an output pixel's place in a spread channel to each tap, in the weights' order.

        Where nothing needs to be spread, a channel of the input is laid out just so.
        """
        offsets = []
        planes, rows, columns = self.spread
        for tap in itertools.product(*map(range, self.kernel)):
            phase = [k * d % s for k, d, s in zip(tap, self.dilations, self.strides, strict=True)]
            z, y, x = (k * d // s for k, d, s in zip(tap, self.dilations, self.strides, strict=True))
            index = (phase[0] * self.phases[1] + phase[1]) * self.phases[2] + phase[2]
            offsets.append(((index * planes + z) * rows + y) * columns + x)
        return np.array(offsets, np.int64)

    def runs(self) -> tuple[np.ndarray, tuple[int, int, int], np.ndarray]:
        """The taps in runs, each tap of a run a row of the spread channel below the one before: runs of three, of two, of one.

        Returns where each run's first tap lies (as `tap_offsets`), how many runs of each length there are, and the taps' numbers in order.
        """
        offsets = self.tap_offsets()
        numbers = {int(offset): number for number, offset in enumerate(offsets)}
        found: dict[int, list[list[int]]] = {3: [], 2: [], 1: []}
        for start in sorted(numbers):
            if start in numbers:
                run = [start]
                while len(run) < 3 and run[-1] + self.spread[2] in numbers:
                    run.append(run[-1] + self.spread[2])
                found[len(run)].append([numbers.pop(offset) for offset in run])
        runs = [run for length in (3, 2, 1) for run in found[length]]
        counts = (len(found[3]), len(found[2]), len(found[1]))
        return offsets[[run[0] for run in runs]], counts, np.array([number for run in runs for number in run])
