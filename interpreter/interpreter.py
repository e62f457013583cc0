"""An Interpreter: one verified model, from which sessions are made."""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnnx.backends.backend import create_backend
from mnnx.errors import InputError, SessionStateError
from mnnx.interpreter.config import ScheduleConfig
from mnnx.interpreter.pymnn import PyMnnInterpreter
from mnnx.interpreter.runtime import LoadedModel, Runtime
from mnnx.interpreter.session import Session
from mnnx.schema.collector import no_collections
from mnnx.schema.model import Model
from mnnx.schema.reader import read_model, read_model_bytes

if TYPE_CHECKING:
    from mnnx.backends.tuning import Tuner
    from mnnx.backends.tuning_file import TuningFile

_OPEN: weakref.WeakValueDictionary[tuple, LoadedModel] = weakref.WeakValueDictionary()
_OPEN_LOCK = threading.Lock()


class Interpreter(PyMnnInterpreter):
    """Holds a model. Sessions keep it alive; `with` releases it with all its sessions."""

    def __init__(self, path: str | os.PathLike | None = None, *, loaded: LoadedModel | None = None):
        """As `from_file`."""
        self._loaded: LoadedModel | None = loaded if loaded is not None else _open(path)
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._cache_file: TuningFile | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> Interpreter:
        """Opens an .mnnx file (memory-mapped, verified). Raises ModelFormatError where it is damaged, InputError where it can't be read."""
        return cls(path)

    @classmethod
    def from_bytes(cls, buffer: Any) -> Interpreter:
        """The same from a bytes-like object, which must not change while the model lives."""
        return cls(loaded=LoadedModel(read_model_bytes(buffer)))

    @property
    def model(self) -> Model:
        return self._alive().model

    @property
    def metadata(self) -> dict[str, str]:
        """The key/value pairs that the source model carried."""
        return dict(self.model.metadata)

    @no_collections()
    def create_session(self, config: ScheduleConfig | None = None) -> Session:
        """A session on the configured devices. Raises BackendUnavailable where one is missing, InputError where a CPU is."""
        loaded = self._alive()
        config = ScheduleConfig() if config is None else config
        if not isinstance(config, ScheduleConfig):
            raise InputError(f"create_session wants a ScheduleConfig, got {type(config).__name__}")
        _check_cpus(config.cpu_ids or (config.team.cpu_ids if config.team else ()))
        backends = []
        try:
            for name in dict.fromkeys([config.backend, config.backup]):
                backends.append(create_backend(name, config, loaded.weights))
            tuner = self._tuner(config, loaded)
            for backend in backends:
                backend.tuner = tuner
            runtime = Runtime(backends, config.limits, loaded.constants, tuner, config.inter_op_threads)
            session = Session(self, loaded, runtime, config)
        except BaseException:
            for backend in backends:
                backend.release()
            raise
        self._sessions.add(session)
        return session

    def set_cache_file(self, path: str | os.PathLike | None) -> None:
        """Lets the sessions created from now on look up in this file what was measured before (see docs/performance.md), and add to it
        what they measure; None: in no file. It need not exist. A file that can't be used gives one warning in the log."""
        if path is None:
            self._cache_file = None
            return
        from mnnx.backends.tuning_file import TuningFile

        try:
            self._cache_file = TuningFile(path)
        except (TypeError, ValueError) as error:
            raise InputError(f"set_cache_file wants a path (a str or os.PathLike), got {path!r}") from error

    def update_cache_file(self, session: Session) -> None:
        """Adds the times that a session goes by to the present cache file, if there is one. (What a session measures goes to the file that
        was set when it was created, without this.)"""
        if not isinstance(session, Session):
            raise InputError(f"update_cache_file wants a session, not {type(session).__name__}")
        if self._cache_file is not None:
            session.write_tuning(self._cache_file)

    def _tuner(self, config: ScheduleConfig, loaded: LoadedModel) -> Tuner | None:
        if not config.tune and self._cache_file is None:
            return None
        from mnnx.backends.tuning import Tuner

        return Tuner(self._cache_file, config.tune_seconds if config.tune else 0, loaded.weight_bytes)

    def release(self) -> None:
        """Releases all sessions, and the model."""
        for session in list(self._sessions):
            session.release()
        self._loaded = None

    def _alive(self) -> LoadedModel:
        if self._loaded is None:
            raise SessionStateError("the interpreter was released; open the model again")
        return self._loaded

    def __repr__(self) -> str:
        if self._loaded is None:
            return "Interpreter(released)"
        graph = self._loaded.model.graphs[0]
        inputs, outputs = (", ".join(graph.values[i].name for i in indices) for indices in (graph.inputs, graph.outputs))
        path = str(self._loaded.path) if self._loaded.path else "from bytes"
        return f"Interpreter({path!r}, [{inputs}] → [{outputs}], {len(graph.nodes)} ops)"

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


def _check_cpus(cpu_ids: tuple[int, ...]) -> None:
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(cpu_ids)
    if missing := [cpu for cpu in cpu_ids if cpu not in allowed]:
        listed = ", ".join(map(str, sorted(allowed)))
        raise InputError(f"cpu_ids: this process may not run on CPU {missing[0]}; it may use {listed}")


@no_collections()
def _open(path: str | os.PathLike | None) -> LoadedModel:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"Interpreter wants the path of an .mnnx file (a str or os.PathLike), got {type(path).__name__}")
    try:
        real = Path(path).resolve(strict=True)
        status = real.stat()
        key = (str(real), status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns)
        with _OPEN_LOCK:
            loaded = _OPEN.get(key)
            if loaded is None:
                loaded = _OPEN[key] = LoadedModel(read_model(real), real)
            return loaded
    except OSError as error:
        raise InputError(f"the model file {os.fspath(path)!r} can't be opened: {error.strerror or error}") from error
    except (ValueError, RuntimeError) as error:  # a NUL in the path; a loop of symbolic links, which Python < 3.13 reports so
        raise InputError(f"the model file {os.fspath(path)!r} can't be opened: {error}") from error


def _after_fork() -> None:
    global _OPEN_LOCK
    _OPEN_LOCK = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
