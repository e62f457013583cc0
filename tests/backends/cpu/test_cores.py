"""How many threads a session takes by default, and where its workers run."""

import os
import threading

import numpy as np
import pytest

from mnnx.backends.cpu.arguments import arguments
from mnnx.backends.cpu.cores import available_cores, cgroup_quota
from mnnx.backends.cpu.kernel import kernel
from mnnx.backends.cpu.program import CpuCommandList
from mnnx.backends.cpu.team import Team


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this platform")
def test_affinity_is_respected():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"a/b/cpu.max": "150000 100000\n", "cpu.max": "max 100000\n"}, 1.5),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5),
        ({"a/b/cpu.max": "max 100000\n"}, None),
        ({}, None),
    ],
)
def test_quota_of_control_groups_version_2(tmp_path, files, quota):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "membership").write_text("0::/a/b\n")
    assert cgroup_quota(tmp_path, tmp_path / "membership") == quota


def test_quota_of_control_groups_version_1(tmp_path):
    folder = tmp_path / "cpu" / "job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "membership").write_text("5:memory:/other\n4:cpu,cpuacct:/job\n")
    assert cgroup_quota(tmp_path, tmp_path / "membership") == 2.0


def test_a_system_without_control_groups_has_no_quota(tmp_path):
    assert cgroup_quota(tmp_path, tmp_path / "missing") is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this platform")
def test_workers_run_on_the_chosen_cpus():
    cpu = min(os.sched_getaffinity(0))
    others = set(threading.enumerate())
    team = Team(3, (cpu,))
    x = np.zeros(1000, np.float32)
    commands = CpuCommandList(team)
    commands.record(kernel("selfcheck.count"), arguments(x, x.size), 8)
    commands.submit(0, 1)
    workers = set(threading.enumerate()) - others
    masks = [os.sched_getaffinity(thread.native_id) for thread in workers]
    team.release()
    assert {frozenset(mask) for mask in masks} == {frozenset({cpu})}
