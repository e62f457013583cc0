"""The memory planner: no two buffers that live at the same time overlap, and the arena is not much larger than it must be."""

from __future__ import annotations

import random

import pytest

from mnnx.interpreter.memory import Buffer, plan_memory
from tests.networks import SMALL, feed_for

ALIGNMENT = 64


def aligned(nbytes):
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def live_together(a, b):
    return any(a.first <= step <= a.last for step in range(b.first, b.last + 1))


def buffers_at_random(seed):
    rng = random.Random(seed)
    steps = rng.randint(1, 30)
    buffers = []
    for _ in range(rng.randint(0, 40)):
        first = rng.randrange(steps)
        size = rng.choice((0, 1, 63, 64, 65, rng.randrange(1000), rng.randrange(100_000)))
        buffers.append(Buffer(size, first, rng.randint(first, min(steps - 1, first + rng.choice((0, 1, 2, 30))))))
    return buffers, steps


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("largest", [None, 150_000, 99_999, 1000])
def test_buffers_that_live_together_dont_overlap(seed, largest):
    buffers, steps = buffers_at_random(seed)
    plan = plan_memory(buffers, ALIGNMENT, largest)
    for index, a in enumerate(buffers):
        assert a.offset % ALIGNMENT == 0
        assert 0 <= a.offset <= a.offset + a.nbytes <= plan.arenas[a.arena]
        assert largest is None or plan.arenas[a.arena] <= max(largest, max(b.nbytes for b in buffers if b.arena == a.arena))
        for b in buffers[:index]:
            if a.arena == b.arena and live_together(a, b):
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
    bound = max((sum(aligned(b.nbytes) for b in buffers if b.first <= step <= b.last) for step in range(steps)), default=0)
    assert plan.lower_bound_bytes == bound <= sum(aligned(nbytes) for nbytes in plan.arenas)


@pytest.mark.parametrize(
    ("lifetimes", "arena"),
    [
        ([], 0),
        ([(100, 0, 0)], 128),
        ([(128, 0, 1), (128, 2, 3)], 128),  # one after the other: the same place
        ([(128, 0, 1), (128, 1, 2)], 256),
        ([(64, 0, 2), (128, 0, 0), (128, 1, 1), (128, 2, 2)], 192),
        ([(0, 0, 5), (0, 0, 5)], 0),
    ],
)
def test_arenas_of_a_few_buffers(lifetimes, arena):
    assert plan_memory([Buffer(*lifetime) for lifetime in lifetimes], ALIGNMENT).arena_bytes == arena


@pytest.mark.parametrize(
    ("lifetimes", "arenas"),
    [
        ([], ()),
        ([(128, 0, 1), (128, 1, 2)], (256,)),
        ([(192, 0, 1), (128, 1, 2)], (192, 128)),
        ([(192, 0, 1), (128, 2, 2), (64, 1, 2)], (256,)),
        ([(192, 0, 1), (128, 1, 1), (128, 1, 2), (128, 2, 2)], (192, 256)),
        ([(1000, 0, 1), (200, 0, 1)], (1000, 256)),  # a single one may be larger
        ([(64, 0, 0), (192, 0, 0), (260, 1, 1)], (260,)),  # rounded up, it would be larger than that
    ],
)
def test_arenas_are_no_larger_than_an_allocation(lifetimes, arenas):
    assert plan_memory([Buffer(*lifetime) for lifetime in lifetimes], ALIGNMENT, 260).arenas == arenas


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize("name", SMALL)
def test_arenas_of_networks_are_close_to_the_lower_bound(session_of, name, level):
    make, sizes = SMALL[name]
    model = make()
    session = session_of(model, level=level, num_threads=1)
    session.run(feed_for(model, sizes))
    info = session.info()
    assert 0 < info["arena_lower_bound_bytes"] <= info["arena_bytes"] <= 1.3 * info["arena_lower_bound_bytes"]
    assert info["memory_mb"] == pytest.approx((info["arena_bytes"] + info["weight_bytes"]) / 2**20)
