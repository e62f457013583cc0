"""Fixtures for tests of GPU backends: they run on each that this machine has."""

from __future__ import annotations

import pytest

from tests.devices import GPU_BACKENDS, missing


@pytest.fixture(params=GPU_BACKENDS)
def gpu(request: pytest.FixtureRequest) -> str:
    """The name of a backend; the test is skipped where that isn't there."""
    if reason := missing(request.param):
        pytest.skip(reason)
    return request.param
