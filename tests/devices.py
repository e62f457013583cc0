"""Which backends this machine can test."""

from __future__ import annotations

import functools

from mnnx.backends.backend import SharedWeights, create_backend
from mnnx.errors import BackendUnavailable
from mnnx.interpreter.config import BackendConfig, ScheduleConfig

GPU_BACKENDS = ("opencl", "vulkan")


@functools.cache
def missing(backend: str) -> str | None:
    """Why a backend can't be used here; None where it can."""
    try:
        create_backend(backend, ScheduleConfig(backend=backend), SharedWeights()).release()
    except (BackendUnavailable, ModuleNotFoundError) as error:
        return str(error)
    return None


def halves(precision: str) -> BackendConfig:
    """Of a precision; "low" stores halves, also on devices where that is slower."""
    return BackendConfig(precision=precision, memory="low" if precision == "low" else "normal")


def gpu_backends() -> list[str]:
    return [name for name in GPU_BACKENDS if missing(name) is None]
