"""The order of a plan's steps: another one where less is alive at once.

Two orders are tried. Greedy: of the steps that can be next, the one that leaves the least alive. Depth first: what a step reads is made in
the order in which Sethi and Ullman (The Generation of Optimal Code for Arithmetic Expressions, 1970) evaluate operands, first what needs
the most memory beyond what it leaves. That is best for trees; here results are used more than once, so that either may be better, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from mnnx.interpreter.step import Step
from mnnx.interpreter.values import Values

#: What planning may cost: longer plans keep their order.
MOST_STEPS = 2000
#: How much of the memory another order may save at the very best, for it to be looked for.
_LEAST_SAVING = 0.05
#: Greedy compares all steps that can be next, again for each step: with more than so many it is given up.
_MOST_READY = 64


def best_order(
    values: Values,
    steps: Sequence[Step],
    kept: Collection[int],
    bound: Callable[[Sequence[Step]], int],
    arena: Callable[[Sequence[Step]], int],
) -> Sequence[Step]:
    """The steps in an order of which the memory planner's lower bound and arena are both smaller than those of the given one, else as they
    are.

    All are on one backend, with their working memory known; `kept` are needed when they are done. bound, arena: what the memory planner
    says of the steps in some order, in bytes.
    """
    if not 3 < len(steps) <= MOST_STEPS:
        return steps
    least, taken = bound(steps), None
    work = _Work(values, steps, kept)
    if max(work.needed) >= (1 - _LEAST_SAVING) * least:
        return steps
    best = steps
    for places in filter(None, (work.greedy(), list(work.depth_first()))):
        candidate = [steps[place] for place in places]
        if (found := bound(candidate)) < least:
            taken = arena(best) if taken is None else taken
            if (needed := arena(candidate)) < taken:
                best, least, taken = candidate, found, needed
    return best


class _Work:
    """What each step, by its place in the given order, must come after, and what it uses. Views count as what they lie in."""

    def __init__(self, values: Values, steps: Sequence[Step], kept: Collection[int]):
        self.before: list[set[int]] = []
        self.uses: list[set[int]] = []
        self.scratch = [0 if step.working_memory is None else step.working_memory.nbytes for step in steps]
        self.nbytes: dict[int, int] = {}
        self.kept = {values.root(i) for i in kept}
        self.given: set[int] = set()
        writers: dict[int, set[int]] = {}
        for place, step in enumerate(steps):
            read, written = values.roots(step.inputs), values.roots(step.outputs)
            self.before.append({writer for root in read for writer in writers.get(root, ())})
            self.uses.append({root for root in read | written if values.on_device(root)})
            for root in self.uses[-1] - self.nbytes.keys():
                self.nbytes[root] = values.stored_bytes(root, step.backend)
                if root not in written:
                    self.given.add(root)
            for root in written:
                writers.setdefault(root, set()).add(place)
        #: Bytes that a step needs whenever it runs.
        self.needed = [sum(map(self.nbytes.get, uses)) + scratch for uses, scratch in zip(self.uses, self.scratch, strict=True)]
        for place, step in enumerate(steps):
            if step.execution.in_place:  # the result may lie where the input does
                self.needed[place] -= self.nbytes.get(values.root(step.outputs[0]), 0)
        self.after: list[list[int]] = [[] for _ in steps]
        for place, needed in enumerate(self.before):
            for earlier in needed:
                self.after[earlier].append(place)

    def greedy(self) -> list[int]:
        """Empty where more than `_MOST_READY` steps can be next at some time."""
        missing = [len(needed) for needed in self.before]
        left = dict.fromkeys(self.nbytes, 0)
        for uses in self.uses:
            for root in uses:
                left[root] += 1
        there = set(self.given)
        ready = [place for place, count in enumerate(missing) if not count]

        def cost(place: int) -> tuple[int, int, int]:
            made = sum(self.nbytes[root] for root in self.uses[place] if root not in there)
            freed = sum(self.nbytes[root] for root in self.uses[place] if left[root] == 1 and root not in self.kept)
            return made - freed, made + self.scratch[place], place

        order: list[int] = []
        while ready:
            if len(ready) > _MOST_READY:
                return []
            chosen = min(ready, key=cost)
            ready.remove(chosen)
            there |= self.uses[chosen]
            for root in self.uses[chosen]:
                left[root] -= 1
            for later in self.after[chosen]:
                missing[later] -= 1
                if not missing[later]:
                    ready.append(later)
            order.append(chosen)
        return order

    def depth_first(self) -> Iterator[int]:
        made = [sum(self.nbytes[r] for r in uses if r not in self.given) for uses in self.uses]
        own = [total - sum(self.nbytes[r] for e in self.before[p] for r in self.uses[e] & self.uses[p]) for p, total in enumerate(made)]
        need: list[int] = []
        operands: list[list[int]] = []
        for place, earlier in enumerate(self.before):
            operands.append(sorted(earlier, key=lambda e: (own[e] - need[e], e)))
            held = peak = 0
            for operand in operands[-1]:
                peak = max(peak, held + need[operand])
                held += max(0, own[operand])
            need.append(max(peak, made[place] + self.scratch[place]))
        done: set[int] = set()
        for last in range(len(self.before)):
            stack = [] if self.after[last] else [last]
            while stack:
                place = stack[-1]
                if place in done:
                    stack.pop()
                elif waiting := [operand for operand in operands[place] if operand not in done]:
                    stack.append(waiting[0])
                else:
                    done.add(place)
                    stack.pop()
                    yield place
