"""How many threads this process can use at once, and the cache of a core."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path


def available_cores() -> int:
    """The cores that the process may run on (affinity, cpusets), or fewer where its control group has a quota of CPU time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"))
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def cgroup_quota(root: Path, membership: Path) -> float | None:
    """CPU time per second that the control groups (v1 or v2) of a process allow; None where they set no limit."""
    quotas = []
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            base = root / "cpu" if controllers else root
            for folder in [base / path.lstrip("/"), *(base / path.lstrip("/")).parents]:
                quotas.append(_quota_v1(folder) if controllers else _quota_v2(folder))
                if folder == base:
                    break
    return min((q for q in quotas if q is not None), default=None)


def _quota_v2(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(folder: Path) -> float | None:
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 else None
