"""How many iterations the loops of a kernel make, for drivers that end them after a number of these (`Profile.loop_steps`)."""

from __future__ import annotations

#: Iterations of loops whose length is constant that a work item makes at most in kernels with others.
BESIDES = 256
#: What no loop reaches.
ENDLESS = 1 << 62


def nested(*counts: int) -> int:
    """The iterations of loops within each other, outermost first: in every loop one more than it runs, which finds that it is over."""
    steps = 0
    for count in reversed(counts):
        steps = count * (1 + steps) + 1
    return steps
