"""How a session is to run: devices, threads, precision, and the limits that keep a bad model from taking the machine down."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mnnx.errors import InputError
from mnnx.interpreter.checks import cpu_ids as checked_cpu_ids
from mnnx.interpreter.checks import is_one_of, names, thread_count
from mnnx.interpreter.thread_team import ThreadTeam

_LEVELS = ("low", "normal", "high")
_MOST_TUNE_SECONDS = 86400


class _Config:
    """Values that are set once; equal where all of them are. (`@dataclass` would make up a tenth of what importing the package takes.)"""

    def __init__(self, **values: Any):
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a {type(self).__name__} can't be changed; make another one")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class BackendConfig(_Config):
    """Hints to a backend, each "low", "normal" or "high". precision "low" allows half-precision storage."""

    def __init__(self, precision: str = "high", memory: str = "normal", power: str = "normal"):
        super().__init__(precision=precision, memory=memory, power=power)
        for name, value in vars(self).items():
            if not is_one_of(value, _LEVELS):
                raise InputError(f"BackendConfig.{name} must be one of {', '.join(_LEVELS)}; it is {value!r}")


class Limits(_Config):
    """What a model may ask for before it is stopped with LimitExceeded. Raise them for models that honestly need more.

    tensor_bytes: the size of one tensor. memory_bytes: what the planned memory of one graph may take, and what a
    run may put into sequences. iterations: of all loops of a run together.
    The environment variables MNNX_MAX_TENSOR_MB, MNNX_MAX_MEMORY_MB and MNNX_MAX_ITERATIONS change the defaults.
    """

    def __init__(self, tensor_bytes: int | None = None, memory_bytes: int | None = None, iterations: int | None = None):
        super().__init__(
            tensor_bytes=_environment("MNNX_MAX_TENSOR_MB", 1024) << 20 if tensor_bytes is None else tensor_bytes,
            memory_bytes=_environment("MNNX_MAX_MEMORY_MB", 1536) << 20 if memory_bytes is None else memory_bytes,
            iterations=_environment("MNNX_MAX_ITERATIONS", 65536) if iterations is None else iterations,
        )
        for name, value in vars(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"Limits.{name} must be a positive int; it is {value!r}")


def _environment(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"the environment variable {name} must be a positive number, it is {text!r}")
    return int(text)


class ScheduleConfig(_Config):
    """What `Interpreter.create_session` wants to know.

    backend: the device to run on, "cpu", "opencl" or "vulkan"; where there may be several, with a number, a type or a part of a name:
    "opencl:1", "vulkan:gpu", "opencl:mali" (without: the first GPU, else the first). backup: the device for ops that `backend` doesn't
    support. num_threads: 0 takes the CPUs this process may use. cpu_ids: CPUs to pin worker threads to, of those that the process may use
    (empty: any). save_tensors: names of tensors inside the model to keep as outputs. tune: whether algorithms and tiles are chosen by
    measuring, where the interpreter's cache file doesn't know them, rather than by estimates; tune_seconds: what that may take in all.
    inter_op_threads: how many ops that don't need each other's results may run at once on the CPU, sharing the session's threads; 1: one
    after the other. team: threads to share with other sessions, in place of `num_threads` of its own; priority: among these, any int, the
    highest first.
    """

    def __init__(
        self,
        backend: str = "cpu",
        num_threads: int = 0,
        backup: str = "cpu",
        backend_config: BackendConfig | None = None,
        cpu_ids: Sequence[int] = (),
        limits: Limits | None = None,
        save_tensors: Sequence[str] = (),
        tune: bool = False,
        tune_seconds: float = 10.0,
        inter_op_threads: int = 1,
        team: ThreadTeam | None = None,
        priority: int = 0,
    ):
        super().__init__(
            backend=backend,
            num_threads=thread_count(num_threads, "ScheduleConfig.num_threads"),
            backup=backup,
            backend_config=BackendConfig() if backend_config is None else backend_config,
            cpu_ids=checked_cpu_ids(cpu_ids, "ScheduleConfig.cpu_ids"),
            limits=Limits() if limits is None else limits,
            save_tensors=names(save_tensors, "ScheduleConfig.save_tensors"),
            tune=tune,
            tune_seconds=tune_seconds,
            inter_op_threads=inter_op_threads,
            team=team,
            priority=priority,
        )
        for name in ("backend", "backup"):
            if not isinstance(value := getattr(self, name), str):
                raise InputError(f"ScheduleConfig.{name} must be the name of a device; it is {value!r}")
        if not isinstance(inter_op_threads, int) or isinstance(inter_op_threads, bool) or not 1 <= inter_op_threads <= 256:
            raise InputError(f"ScheduleConfig.inter_op_threads must be 1 … 256; it is {inter_op_threads!r}")
        if not isinstance(team, ThreadTeam | None):
            raise InputError(f"ScheduleConfig.team must be a ThreadTeam; it is {team!r}")
        if team is not None and (num_threads or self.cpu_ids):
            raise InputError("ScheduleConfig.team has its own num_threads and cpu_ids: give them to the ThreadTeam")
        if not isinstance(priority, int) or isinstance(priority, bool):
            raise InputError(f"ScheduleConfig.priority must be an int; it is {priority!r}")
        if priority and team is None:
            raise InputError("ScheduleConfig.priority orders the sessions of a team: give it a ThreadTeam too")
        if not isinstance(tune, bool):
            raise InputError(f"ScheduleConfig.tune must be True or False; it is {tune!r}")
        if not isinstance(tune_seconds, int | float) or isinstance(tune_seconds, bool) or not 0 < tune_seconds <= _MOST_TUNE_SECONDS:
            raise InputError(
                f"ScheduleConfig.tune_seconds must be a number of seconds, at most {_MOST_TUNE_SECONDS}; it is {tune_seconds!r}"
            )
        if not isinstance(self.backend_config, BackendConfig):
            raise InputError(f"ScheduleConfig.backend_config must be a BackendConfig; it is {backend_config!r}")
        if not isinstance(self.limits, Limits):
            raise InputError(f"ScheduleConfig.limits must be a Limits; it is {limits!r}")
