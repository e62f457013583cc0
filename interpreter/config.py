"""How a session is to run: devices, threads, precision, and the limits that keep a bad model from taking the machine down."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from mnnx.errors import InputError

_LEVELS = ("low", "normal", "high")


@dataclass(frozen=True)
class BackendConfig:
    """Hints to a backend, each "low", "normal" or "high". precision "low" allows half-precision storage."""

    precision: str = "high"
    memory: str = "normal"
    power: str = "normal"

    def __post_init__(self) -> None:
        for name in ("precision", "memory", "power"):
            if getattr(self, name) not in _LEVELS:
                raise InputError(f"BackendConfig.{name} must be one of {', '.join(_LEVELS)}; it is {getattr(self, name)!r}")


@dataclass(frozen=True)
class Limits:
    """What a model may ask for before it is stopped with LimitExceeded. Raise them for models that honestly need more.

    tensor_bytes: the size of one tensor. memory_bytes: what the planned memory of one graph may take, and what a
    run may put into sequences. iterations: of all loops of a run together.
    The environment variables MNNX_MAX_TENSOR_MB, MNNX_MAX_MEMORY_MB and MNNX_MAX_ITERATIONS change the defaults.
    """

    tensor_bytes: int = field(default_factory=lambda: _environment("MNNX_MAX_TENSOR_MB", 1024) << 20)
    memory_bytes: int = field(default_factory=lambda: _environment("MNNX_MAX_MEMORY_MB", 1536) << 20)
    iterations: int = field(default_factory=lambda: _environment("MNNX_MAX_ITERATIONS", 65536))


def _environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"the environment variable {name} must be a positive number, it is {text!r}")
    return int(text)


@dataclass(frozen=True)
class ScheduleConfig:
    """What `Interpreter.create_session` wants to know.

    backend: the device to run on; backup: the device for ops that `backend` doesn't support. num_threads: 0 takes the CPUs this process
    may use. cpu_ids: CPUs to pin worker threads to (empty: any). save_tensors: names of tensors inside the model to keep as outputs.
    """

    backend: str = "cpu"
    num_threads: int = 0
    backup: str = "cpu"
    backend_config: BackendConfig = field(default_factory=BackendConfig)
    cpu_ids: Sequence[int] = ()
    limits: Limits = field(default_factory=Limits)
    save_tensors: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.num_threads, int) or isinstance(self.num_threads, bool) or not 0 <= self.num_threads <= 256:
            raise InputError(f"ScheduleConfig.num_threads must be 0 (all CPUs) … 256; it is {self.num_threads!r}")
        if not isinstance(self.backend_config, BackendConfig):
            raise InputError(f"ScheduleConfig.backend_config must be a BackendConfig; it is {self.backend_config!r}")
