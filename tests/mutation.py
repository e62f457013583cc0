"""Breaks .mnnx files at random and sees what becomes of a callback that takes them: it must return, or raise an MnnxError.

    python -m tests.mutation model.mnnx --callback mnnx.schema.reader:read_model_bytes --seed 1 --count 10000

The callback gets the bytes of a broken file, made by the function that `--mutate` names: it gets the sound file, the size of its
FlatBuffers part, the seed and the mutant's index. The callback runs in processes of its own, each with a limit on its memory and on the
time that one file takes; a crash, a hang or any other exception is a failure. Mutant `index` of a seed is always the same file.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import random
import resource
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_IN_STRUCTURE = 0.85
_START_SECONDS = 120.0  # imports, and the first compilation of kernels
_NUMBERS = [0, 1, 2, 3, 4, 7, 8, 13, 16, 63, 64, 65, 127, 128, 255, 256, 4095, 32767, 32768, 65535, 65536]
_NUMBERS += [2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2, 2**64 - 3]


@dataclass
class Report:
    """How many mutants the callback took and how many it refused with an MnnxError; and the failures, by mutant index."""

    taken: int = 0
    refused: int = 0
    failures: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.taken} taken, {self.refused} refused, {len(self.failures)} failed"]
        return "\n".join(lines + [f"mutant {index}: {text}" for index, text in sorted(self.failures.items())])


def mutant(data: bytes, structure: int, seed: int, index: int) -> bytes:
    """A broken copy of an .mnnx file whose first `structure` bytes are the FlatBuffers part. Most of the damage is done there."""
    rng = random.Random(f"{seed} {index}")
    broken = bytearray(data)
    rounds = rng.choice((1, 1, 1, 2, 3, 8))
    while broken and (rounds > 0 or broken == data):
        end = structure if rng.random() < _IN_STRUCTURE else len(broken)
        (mutate,) = rng.choices(list(_MUTATIONS), list(_MUTATIONS.values()))
        mutate(rng, broken, min(end, len(broken)))
        rounds -= 1
    return bytes(broken)


def _flip_bits(rng: random.Random, data: bytearray, end: int) -> None:
    for _ in range(rng.choice((1, 1, 2, 4))):
        data[rng.randrange(end)] ^= 1 << rng.randrange(8)


def _set_byte(rng: random.Random, data: bytearray, end: int) -> None:
    data[rng.randrange(end)] = rng.choice((0, 1, 255, 128, rng.randrange(256)))


def _set_number(rng: random.Random, data: bytearray, end: int) -> None:
    width = rng.choice((2, 4, 4, 4, 8, 8))
    _put(data, rng.randrange(max(end // width, 1)) * width, width, rng.choice((*_NUMBERS, end, end // 2, rng.randrange(end))))


def _add_to_number(rng: random.Random, data: bytearray, end: int) -> None:
    width = rng.choice((2, 4, 4, 8))
    place = rng.randrange(max(end // width, 1)) * width
    number = int.from_bytes(data[place : place + width], "little")
    _put(data, place, width, number + rng.choice((-64, -8, -4, -2, -1, 1, 2, 4, 8, 64)))


def _point_elsewhere(rng: random.Random, data: bytearray, end: int) -> None:
    """Makes one offset point where another one points: tables, vectors and strings end up in the wrong places, or in several."""
    places = [place for place in rng.choices(range(0, max(end - 3, 1), 4), k=64) if 0 < _word(data, place) < end - place]
    if len(places) >= 2:
        target = places[0] + _word(data, places[0])
        _put(data, places[1], 4, target - places[1])


def _swap_words(rng: random.Random, data: bytearray, end: int) -> None:
    first, second = (rng.randrange(max(end // 4, 1)) * 4 for _ in range(2))
    data[first : first + 4], data[second : second + 4] = data[second : second + 4], data[first : first + 4]


def _copy_block(rng: random.Random, data: bytearray, end: int) -> None:
    size = min(rng.choice((4, 8, 16, 64, 256)), end)
    source, target = (rng.randrange(end - size + 1) // 4 * 4 for _ in range(2))
    data[target : target + size] = data[source : source + size]


def _zero_block(rng: random.Random, data: bytearray, end: int) -> None:
    size = min(rng.choice((1, 4, 8, 32)), end)
    place = rng.randrange(end - size + 1)
    data[place : place + size] = bytes(size)


def _cut_short(rng: random.Random, data: bytearray, end: int) -> None:
    del data[rng.randrange(end) :]


def _remove_block(rng: random.Random, data: bytearray, end: int) -> None:
    place = rng.randrange(end)
    del data[place : place + rng.choice((1, 4, 64))]


def _insert_block(rng: random.Random, data: bytearray, end: int) -> None:
    place = rng.randrange(end)
    data[place:place] = rng.randbytes(rng.choice((1, 4, 64)))


_MUTATIONS: dict[Callable[[random.Random, bytearray, int], None], int] = {
    _flip_bits: 20,
    _set_byte: 15,
    _set_number: 20,
    _add_to_number: 15,
    _point_elsewhere: 15,
    _swap_words: 5,
    _copy_block: 5,
    _zero_block: 4,
    _cut_short: 1,
    _remove_block: 1,
    _insert_block: 1,
}


def _word(data: bytearray, place: int) -> int:
    return struct.unpack_from("<I", data, place)[0] if place + 4 <= len(data) else 0


def _put(data: bytearray, place: int, width: int, number: int) -> None:
    text = (number % 2 ** (8 * width)).to_bytes(width, "little")[: max(len(data) - place, 0)]
    data[place : place + len(text)] = text


def run(
    path: str | os.PathLike,
    callback: str,
    seed: int,
    count: int,
    seconds: float = 10.0,
    memory: int = 2 << 30,
    workers: int = 1,
    mutate: str = "tests.mutation:mutant",
) -> Report:
    """Runs `callback` ("module:function") on the mutants 0 … count-1 of a file, which `mutate` makes.

    `seconds` is for one mutant, `memory` the address space of a worker in bytes.
    """
    report = Report()
    bounds = [count * part // workers for part in range(workers + 1)]

    def work(part: int) -> None:
        start = bounds[part]
        while start < bounds[part + 1]:
            for index, kind, text in _worker(path, callback, mutate, seed, start, bounds[part + 1], seconds, memory):
                start = index + 1
                if kind == "failed":
                    report.failures[index] = text
                else:
                    setattr(report, kind, getattr(report, kind) + 1)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    return report


def _worker(
    path: str | os.PathLike, callback: str, mutate: str, seed: int, start: int, stop: int, seconds: float, memory: int
) -> Iterator[tuple[int, str, str]]:
    """What became of the mutants from `start` on (index, kind, text): all of them, or those up to the first that kills the process."""
    command = [sys.executable, "-m", "tests.mutation", os.path.abspath(path), "--callback", callback, "--seed", str(seed)]
    command += ["--mutate", mutate, "--worker", str(start), str(stop), str(memory)]
    with tempfile.TemporaryFile() as errors, _start(command, errors) as process:
        try:
            index = start - 1  # the worker's first line says that it is ready
            for line in _lines(process, _START_SECONDS, seconds):
                if line is None:
                    if index < start:
                        raise TimeoutError(f"the worker did not start in {_START_SECONDS} s: {_tail(errors)}")
                    process.send_signal(signal.SIGABRT)  # faulthandler says where it is
                    process.wait()
                    yield index, "failed", f"took more than {seconds} s: {_tail(errors)}"
                    return
                if index >= start:
                    yield (index, *json.loads(line))
                index += 1
            if index < start:
                raise RuntimeError(f"the worker did not start: {_tail(errors)}")
            if index < stop:
                yield index, "failed", f"the process ended with status {process.wait()}: {_tail(errors)}"
        finally:
            process.kill()


def _start(command: list[str], errors: Any) -> subprocess.Popen:
    root = Path(__file__).parents[1]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=root)


def _lines(process: subprocess.Popen, first_seconds: float, seconds: float) -> Iterator[bytes | None]:
    """The lines that a process prints; None, as the last, when one is late."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        buffered, limit = b"", first_seconds
        while True:
            if not selector.select(limit):
                yield None
                return
            block = os.read(process.stdout.fileno(), 1 << 16)
            if not block:
                return
            *lines, buffered = (buffered + block).split(b"\n")
            yield from lines
            limit = seconds


