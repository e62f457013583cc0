"""Convolutions that run plain, or in the blocked layout where the planner chooses so."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mnnx.backends.backend import Execution, Layouts, Specs, Tensors
from mnnx.backends.cpu.arguments import address_of
from mnnx.backends.cpu.executions.blocked_depthwise import BlockedDepthwisePlan
from mnnx.backends.cpu.executions.blocked_product import BlockedProductPlan, TileShape
from mnnx.backends.cpu.executions.blocked_transposed import BlockedTransposedPlan
from mnnx.backends.cpu.executions.blocked_winograd import BlockedWinogradPlan, best_winograd
from mnnx.backends.cpu.kernels.blocks import epilogue
from mnnx.backends.cpu.kernels.winograd import POINTS
from mnnx.backends.cpu.windows import Windows
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op

if TYPE_CHECKING:
    from mnnx.backends.cpu.executions.tuned_convolution import Tuned

_MOST_STEPS = 1 << 16
#: Memory traffic that takes as long as a cycle of arithmetic.
_BYTES_PER_CYCLE = 10


def activation_of(op: Op) -> tuple[str, tuple[float, ...]]:
    """What a convolution ends in; plain ones in nothing."""
    return (op.activation, op.activation_parameters) if hasattr(op, "activation") else ("", ())


class Blockable(Execution):
    """An op of float32 with constant weights; `plain` runs it on plain tensors."""

    def __init__(self, plain: Execution, inputs: Specs, outputs: Specs):
        super().__init__(plain.op, plain.backend)
        self.plain = plain
        self.specs = inputs, outputs
        self.x, self.w = inputs[0].shape, inputs[1].shape
        self.windows = Windows.of(self.op.geometry(self.x, self.w))
        self.has_residual = len(inputs) > 3 and inputs[3] is not None
        self._blocked = None
        self._plans: dict[bool, Any] = {}

    @abstractmethod
    def sources(self, lanes: int) -> list[int]:
        """The layouts of x that give a blocked result."""

    @abstractmethod
    def plan(self, blocked_source: bool):
        """How it runs with a blocked result, by the estimates."""

    def other_plans(self, blocked_source: bool) -> list:
        """What tuning may find to be faster."""
        return []

    @abstractmethod
    def plain_cycles(self, lanes: int) -> float:
        """An estimate of the time of the plain execution."""

    def _planned(self, blocked_source: bool):
        if blocked_source not in self._plans:
            self._plans[blocked_source] = self._best(blocked_source)
        return self._plans[blocked_source]

    def _best(self, blocked_source: bool):
        if self.backend.tuner is None:
            return self.plan(blocked_source)
        from mnnx.backends.cpu.executions import tuned_convolution

        return self._tuned.plan if blocked_source else tuned_convolution.tuned_from_plain(self)

    @cached_property
    def _tuned(self) -> Tuned:
        from mnnx.backends.cpu.executions import tuned_convolution

        return tuned_convolution.tuned(self, self.sources(self.backend.block_width))

    def _saved_cycles(self, source: int, lanes: int) -> float:
        """How many cycles a way with a blocked result saves against the plain one."""
        if self.backend.tuner is not None and lanes in self.sources(lanes):
            return self._tuned.saved if source else self._tuned.saved_from_plain
        return self.plain_cycles(lanes) - self._planned(bool(source)).cycles

    def run_blocked(self, blocked_source: bool, plan: Any) -> None:
        """Makes it run with a blocked result by a given plan."""
        self.way = self._way(self.backend.block_width if blocked_source else 0)
        self._blocked = plan

    @property
    def in_place(self) -> tuple[int, ...]:
        if self.blocked is None:
            return self.plain.in_place
        return (3,) if self.has_residual and not self.blocked.overlaps else ()

    @property
    def blocked(self):
        """The plan for the blocked layout, where the planner chose that."""
        if self._blocked is None and self.way is not None and self.way.outputs[0]:
            self._blocked = self._planned(bool(self.way.inputs[0]))
        return self._blocked

    @property
    def flat(self) -> bool:
        """Whether the windows slide over no more than two dims."""
        windows = self.windows
        return windows.begin[0] == 0 and windows.input[0] == windows.kernel[0] == windows.output[0] == 1

    def layouts(self, inputs: Specs, outputs: Specs, lanes: int) -> Sequence[Layouts]:
        if outputs[0].size == 0:
            return ()
        return [self._way(source, _BYTES_PER_CYCLE * self._saved_cycles(source, lanes)) for source in self.sources(lanes)]

    def _way(self, source: int, saves: float = 0.0) -> Layouts:
        inputs, lanes = self.specs[0], self.backend.block_width
        rest = (lanes if i == 3 and spec is not None else 0 for i, spec in enumerate(inputs))
        return Layouts((source, *list(rest)[1:]), (lanes,), saves)

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return self.plain.scratch_bytes(inputs, outputs) if self.blocked is None else self.blocked.scratch_bytes

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        if self.blocked is None:
            self.plain.on_resize(inputs, outputs, scratch)
            return
        x, w, bias, residual = (*inputs, None, None)[:4]
        blocked, backend = self.blocked, self.backend
        kind, parameters = epilogue(*activation_of(self.op))
        blocked.record(
            address_of(x),
            backend.packed(("blocked", *blocked.packing), w.constant, blocked.pack_weights),
            blocked.pack_bias(None if bias is None else bias.constant),
            address_of(outputs[0]),
            0 if residual is None else address_of(residual),
            (kind, np.array(parameters, np.float32)),
            0 if scratch is None else address_of(scratch),
        )


class BlockableConvolution(Blockable):
    """Conv and FusedConv."""

    @property
    def _depthwise(self) -> bool:
        return self.op.group > 1 and self.w[0] == self.op.group and self.w[1] == 1

    def sources(self, lanes: int) -> list[int]:
        windows, groups = self.windows, self.op.group
        if not (windows.pointwise or self.flat):
            return []
        if self._depthwise:
            return [lanes] if BlockedDepthwisePlan.column_counts(windows, self.backend.target.vector_registers) else []
        if windows.taps * self.w[1] > _MOST_STEPS or (groups > 1 and (self.w[0] // groups) % lanes):
            return []
        return [0, lanes] if groups == 1 or self.w[1] % lanes == 0 else [0]

    def plan(self, blocked_source: bool) -> BlockedProductPlan | BlockedWinogradPlan | BlockedDepthwisePlan:
        if self._depthwise:
            return BlockedDepthwisePlan(self.backend, self.windows, self.x[0], self.x[1])
        product = self._product(blocked_source)
        if self._winograd_fits(blocked_source):
            return best_winograd(self.backend, self.windows, self.x[0], self.w[1], self.w[0], product.cycles) or product
        return product

    def other_plans(self, blocked_source: bool) -> list[BlockedProductPlan | BlockedWinogradPlan | BlockedDepthwisePlan]:
        backend, windows, images, registers = self.backend, self.windows, self.x[0], self.backend.target.vector_registers
        if self._depthwise:
            counts = BlockedDepthwisePlan.column_counts(windows, registers)
            return [BlockedDepthwisePlan(backend, windows, images, self.x[1], columns) for columns in counts]

        def shapes(plan: BlockedProductPlan | BlockedWinogradPlan) -> tuple[TileShape, ...]:
            return plan.shape, *TileShape.others(plan.width, plan.blocks, backend.block_width, registers)

        plans = [self._product(blocked_source, shape) for shape in shapes(self._product(blocked_source))]
        for square in POINTS if self._winograd_fits(blocked_source) else ():
            first = BlockedWinogradPlan(backend, windows, images, self.w[1], self.w[0], square)
            plans += [BlockedWinogradPlan(backend, windows, images, self.w[1], self.w[0], square, shape) for shape in shapes(first)]
        return plans

    def _product(self, blocked_source: bool, shape: TileShape | None = None) -> BlockedProductPlan:
        groups = self.op.group
        return BlockedProductPlan(
            self.backend, self.windows, self.x[0], groups, self.w[1], self.w[0] // groups, blocked_source, shape=shape
        )

    def _winograd_fits(self, blocked_source: bool) -> bool:
        return self.op.group == 1 and blocked_source and self.backend.config.memory != "low" and BlockedWinogradPlan.fits(self.windows)

    def plain_cycles(self, lanes: int) -> float:
        """Packing or spreading the image, and multiplying."""
        windows, (images, channels), outputs = self.windows, self.x[:2], self.w[0]
        spread = 2 * windows.spread_size if windows.spread_needed else 0
        if self._depthwise:
            return images * channels * (spread + windows.taps * windows.pixels) / lanes
        depth, pixels = self.w[1] * windows.taps, windows.pixels + 24
        products = self.op.group * (-(-outputs // self.op.group // 8) * 8) * depth * pixels / 2 * 1.5
        return images * (products + channels * (spread + 2 * windows.taps * pixels)) / lanes


class BlockableTransposed(Blockable):
    """ConvTranspose and FusedConvTranspose."""

    def sources(self, lanes: int) -> list[int]:
        windows, groups = self.windows, self.op.group
        per_group = self.x[1] // groups
        if not self.flat or not BlockedTransposedPlan.fits(windows) or windows.taps * per_group > _MOST_STEPS:
            return []
        return [lanes] if groups == 1 or (self.w[1] % lanes == 0 and per_group % lanes == 0) else []

    def plan(self, blocked_source: bool) -> BlockedTransposedPlan:
        groups = self.op.group
        return BlockedTransposedPlan(self.backend, self.windows, self.x[0], groups, self.x[1] // groups, self.w[1])

    def plain_cycles(self, lanes: int) -> float:
        """Multiplying, and gathering the terms."""
        groups = self.op.group
        terms = self.x[0] * groups * self.w[1] * self.windows.taps * math.prod(self.windows.input)
        return terms * (0.75 * self.x[1] / groups / lanes + 1)
