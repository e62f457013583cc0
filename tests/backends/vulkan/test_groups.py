"""How many work groups are dispatched, and how they are numbered."""

from __future__ import annotations

import math

import pytest

from mnnx.backends.vulkan.commands import within_limits

#: maxComputeWorkGroupCount of lavapipe and others, NVIDIA's and RADV's.
LIMITS = ((65535, 65535, 65535), (2147483647, 65535, 65535), (4294967295, 65535, 65535))


@pytest.mark.parametrize("most", LIMITS)
@pytest.mark.parametrize("groups", [(1, 1, 1), (65536, 2, 3), (1, 524288, 1), (7, 3, 70000), (65535, 65535, 1)])
def test_all_groups_are_dispatched_within_the_limits_and_few_others(groups: tuple[int, int, int], most: tuple[int, int, int]) -> None:
    dispatched, numbered = within_limits(groups, most)
    wanted = math.prod(groups)
    assert all(n <= limit for n, limit in zip(dispatched, most, strict=True))
    assert wanted <= math.prod(dispatched) < wanted + dispatched[1]
    assert numbered == ((0, 0, 0) if dispatched == groups else groups)
