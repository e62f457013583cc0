"""The thread team: every chunk of every unit runs once per run, in order, whatever the threads do."""

import os
import random
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from mnnx.backends.cpu.arguments import address_of, aligned, arguments
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.program import CpuCommandList
from mnnx.backends.cpu.team import Team, native
from mnnx.errors import BackendError

COUNT = kernel("selfcheck.count")
CHECK = kernel("selfcheck.follow")
BLOCK, LOOKS = 384 // 8, 72 // 8  # in words: a thread's memory, and in it how often it has begun and ended to look at a job


def test_selfchecks_see_a_unit_that_runs_too_early():
    x, y = np.zeros(100, np.float32), np.zeros(100, np.float32)
    commands = CpuCommandList(Team(1))
    commands.record(CHECK, arguments(x, y, x.size))
    commands.record(COUNT, arguments(x, x.size))
    commands.submit(0, 2)
    assert not np.array_equal(x, y)


class Chain:
    """Units that each copy what the one before has counted, so that a unit which starts early, or a chunk which runs twice, shows."""

    def __init__(self, team, units, size, chunks):
        self.commands = CpuCommandList(team)
        self.buffers = np.zeros((units, size), np.float32)
        for unit in range(units):
            if unit == 0:
                self.commands.record(COUNT, arguments(self.buffers[0], size), chunks)
            else:
                self.commands.record(CHECK, arguments(self.buffers[unit - 1], self.buffers[unit], size), chunks)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(("units", "size", "chunks"), [(50, 16, 1), (50, 3000, 5), (5, 40000, 16)])
def test_units_run_in_order(threads, units, size, chunks):
    team = Team(threads)
    chain = Chain(team, units, size, chunks)
    for run in range(1, 60):
        chain.commands.submit(0, units)
        assert (chain.buffers == run).all()
    team.release()


def test_parts_of_a_program_and_host_functions():
    team, seen = Team(2), []
    x = np.zeros(1000, np.float32)
    commands = CpuCommandList(team)
    commands.record(COUNT, arguments(x, x.size), 4)
    commands.record_host(lambda: seen.append(x.copy()))
    commands.record(COUNT, arguments(x, x.size), 4)
    rng, total = random.Random(3), 0
    for _ in range(200):
        first = rng.randrange(4)
        last = rng.randrange(first, 4)
        before = len(seen)
        commands.submit(first, last)
        assert len(seen) - before == (first <= 1 < last)
        if len(seen) > before:
            assert (seen[-1] == total + (first == 0)).all()
        total += (first == 0 < last) + (first <= 2 < last)
        assert (x == total).all()
    team.release()


def test_recording_goes_on_after_runs():
    team = Team(3)
    x = np.zeros(500, np.float32)
    commands = CpuCommandList(team)
    total = 0
    for count in range(1, 30):
        commands.record(COUNT, arguments(x, x.size), 3)
        commands.submit(0, count)
        total += count
        assert (x == total).all()
    team.release()


def test_many_programs_on_one_team():
    team = Team(2)
    for run in range(60):
        chain = Chain(team, 1 + run % 7, 300, 3)
        chain.commands.submit(0, len(chain.commands))
        chain.commands.submit(0, len(chain.commands))
        assert (chain.buffers == 2).all()
    team.release()


def test_teams_run_in_parallel():
    failures = []

    def work():
        team = Team(2)
        chain = Chain(team, 20, 2000, 4)
        for run in range(1, 100):
            chain.commands.submit(0, 20)
            if not (chain.buffers == run).all():
                failures.append(run)
        team.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_workers_end_with_their_team():
    before = threading.active_count()
    team = Team(4)
    chain = Chain(team, 2, 2000, 8)
    chain.commands.submit(0, 2)
    assert threading.active_count() == before + 3
    del chain, team
    assert threading.active_count() == before


def test_a_released_team_can_be_released_again():
    team = Team(2)
    team.release()
    chain = Chain(team, 2, 2000, 8)
    chain.commands.submit(0, 2)
    assert (chain.buffers == 1).all()
    team.release()
    team.release()
    chain.commands.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_goes_on_with_workers_of_its_own():
    team = Team(2)
    chain = Chain(team, 20, 2000, 4)
    chain.commands.submit(0, 20)
    child = os.fork()
    if child == 0:
        for _ in range(10):
            chain.commands.submit(0, 20)
        team.release()
        os._exit(0 if (chain.buffers == 11).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    chain.commands.submit(0, 20)
    assert (chain.buffers == 2).all()
    team.release()


def test_a_unit_without_chunks_is_refused():
    with pytest.raises(ValueError, match="chunks"):
        CpuCommandList(Team(1)).record(COUNT, arguments(0, 0), 0)


@pytest.mark.parametrize("cpu", [9999, 1 << 40, -1])
def test_a_worker_that_cant_be_bound_works_all_the_same(cpu, caplog):
    team = Team(3, (cpu,))
    chain = Chain(team, 5, 3000, 5)
    chain.commands.submit(0, 5)
    assert (chain.buffers == 1).all()
    team.release()
    assert [record.message.partition(":")[0] for record in caplog.records].count(f"thread 1 can't be bound to CPU {cpu}") == 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this platform")
def test_busy_neighbours_on_all_cpus_change_nothing():
    """Workers that lose their core are moved about meanwhile; in the end they may run where they might before."""
    spin = [sys.executable, "-c", "import os\nwhile os.getppid() != 1: pass"]
    neighbours = [subprocess.Popen(spin) for _ in os.sched_getaffinity(0)]
    try:
        others = set(threading.enumerate())
        team = Team(3)
        chain = Chain(team, 8, 60_000, 7)
        for run in range(1, 150):
            chain.commands.submit(0, 8)
            assert (chain.buffers == run).all()
        workers = set(threading.enumerate()) - others
        team.quiesce()
        assert len(workers) == 2
        assert {frozenset(os.sched_getaffinity(thread.native_id)) for thread in workers} == {frozenset(os.sched_getaffinity(0))}
        team.release()
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def test_threads_that_cant_be_started_are_an_error_that_leaves_none(monkeypatch):
    team, start = Team(4), threading.Thread.start
    chain = Chain(team, 5, 3000, 5)

    def start_one(thread):
        if thread.name != "mnnx-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    before = set(threading.enumerate())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_one)
        for _ in range(2):
            with pytest.raises(BackendError, match=r"only 1 of 3 worker threads could be started \(can't start new thread\): use fewer"):
                chain.commands.submit(0, 5)
    assert set(threading.enumerate()) == before
    chain.commands.submit(0, 5)
    assert (chain.buffers == 1).all()
    team.release()


def test_quiesce_waits_for_the_end_of_a_look_but_not_for_an_idle_worker():
    """Where other sessions run one job after the other, nobody may ever see a worker without one."""
    memory = aligned(2 * 8 * BLOCK)
    looks = memory.view(np.int64)[BLOCK + LOOKS :]
    looks[0] = 5
    waiting = threading.Thread(target=native("team.quiesce"), args=(address_of(memory), 0, 2), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    looks[0] = 7
    waiting.join(20)
    assert not waiting.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_waits_for_no_worker_of_its_parent():
    team = Team(2)
    chain = Chain(team, 5, 3000, 5)
    chain.commands.submit(0, 5)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        team._memory.view(np.int64)[BLOCK + LOOKS] |= 1  # as if the worker had been busy at the fork
        team._finalizer()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    team.release()
