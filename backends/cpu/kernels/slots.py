"""Working memory per thread: as many slots as threads; a chunk claims a free one and gives it back.

Chunks don't know their thread, and there can be many more chunks than threads; but no more than `threads` of them run at once, so one
of as many slots is always free. `flags` is the address of one int64 per slot, all 0 between runs.
"""

from mnnx.backends.cpu.kernels.intrinsics import atomic_store, compare_and_swap, inlined


@inlined
def claim_slot(flags, count):
    """The index of a slot that is the caller's until `free_slot`."""
    while True:
        for slot in range(count):
            if compare_and_swap(flags + 8 * slot, 0, 1):
                return slot


@inlined
def free_slot(flags, slot):
    atomic_store(flags + 8 * slot, 0)
