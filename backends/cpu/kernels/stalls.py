"""Threads that the system took off their core with a chunk in hand: others wait for that chunk, so they lend them their own core.

Where something else keeps a core busy, a worker shares that core with it by time slices of milliseconds. A thread that has waited for a
unit for a while asks the clocks of processor time whether those with a chunk in hand get on. It moves a worker that doesn't to its own
core, and sleeps a moment. The worker finishes the chunk there, then goes off to the other cores and queues with nothing in hand. The
calling thread is the user's: it isn't moved, but the sleep lets the system do so. Nobody yields its core while the others get on: it would
not have it back before the next time slice.

The block of a thread in the team's memory, in bytes from its begin (`backends/cpu/team.py` sets up what threads are):

     80  the id of the clock of the processor time it used, 0: unknown
     88  its id as a task of the system, 0: it is not to be moved
     96  whether it has claimed chunks that aren't counted as done
    104  whether it was moved (1), or keeps off the core where it was moved (2)
    128  the CPUs on which it may run, 128 bytes
    256  working memory, 128 bytes
"""

from numba import types

from mnnx.backends.cpu.kernels.intrinsics import atomic_load, atomic_store, inlined, load_i64, pause, store_i64

clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
sched_getcpu = types.ExternalFunction("sched_getcpu", types.int32())
sched_setaffinity = types.ExternalFunction("sched_setaffinity", types.int32(types.int32, types.intp, types.intp))
pthread_getcpuclockid = types.ExternalFunction("pthread_getcpuclockid", types.int32(types.intp, types.intp))
pthread_self = types.ExternalFunction("pthread_self", types.intp())
usleep = types.ExternalFunction("usleep", types.int32(types.uint32))

BLOCK = 384
_CLOCK, _TASK, _IN_HAND, _MOVED = 80, 88, 96, 104
_CPUS, _WORK = 128, 256
MASK_BYTES = 128
_MONOTONIC = 1  # the id of that clock
_STILL_SPINS = 40  # between two looks at a clock: a few microseconds
_NAP = 20  # microseconds


@inlined
def now(block):
    """Nanoseconds of a clock that never goes back."""
    return _time(_MONOTONIC, block)


@inlined
def take(block):
    """The thread may have chunks in hand from now on."""
    atomic_store(block + _IN_HAND, 1)


@inlined
def moved(block):
    """Whether the thread runs on another's core, and should claim no more there."""
    return load_i64(block + _MOVED) == 1


@inlined
def lay_down(block):
    """Its chunks are done. A thread that was moved for them goes away again."""
    atomic_store(block + _IN_HAND, 0)
    if load_i64(block + _MOVED) == 1:
        atomic_store(block + _MOVED, 2)
        _allow(block, sched_getcpu())


@inlined
def settle(block):
    """All work is done: the thread may run where it might at first."""
    if load_i64(block + _MOVED) != 0:
        atomic_store(block + _MOVED, 0)
        sched_setaffinity(0, MASK_BYTES, block + _CPUS)


@inlined
def introduce(block):
    """This thread is the block's; it is not to be moved."""
    pthread_getcpuclockid(pthread_self(), block + _CLOCK)


@inlined
def help_along(block, other):
    """Lends this thread's core to another that has none, for the chunk in its hand. Returns whether the other has one."""
    if atomic_load(other + _IN_HAND) == 0:
        return False
    used = _processor_time(block, other)
    for _ in range(_STILL_SPINS):
        pause()
    if _processor_time(block, other) != used or atomic_load(other + _IN_HAND) == 0:
        return True
    if load_i64(other + _TASK) != 0:
        cpu = sched_getcpu()
        for offset in range(0, MASK_BYTES, 8):
            store_i64(block + _WORK + offset, 1 << (cpu & 63) if cpu >> 6 == offset >> 3 else 0)
        sched_setaffinity(load_i64(other + _TASK), MASK_BYTES, block + _WORK)
        atomic_store(other + _MOVED, 1)  # afterwards, so that the other surely undoes it
    usleep(_NAP)
    return True


@inlined
def _processor_time(block, other):
    return _time(load_i64(other + _CLOCK), block)


@inlined
def _time(clock, block):
    clock_gettime(clock, block + _WORK)
    return load_i64(block + _WORK) * 1_000_000_000 + load_i64(block + _WORK + 8)


@inlined
def _allow(block, besides):
    """Lets the thread run on all its CPUs but one, if there are others."""
    any_left = 0
    for offset in range(0, MASK_BYTES, 8):
        cpus = load_i64(block + _CPUS + offset)
        if besides >> 6 == offset >> 3:
            cpus &= ~(1 << (besides & 63))
        store_i64(block + _WORK + offset, cpus)
        any_left |= cpus
    if any_left != 0:
        sched_setaffinity(0, MASK_BYTES, block + _WORK)
