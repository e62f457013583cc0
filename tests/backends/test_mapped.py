"""Pages of mapped files that nobody needs any more."""

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from mnnx.backends.mapped import forget_pages

PAGE = mmap.PAGESIZE


def resident(path: Path) -> int:
    """Bytes of a mapped file that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    total = 0
    for line in lines:
        if line.endswith(str(path)):
            total += next(int(entry.split()[1]) for entry in lines if entry.startswith("Rss:")) << 10
    return total


@pytest.fixture
def mapped(tmp_path):
    """A file of 64 pages, and its bytes as an array of the mapping."""
    path = tmp_path / "weights"
    path.write_bytes(np.arange(64 * PAGE, dtype=np.uint8).tobytes())
    with open(path, "rb") as file:
        return path, np.frombuffer(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), np.uint8)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_pages_of_one_array_alone_are_let_go(mapped):
    path, data = mapped
    wanted = data.copy()
    before = resident(path)
    forget_pages(data[PAGE // 2 : 32 * PAGE + 100].view(np.uint8))
    assert before - resident(path) == 31 * PAGE
    np.testing.assert_array_equal(data, wanted)


@pytest.mark.parametrize("piece", [slice(0, 10), slice(0, 0), slice(5, PAGE), slice(0, 64 * PAGE, 2)])
def test_small_and_strided_pieces_keep_their_pages(mapped, piece):
    path, data = mapped
    data.sum()
    before = resident(path)
    forget_pages(data[piece])
    assert resident(path) == before


def test_arrays_in_memory_are_left_alone():
    array = np.arange(1 << 16)
    forget_pages(array)
    forget_pages(np.frombuffer(bytes(1 << 16), np.uint8))
    assert array[-1] == (1 << 16) - 1