def _tail(errors: Any) -> str:
    errors.seek(0)
    return errors.read()[-2000:].decode(errors="replace")


def _serve(
    path: str, callback: Callable[[bytes], Any], mutate: Callable[..., bytes], seed: int, start: int, stop: int, memory: int
) -> None:
    from mnnx.errors import MnnxError
    from mnnx.schema.reader import structure_size

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the callback prints is no answer
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data = Path(path).read_bytes()
    structure = structure_size(data)
    callback(data)  # what is wrong with a sound file is no finding; and whatever is to be compiled is compiled now
    answers.write("ready\n")
    for index in range(start, stop):
        try:
            callback(mutate(data, structure, seed, index))
            answer = ("taken", "")
        except MnnxError:
            answer = ("refused", "")
        except BaseException:
            answer = ("failed", traceback.format_exc(limit=-6))
        answers.write(json.dumps(answer) + "\n")


def _function(name: str) -> Callable[[bytes], Any]:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--callback", default="mnnx.schema.reader:read_model_bytes")
    parser.add_argument("--mutate", default="tests.mutation:mutant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--memory", type=int, default=2 << 30)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--worker", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _serve(options.path, _function(options.callback), _function(options.mutate), options.seed, *options.worker)
        return
    limits = (options.seconds, options.memory, options.workers)
    report = run(options.path, options.callback, options.seed, options.count, *limits, options.mutate)
    print(report)
    sys.exit(bool(report.failures))


if __name__ == "__main__":
    main()
