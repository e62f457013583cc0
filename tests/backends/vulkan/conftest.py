"""Fixtures for tests of Vulkan's own parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.devices import missing


@pytest.fixture
def device() -> Any:
    """The VulkanDevice that sessions of this process use; the test is skipped where there is none."""
    if reason := missing("vulkan"):
        pytest.skip(reason)
    from mnnx.backends.vulkan.device import open_device

    return open_device("")


class Functions:
    """Vulkan's functions, some of which fail: `failing` maps a function's name to what it returns."""

    def __init__(self, lib: Any):
        self._lib = lib
        self.failing: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self.failing:
            return lambda *arguments: self.failing[name]
        return getattr(self._lib, name)


@pytest.fixture
def functions(device: Any) -> Iterator[Functions]:
    """The functions that the device uses until the test ends."""
    lib = device.api.lib
    device.api.lib = functions = Functions(lib)
    yield functions
    device.api.lib = lib
