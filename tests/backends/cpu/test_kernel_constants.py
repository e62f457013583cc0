"""What the running side repeats of kernels' modules, which it doesn't import, says the same there."""

from __future__ import annotations

import pytest

from mnnx.backends.cpu import team
from mnnx.backends.cpu.executions import image_sampling, raster
from mnnx.backends.cpu.kernels import image as image_kernels
from mnnx.backends.cpu.kernels import raster as raster_kernels
from mnnx.backends.cpu.kernels import stalls
from mnnx.backends.cpu.kernels import team as team_kernels


@pytest.mark.parametrize(
    ("name", "kernels_name"), [(n, n) for n in ("_CLOCK", "_TASK", "_CPUS")] + [(f"_{n}", n) for n in ("BLOCK", "MASK_BYTES")]
)
def test_the_memory_of_a_thread_of_the_team(name: str, kernels_name: str) -> None:
    assert getattr(team, name) == getattr(stalls, kernels_name)


def test_the_most_chunks_fit_a_counter() -> None:
    assert team.MAX_CHUNKS == (1 << team_kernels.CHUNK_BITS) - 1


@pytest.mark.parametrize("name", ["RUN", "FILL", "STRIDED", "TRANSPOSED"])
def test_the_kinds_of_regions(name: str) -> None:
    assert getattr(raster, f"_{name}") == getattr(raster_kernels, name)


def test_wraps_and_colours_of_images() -> None:
    assert image_sampling._WRAPS.index("zero") == image_kernels.ZERO
    assert image_sampling._WRAPS.index("repeat") == image_kernels.REPEAT
    assert image_sampling._COLOURS.index("luma") == image_kernels.TO_LUMA
    assert image_sampling._COLOURS.index("hsv") == image_kernels.TO_HSV
