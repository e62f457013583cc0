"""The thread team: all threads walk a program and claim chunks of its units with one compare-and-swap each.

A unit's chunks are dealt out evenly: a thread takes those dealt to it, one after the other, then what others have left of theirs. So a
chunk mostly runs where the same part of the data was made, and a unit is done when its chunks are done, whoever did them: a thread that
comes late, or that the system took off its core between two chunks, delays nobody. Counters carry the number of the run in their
upper bits, so a thread that is still in an earlier run can claim nothing and waits for nothing; they need no reset between runs.

Layouts (int64 words; `backends/cpu/team.py`, `stretch.py` and `program.py` write them):

    program   per unit: kernel address, args address, chunks, unused
    counters  per unit one cache line per thread, run << 20 | chunks claimed of those dealt to it, and one for run << 20 | chunks done
    stretch   program, counters, units, helpers worth waking, and for a shared team the unit with which to go on
    loop      stretch, address of the status in which faults are reported, the next iteration, the last iteration + 1 (afterwards: whether
              the loop goes on), addresses (0: none) of the iteration's number and of the condition, a byte, how many rows of the table
              that follows are for before a pass, how many for after it.
              A row: target, bytes from one iteration's target to the next one's, source, the same, bytes to copy
    team      one block of kernels/stalls.py's size per thread.
              The caller's: the job, which is its sequence number (odd while it is written), program, counters, units, run, stop; whether
              the caller is to make room for another one; 64 bytes further the last completed run, the last started run.
              A worker's: its semaphore; 64 bytes further whether it sleeps, how often it has begun and ended to look at a job (odd: it
              looks at one), and what kernels/stalls.py says
"""

from numba import types

from mnnx.backends.cpu.kernels.intrinsics import (
    atomic_load,
    atomic_store,
    call_kernel,
    compare_and_swap,
    inlined,
    load_i64,
    load_in,
    pause,
    pointer_to,
    quotient,
    store_i64,
    store_out,
)
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.kernels.stalls import BLOCK, help_along, introduce, lay_down, moved, now, settle, take

sem_wait = types.ExternalFunction("sem_wait", types.int32(types.intp))
sem_post = types.ExternalFunction("sem_post", types.int32(types.intp))
sched_yield = types.ExternalFunction("sched_yield", types.int32())

CHUNK_BITS = 20
_UNIT_SPINS = 1000  # before a thread that waits for a unit gives its core away
_FIRST_GO_SPINS = 200  # how long workers leave a unit of one chunk to the calling thread, whose cache holds its input
_IDLE_SPINS = 1500  # how long a worker looks for the next job before it sleeps
_AWAKE, _SLEEPING = 0, 1
_FIRST_SLICE, _SLICE_TIME = 8, 1_000_000  # units; nanoseconds after which a shared team looks who else wants it


@inlined
def add(address, base, count):
    """Adds to a counter of the run that starts at `base`."""
    while True:
        value = atomic_load(address)
        if compare_and_swap(address, value, max(value, base) + count):
            return


@inlined
def walk(team, program, counters, units, run, thread, threads):
    """Does what can be claimed of the units, in order; returns when all of them are done."""
    base, block = run << CHUNK_BITS, team + BLOCK * thread
    for index in range(units):
        unit, lines = program + 32 * index, counters + 64 * (threads + 1) * index
        kernel, args, chunks = load_i64(unit), load_i64(unit + 8), load_i64(unit + 16)
        done = lines + 64 * threads
        spins = 0
        while thread != 0 and chunks == 1 and spins < _FIRST_GO_SPINS and atomic_load(lines) <= base:
            pause()
            spins += 1
        take(block)
        ran = 0
        for turn in range(threads):
            owner = thread + turn if thread + turn < threads else thread + turn - threads
            begin = quotient(chunks * owner + threads - 1, threads)
            dealt = quotient(chunks * (owner + 1) + threads - 1, threads) - begin
            while dealt != 0 and not moved(block):
                value = atomic_load(lines + 64 * owner)
                claimed = max(value, base)
                if claimed - base >= dealt:  # or a later run is on
                    break
                if compare_and_swap(lines + 64 * owner, value, claimed + 1):
                    call_kernel(kernel, args, begin + claimed - base, chunks)
                    ran += 1
        if ran != 0:
            add(done, base, ran)
        lay_down(block)
        spins = 0
        while atomic_load(done) < base + chunks:
            pause()
            spins += 1
            if spins > _UNIT_SPINS:
                help_others(team, thread, threads)
                spins = 0


@inlined
def help_others(team, thread, threads):
    """For a thread that waits."""
    any_at_work = False
    for other in range(threads):
        if other != thread:
            any_at_work |= help_along(team + BLOCK * thread, team + BLOCK * other)
    if not any_at_work:
        sched_yield()


@inlined
def publish(team, program, counters, units, run):
    """Makes this the team's job. Workers read it between two equal, even sequence numbers; writers exclude each other by the odd one."""
    while True:
        sequence = atomic_load(team)
        if sequence & 1 == 0 and compare_and_swap(team, sequence, sequence + 1):
            break
        pause()
    atomic_store(team + 8, program)
    atomic_store(team + 16, counters)
    atomic_store(team + 24, units)
    atomic_store(team + 32, run)
    atomic_store(team, sequence + 2)


@inlined
def wake(team, threads):
    for thread in range(1, threads):
        block = team + BLOCK * thread
        if atomic_load(block + 64) == _SLEEPING and compare_and_swap(block + 64, _SLEEPING, _AWAKE):
            sem_post(block)


