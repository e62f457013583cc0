"""The threads that run a session's native programs (see kernels/team.py for how they share the work)."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
import weakref
from collections.abc import Sequence

import numpy as np

from mnnx.backends.cpu.arguments import address_of, aligned
from mnnx.backends.cpu.kernel import kernel
from mnnx.errors import BackendError
from mnnx.schema.log import log

_BLOCK, _CLOCK, _TASK, _CPUS, _MASK_BYTES = 384, 80, 88, 128, 128  # a thread's block of the team's memory (see kernels/stalls.py)
#: The most chunks of a unit (kernels/team.py's counters).
MAX_CHUNKS = (1 << 20) - 1
_RUNS = slice(8, 10)  # the int64 words that count runs
_NATIVE = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)


def chunks_of(work: float, threads: int, least: float = 3e3) -> int:
    """How many parts to make of a unit of `work` units (each about the time of one vector instruction): a few per thread, so that a
    thread which is held up leaves its share to the others, as many for each, and none with less than `least`."""
    count = int(min(4 * threads, work / least))
    return max(1, count - count % threads if count > threads else count) if threads > 1 else 1


class Team:
    """`threads - 1` worker threads, started at the first run; they sleep while there is nothing to do and end with the team.

    One thread may use a team at a time. In a forked child the workers are started anew.
    """

    def __init__(self, threads: int, cpu_ids: Sequence[int] = ()):
        self.threads = threads if threads == 1 or _has_semaphores() else 1
        if self.threads != threads:
            log().warning("this platform has no process-private semaphores: sessions run on one thread")
        self._cpu_ids = tuple(cpu_ids)
        self._run = native("team.run")
        self._quiesce = native("team.quiesce") if self.threads > 1 else None
        self._memory = aligned(_BLOCK * self.threads)
        self._address = address_of(self._memory)
        self._pid = 0
        self._finalizer: weakref.finalize | None = None

    def run(self, stretch: int) -> None:
        """Runs the stretch at this address (see kernels/team.py) on all threads. Raises BackendError where they can't be started."""
        if self._pid != os.getpid():
            self._start()
        self._run(stretch, self._address, self.threads)

    def run_timed(self, stretch: int) -> float:
        """As `run`; returns the seconds that it took."""
        start = time.perf_counter()
        self.run(stretch)
        return time.perf_counter() - start

    def repeat(self, loop: int) -> None:
        """Runs the stretch of the loop at this address for its iterations."""
        if self._pid != os.getpid():
            self._start()
        self._repeat(loop, self._address, self.threads)

    def quiesce(self) -> None:
        """Returns when no worker looks at any program, so that its memory may go."""
        if self._finalizer is not None and self._finalizer.alive and self._pid == os.getpid():
            self._quiesce(self._address, 0, self.threads)

    def release(self) -> None:
        """Ends the workers and waits for them."""
        if self._finalizer is not None and self._pid == os.getpid():
            self._finalizer()

    @functools.cached_property
    def _repeat(self):
        return native("team.repeat")

    def _start(self) -> None:
        if self.threads > 1:
            self._start_workers()
        self._pid = os.getpid()

    def _start_workers(self) -> None:
        if self._finalizer is not None:  # in a forked child: the workers were the parent's
            self._finalizer.detach()
            self._renew_memory()
        libc = ctypes.CDLL(None)
        for thread in range(1, self.threads):
            libc.sem_init(ctypes.c_void_p(self._address + _BLOCK * thread), 0, 0)
        worker = native("team.worker")
        workers = [
            threading.Thread(target=_work, args=(worker, self._memory, i, self.threads, self._cpu_ids), name=f"mnnx-{i}", daemon=True)
            for i in range(1, self.threads)
        ]
        started: list[threading.Thread] = []
        stop = weakref.finalize(self, _stop, os.getpid(), self._memory, started, self.threads, self._quiesce)
        try:
            for thread in workers:
                thread.start()
                started.append(thread)
        except (RuntimeError, MemoryError) as error:
            stop()
            self._renew_memory()
            raise BackendError(
                f"only {len(started)} of {len(workers)} worker threads could be started ({error}): use fewer threads "
                "(ScheduleConfig.num_threads, ImageProcessConfig.num_threads), or raise the limits of the process"
            ) from error
        self._finalizer = stop

    def _renew_memory(self) -> None:
        """Takes new memory, with none of the former workers' state in it; runs are counted on."""
        runs = self._memory.view(np.int64)[_RUNS].copy()
        self._memory = aligned(_BLOCK * self.threads)
        self._memory.view(np.int64)[_RUNS] = runs
        self._address = address_of(self._memory)


def native(name: str):
    """A kernel of kernels/team.py as a Python function."""
    return _NATIVE(kernel(name).address)


def _work(worker, memory: np.ndarray, thread: int, threads: int, cpu_ids: tuple[int, ...]) -> None:
    if cpu_ids:
        cpu = cpu_ids[thread % len(cpu_ids)]
        try:
            os.sched_setaffinity(0, {cpu})
        except (OSError, AttributeError, ValueError, OverflowError) as error:
            log().warning("thread %d can't be bound to CPU %d: %s", thread, cpu, error)
    _introduce(memory[_BLOCK * thread : _BLOCK * (thread + 1)], movable=not cpu_ids)
    worker(address_of(memory), thread, threads)


def _introduce(block: np.ndarray, movable: bool) -> None:
    """Says in a thread's block who it is."""
    words = block.view(np.int64)
    words[_CLOCK // 8] = time.pthread_getcpuclockid(threading.get_ident())
    cpus = os.sched_getaffinity(0)
    if movable and max(cpus) < 8 * _MASK_BYTES:
        for cpu in cpus:
            block[_CPUS + cpu // 8] |= 1 << cpu % 8
        words[_TASK // 8] = threading.get_native_id()


def _stop(pid: int, memory: np.ndarray, workers: list[threading.Thread], threads: int, quiesce) -> None:
    if pid != os.getpid():  # a forked child has no workers, though they may seem busy
        return
    quiesce(address_of(memory), 1, threads)
    for worker in workers:
        worker.join()


def _has_semaphores() -> bool:
    return os.name == "posix" and os.uname().sysname != "Darwin"
