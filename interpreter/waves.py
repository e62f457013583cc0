"""Which ops run side by side: steps → waves of independent ones.

Steps that don't need each other's results can run at the same time. Here they are put into an order of waves: list scheduling, longest
remaining path first (Graham, 1966; Adam, Chandy and Dickson, A Comparison of List Schedules for Parallel Processing Systems, 1974), with
at most `width` in a wave. What a wave's steps read and write lives through the whole of it, so that none of them can disturb another.

Elementwise steps that nothing else comes between stay together in one lane of a wave, so that a backend can run them in one pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from mnnx.interpreter.step import Step
from mnnx.interpreter.values import Values
from mnnx.schema.ops.elementwise import Elementwise

#: How many floating point operations take about as long as a byte of memory traffic.
_FLOPS_PER_BYTE = 8


def arrange(values: Values, steps: Sequence[Step], width: int) -> list[Step]:
    """The steps in the order in which they run, each told its wave and lane. With a width of 1 each is a wave of its own, in their order.

    Steps on backends that don't run several at once keep their places, and nothing is moved past them.
    """
    arranged: list[Step] = []
    wave = 0
    for backend, run in groupby(steps, lambda step: step.backend):
        if width > 1 and backend.runs_abreast:
            waves: Iterator[list[list[Step]]] = _waves(values, list(run), width)
        else:
            waves = ([[step]] for step in run)
        for lanes in waves:
            for lane, members in enumerate(lanes):
                for step in members:
                    step.wave, step.lane = wave, lane
                    arranged.append(step)
            wave += 1
    return arranged


def _waves(values: Values, steps: Sequence[Step], width: int) -> Iterator[list[list[Step]]]:
    """Waves of lanes; those of a wave are in the order in which their steps came."""
    import heapq  # not at every start

    lanes, needs = _lanes(values, steps)
    followers: list[list[int]] = [[] for _ in lanes]
    for lane, needed in enumerate(needs):
        for other in needed:
            followers[other].append(lane)
    ahead = [0.0] * len(lanes)  # what the longest path from a lane's begin to the end costs
    for lane in reversed(range(len(lanes))):
        cost = sum(_cost(values, step) for step in lanes[lane])
        ahead[lane] = cost + max((ahead[follower] for follower in followers[lane]), default=0)
    missing = [len(needed) for needed in needs]
    ready = [(-ahead[lane], lane) for lane, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    while ready:
        chosen = sorted(heapq.heappop(ready)[1] for _ in range(min(width, len(ready))))
        yield [lanes[lane] for lane in chosen]
        for lane in chosen:
            for follower in followers[lane]:
                missing[follower] -= 1
                if not missing[follower]:
                    heapq.heappush(ready, (-ahead[follower], follower))


def _lanes(values: Values, steps: Sequence[Step]) -> tuple[list[list[Step]], list[set[int]]]:
    """Lanes in an order in which they could run one by one, and which lanes each one needs.

    Values are told apart by the memory that they lie in: whoever reads a tensor needs all that write a part of it before.
    """
    readers = Counter(root for step in steps for root in values.roots(step.inputs))
    lanes: list[list[Step]] = []
    needs: list[set[int]] = []
    writers: dict[int, set[int]] = {}
    for step in steps:
        needed = set().union(*(writers.get(root, ()) for root in values.roots(step.inputs)))
        lane = max(needed, default=-1)
        if lane >= 0 and _goes_on(values, lanes[lane][-1], step, readers):
            needs[lane] |= needed - {lane}
            lanes[lane].append(step)
        else:
            lane = len(lanes)
            needs.append(needed)
            lanes.append([step])
        for root in values.roots(step.outputs):
            writers.setdefault(root, set()).add(lane)
    return lanes, needs


def _goes_on(values: Values, before: Step, step: Step, readers: Counter[int]) -> bool:
    """Whether a step can stay in the lane of the one that its last operand comes from."""
    if not isinstance(before.op, Elementwise) or not isinstance(step.op, Elementwise):
        return False
    result = before.outputs[0]
    return result in step.inputs and values.root(result) == result and readers[result] == 1


def _cost(values: Values, step: Step) -> float:
    """About how long it takes, in bytes of memory traffic."""
    specs, results = ([values.spec(i) for i in indices] for indices in (step.inputs, step.outputs))
    return sum(spec.nbytes for spec in (*specs, *results) if spec is not None) + step.op.flops(specs, results) / _FLOPS_PER_BYTE
