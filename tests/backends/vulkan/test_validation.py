"""Khronos's validation layers, with synchronization validation, find nothing wrong; and find a barrier that is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends.vulkan.validated import SCENARIOS
from tests.devices import missing

_ROOT = Path(__file__).parents[3]


def _messages(scenario: str) -> list[str]:
    if reason := missing("vulkan"):
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.backends.vulkan.validated", scenario]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if "VK_LAYER_KHRONOS_validation" in done.stderr and "BackendUnavailable" in done.stderr:
        pytest.skip("the validation layers aren't installed (Debian: vulkan-validationlayers)")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario", sorted(SCENARIOS.keys() - {"without_barriers"}))
def test_the_layers_find_nothing_wrong(scenario: str) -> None:
    assert _messages(scenario) == []


def test_the_layers_find_a_missing_barrier() -> None:
    assert any("SYNC-HAZARD" in message for message in _messages("without_barriers"))
