"""Which plan a blockable convolution takes, where that is tuned: the candidates, and how they are measured."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mnnx.backends.backend import Execution
from mnnx.backends.cpu.executions.blocked_convolution import activation_of
from mnnx.backends.cpu.kernels.blocks import epilogue
from mnnx.backends.tuning import fastest
from mnnx.backends.tuning_file import Times
from mnnx.schema.ops.convolution import ConvTranspose
from mnnx.schema.records import Row

if TYPE_CHECKING:
    from mnnx.backends.cpu.executions.blocked_convolution import Blockable
    from mnnx.backends.cpu.tuning import Bench

#: So many plans are tried, and none that takes so many times as long as the best by the estimates.
_MOST_PLANS, _IMPLAUSIBLE = 6, 1.6
#: The names of the plain execution, and (beginning with this) of a plan for a plain source.
_PLAIN, _FROM_PLAIN = "plain", "from plain: "


class Tuned(Row):
    """The plan for a blocked source, the cycles that it saves against the plain execution, and those that a plain source saves."""

    plan: Any
    saved: float
    saved_from_plain: float


def tuned(execution: Blockable, sources: Sequence[int]) -> Tuned:
    """The fastest plan as far as times are known. Where estimates don't make blocks the clear choice, plain tensors are measured too."""
    best, cycles = execution.plan(True), execution.plain_cycles(execution.backend.block_width)
    plans = _likely(best, execution.other_plans(True))
    trials = {name: (execution, plan, True) for name, plan in plans.items()}
    from_plain = execution.plan(False) if 0 in sources else best
    other = _FROM_PLAIN + from_plain.name
    if cycles <= _IMPLAUSIBLE * best.cycles:
        trials[_PLAIN] = execution.plain, None, False
        if 0 in sources:
            trials[other] = execution, from_plain, False
    times = _choose(execution, "blocked", trials)
    plan = plans[fastest(list(plans), times)]
    if _PLAIN not in times or plan.name not in times:
        return Tuned(plan, cycles - best.cycles, cycles - from_plain.cycles)
    rate = best.cycles / min(times[name] for name in plans if name in times)
    return Tuned(plan, rate * (times[_PLAIN] - times[plan.name]), rate * (times[_PLAIN] - times.get(other, times[_PLAIN])))


def tuned_from_plain(execution: Blockable) -> Any:
    """The fastest plan for a plain source."""
    plans = _likely(execution.plan(False), execution.other_plans(False))
    times = _choose(execution, "plain source", {name: (execution, plan, False) for name, plan in plans.items()})
    return plans[fastest(list(plans), times)]


def _likely(best: Any, others: Sequence[Any]) -> dict[str, Any]:
    """By name: the best plan, the best ones of other algorithms, the second ones of all, …"""
    ranks: Counter[str] = Counter()
    ranked = []
    for plan in [best, *sorted(others, key=lambda plan: plan.cycles)]:
        if plan.cycles <= _IMPLAUSIBLE * best.cycles and all(plan.name != other.name for _, other in ranked):
            ranked.append((ranks[plan.algorithm], plan))
            ranks[plan.algorithm] += 1
    return {plan.name: plan for _, plan in sorted(ranked, key=lambda item: item[0])[:_MOST_PLANS]}


def _choose(execution: Blockable, what: str, trials: dict[str, tuple[Execution, Any, bool]]) -> Times:
    """The times of candidates: an execution, and its plan for a blocked result from a blocked or plain source."""

    @cache
    def bench() -> Bench:
        from mnnx.backends.cpu.tuning import Bench

        return Bench(execution.backend, *execution.specs)

    def prepare(name: str) -> Callable[[], float]:
        trial, plan, blocked_source = trials[name]
        if plan is not None:
            trial = copy.copy(trial)
            trial.run_blocked(blocked_source, plan)
        return bench().prepare(trial)

    return execution.backend.tuner.choose(execution.backend, _problem(execution, what), list(trials), prepare).times


def _problem(execution: Blockable, what: str) -> str:
    """All that the order of the candidates depends on."""
    op, windows = execution.op, execution.windows
    sizes = {
        "x": execution.x,
        "w": execution.w,
        "y": execution.specs[1][0].shape,
        "strides": windows.strides,
        "dilations": windows.dilations,
        "begin": windows.begin,
        "group": (op.group,),
    }
    words = [f"{name} {'x'.join(map(str, values))}" for name, values in sizes.items()]
    if execution.backend.config.memory == "low":
        words.append("little memory")
    return ", ".join(["transposed" if isinstance(op, ConvTranspose) else "conv", *words, epilogue(*activation_of(op))[0], what])