@inlined
def await_job(team, block, seen):
    """Returns when the job's sequence number isn't `seen` any more."""
    spins = 0
    while atomic_load(team) == seen:
        if spins < _IDLE_SPINS:
            pause()
            spins += 1
            continue
        atomic_store(block + 64, _SLEEPING)
        if atomic_load(team) == seen or not compare_and_swap(block + 64, _SLEEPING, _AWAKE):
            sem_wait(block)
        spins = 0


@inlined
def run_stretch(stretch, team, threads):
    """Runs a stretch of a program on the calling thread and its helpers."""
    run_units(load_i64(stretch), load_i64(stretch + 8), load_i64(stretch + 16), load_i64(stretch + 24), team, threads)


@inlined
def run_units(program, counters, units, helpers, team, threads):
    if threads == 1 or helpers == 0:
        for index in range(units):
            unit = program + 32 * index
            kernel, args, chunks = load_i64(unit), load_i64(unit + 8), load_i64(unit + 16)
            for chunk in range(chunks):
                call_kernel(kernel, args, chunk, chunks)
        return
    introduce(team)
    number = load_i64(team + 72) + 1
    store_i64(team + 72, number)
    publish(team, program, counters, units, number)
    wake(team, min(threads, helpers + 1))
    walk(team, program, counters, units, number, 0, threads)
    atomic_store(team + 64, number)


@kernel_factory("team.run")
def make_run():
    def run(stretch, team, threads):
        run_stretch(stretch, team, threads)

    return run


@kernel_factory("team.share")
def make_share():
    def share(stretch, team, threads):
        """Runs a stretch from the unit on with which to go on, up to its end, or to where the caller is to make room for another one."""
        program, counters = load_i64(stretch), load_i64(stretch + 8)
        units, helpers, first = load_i64(stretch + 16), load_i64(stretch + 24), load_i64(stretch + 32)
        size = _FIRST_SLICE
        while True:
            count = min(size, units - first)
            begin = now(team)
            run_units(program + 32 * first, counters + 64 * (threads + 1) * first, count, helpers, team, threads)
            first += count
            if first == units or atomic_load(team + 48) != 0:
                break
            took = now(team) - begin
            if took < _SLICE_TIME // 2:
                size *= 2
            elif took > _SLICE_TIME:
                size = max(1, size // 2)
        store_i64(stretch + 32, first if first < units else 0)

    return share


_bytes_at = pointer_to("uint8")


@inlined
def copy_rows(rows, count, iteration):
    """Copies what each of `count` rows of a loop's table says for an iteration."""
    for index in range(count):
        row = rows + 40 * index
        target = _bytes_at(load_i64(row) + iteration * load_i64(row + 8))
        source = _bytes_at(load_i64(row + 16) + iteration * load_i64(row + 24))
        for i in range(load_i64(row + 32)):
            store_out(target, i, load_in(source, i))


@kernel_factory("team.repeat")
def make_repeat():
    def repeat(loop, team, threads):
        """Runs a stretch once per iteration of a loop, until it ends, a kernel reports a fault, or the caller is to make room."""
        stretch, status = load_i64(loop), load_i64(loop + 8)
        iteration, last = load_i64(loop + 16), load_i64(loop + 24)
        index, condition = load_i64(loop + 32), load_i64(loop + 40)
        before, after = load_i64(loop + 48), load_i64(loop + 56)
        going = True
        while going and iteration < last:
            if index != 0:
                store_i64(index, iteration)
            copy_rows(loop + 64, before, iteration)
            run_stretch(stretch, team, threads)
            if load_i64(status) != 0:
                break
            going = condition == 0 or _bytes_at(condition)[0] != 0
            copy_rows(loop + 64 + 40 * before, after, iteration)
            iteration += 1
            if atomic_load(team + 48) != 0:
                break
        store_i64(loop + 16, iteration)
        store_i64(loop + 24, going)

    return repeat


@kernel_factory("team.worker")
def make_worker():
    def worker(team, thread, threads):
        """What a worker thread does until the team stops."""
        block, seen, looks = team + BLOCK * thread, 0, 0
        while True:
            await_job(team, block, seen)
            looks += 2
            atomic_store(block + 72, looks - 1)
            while True:
                seen = atomic_load(team)
                program, counters = atomic_load(team + 8), atomic_load(team + 16)
                units, run = atomic_load(team + 24), atomic_load(team + 32)
                if seen & 1 == 0 and atomic_load(team) == seen:
                    break
                pause()
            if run > atomic_load(team + 64):
                walk(team, program, counters, units, run, thread, threads)
                settle(block)
            atomic_store(block + 72, looks)
            if atomic_load(team + 40) != 0:
                return

    return worker


@kernel_factory("team.quiesce")
def make_quiesce():
    def quiesce(team, stop, threads):
        """Returns when no worker looks at a program that was complete before. With `stop`, workers return.

        A worker that has gone on to a later job doesn't keep it waiting: other callers may run one job after the other.
        """
        if stop != 0:
            atomic_store(team + 40, 1)
            publish(team, 0, 0, 0, 0)
            wake(team, threads)
        for thread in range(1, threads):
            looks = team + BLOCK * thread + 72
            before, spins = atomic_load(looks), 0
            while before & 1 != 0 and atomic_load(looks) == before:
                pause()
                spins += 1
                if spins > _UNIT_SPINS:
                    sched_yield()

    return quiesce
