"""Transposed convolutions in the blocked layout: one plain convolution for each phase of the stride in the output."""

from __future__ import annotations

import itertools
import math

import numpy as np

from mnnx.backends.cpu.executions.blocked_product import BlockedProductPlan, Grid
from mnnx.backends.cpu.windows import Windows

_MOST_PHASES = 16


class BlockedTransposedPlan:
    """The plan of x [N, groups * channels, H, W] → y [N, groups * outputs, H', W'], both blocked.

    Output row q * stride + a gets the taps k = r, r + stride, … with r = (a + begin) mod stride, from the input rows q + (a + begin) //
    stride, the one before, …: a convolution with these taps in reverse. Columns likewise.
    """

    #: Working memory needed.
    scratch_bytes = 0
    algorithm = name = "phases"

    def __init__(self, backend, windows: Windows, images: int, groups: int, channels: int, outputs: int):
        self.windows, self.groups, self.channels, self.outputs = windows, groups, channels, outputs
        self.phases: list[tuple[tuple[int, int], BlockedProductPlan]] = []  # the first taps, and the plan
        sizes, strides = windows.output[1:], windows.strides[1:]
        for start in itertools.product(*(range(min(s, n)) for s, n in zip(strides, sizes, strict=True))):
            places = [divmod(a + b, s) for a, b, s in zip(start, windows.begin[1:], strides, strict=True)]
            taps = [-(-(k - r) // s) for k, (_, r), s in zip(windows.kernel[1:], places, strides, strict=True)]
            begin = [t - 1 - c for t, (c, _) in zip(taps, places, strict=True)]
            output = [-(-(n - a) // s) for n, a, s in zip(sizes, start, strides, strict=True)]
            phase = Windows(windows.input, (1, *taps), (1, 1, 1), (1, 1, 1), (0, *begin), (1, *output), True)
            plan = BlockedProductPlan(backend, phase, images, groups, channels, outputs, True, Grid(sizes, start, strides))
            self.phases.append((tuple(r for _, r in places), plan))

    @staticmethod
    def fits(windows: Windows) -> bool:
        """Whether the phases are few, and have taps each."""
        few = math.prod(windows.strides) <= _MOST_PHASES and windows.dilations == (1, 1, 1)
        return few and all(k >= s for k, s in zip(windows.kernel, windows.strides, strict=True))

    @property
    def cycles(self) -> float:
        """An estimate of the time on one core."""
        return sum(plan.cycles for _, plan in self.phases)

    @property
    def overlaps(self) -> bool:
        """Whether pixels are computed twice."""
        return any(plan.overlaps for _, plan in self.phases)

    @property
    def packing(self) -> tuple:
        """Names how the weights are packed."""
        return ("transposed", self.windows.strides, *((first, plan.packing) for first, plan in self.phases))

    def pack_weights(self, w: np.ndarray) -> list[np.ndarray]:
        """[groups * channels, outputs, kernel…] → those of each phase."""
        (_, down, across), kernel = self.windows.strides, self.windows.kernel[1:]
        w = w.reshape(self.groups, self.channels, self.outputs, *kernel).swapaxes(1, 2)
        return [plan.pack_weights(w[..., row::down, column::across][..., ::-1, ::-1]) for (row, column), plan in self.phases]

    def pack_bias(self, bias: np.ndarray | None) -> list[np.ndarray]:
        return [plan.pack_bias(bias) for _, plan in self.phases]

    def record(
        self, x: int, weights: list[np.ndarray], bias: list[np.ndarray], target: int, residual: int, epilogue: tuple, scratch: int
    ) -> None:
        """Records a unit for each phase; the arguments are those of `BlockedProductPlan.record`."""
        for (_, plan), phase_weights, phase_bias in zip(self.phases, weights, bias, strict=True):
            plan.record(x, phase_weights, phase_bias, target, residual, epilogue)
