"""The session API under MNN's own Python names, so that a PyMNN script runs with `import mnnx as MNN`. See docs/pymnn.md."""
# ruff: noqa: N802 - the names are MNN's.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from mnnx.errors import InputError, SessionStateError
from mnnx.interpreter.checks import is_one_of
from mnnx.interpreter.config import BackendConfig, ScheduleConfig
from mnnx.interpreter.tensor import SessionTensor, Tensor
from mnnx.interpreter.unit import OperatorInfo
from mnnx.schema.model import Value

if TYPE_CHECKING:
    from mnnx.interpreter.session import Session

#: MNN's numbers of devices.
_FORWARD_TYPES = {0: "cpu", 1: "metal", 2: "cuda", 3: "opencl", 6: "opengl", 7: "vulkan", 8: "hiai", 9: "trt"}
_LEVELS = {0: "normal", 1: "high", 2: "low", "normal": "normal", "high": "high", "low": "low"}
_PRECISIONS = _LEVELS | {3: "low", "lowBF": "low"}
_KEYS = ("backend", "numThread", "precision", "memory", "power", "saveTensors", "tune")
_SESSION_MODES = range(10)
_MEMORY, _FLOPS, _BACKENDS, _RESIZE_STATUS, _THREADS = range(5)

Callback = Callable[[Sequence[Tensor], Any], Any]


class PyMnnInterpreter:
    """PyMNN's names on an Interpreter. What goes wrong raises an MnnxError; codes are given where nothing does."""

    create_session: Callable[[ScheduleConfig], Session]
    release: Callable[[], None]
    set_cache_file: Callable[[str], None]
    update_cache_file: Callable[[Session], None]

    @staticmethod
    def createRuntime(configs: Sequence[Mapping[str, Any]]) -> tuple[ScheduleConfig, tuple[bool, ...]]:
        """For `createSession(config, runtime)`: the first config, checked, and which configs are honoured (that one).

        Every session has its own threads and memory, whatever runtime it is made with.
        """
        configs = [configs] if isinstance(configs, Mapping) else configs
        if not isinstance(configs, list | tuple) or not configs:
            raise InputError(f"createRuntime wants a list of at least one config, got {configs!r}")
        return schedule_config(configs[0]), tuple(index == 0 for index in range(len(configs)))

    def createSession(self, config: Mapping[str, Any] | None = None, runtime: ScheduleConfig | None = None) -> Session:
        """config: backend, numThread, precision, memory, power, saveTensors, and mnnx's own: tune. Raises InputError for any other key.

        runtime: what `createRuntime` gave first; it takes the place of the config.
        """
        return self.create_session(schedule_config({} if config is None else config) if runtime is None else runtime)

    def getSessionInput(self, session: Session, name: str | None = None) -> SessionTensor:
        """The named input; without a name the first one."""
        return _chosen(_checked(session).inputs, name, "input")

    def getSessionOutput(self, session: Session, name: str | None = None) -> SessionTensor:
        """The named output, or tensor in `saveTensors`; without a name the first one."""
        return _chosen(_checked(session).outputs, name, "output")

    def getSessionInputAll(self, session: Session) -> dict[str, SessionTensor]:
        return dict(_checked(session).inputs)

    def getSessionOutputAll(self, session: Session) -> dict[str, SessionTensor]:
        return dict(_checked(session).outputs)

    def resizeTensor(self, tensor: SessionTensor, shape: Sequence[int]) -> None:
        """Sets an input's shape for the next `resizeSession` or run. Raises InputError where a dim that the model fixes differs."""
        if not isinstance(tensor, SessionTensor) or not tensor.is_input:
            raise InputError(f"resizeTensor wants an input of a session, got {tensor!r}")
        tensor.set_shape(shape)

    def resizeSession(self, session: Session) -> bool:
        """Plans the session for its inputs' shapes; True. Raises SessionStateError where a dim was never set."""
        for tensor in _checked(session).inputs.values():
            if tensor.kind == "tensor" and tensor.is_open:
                raise SessionStateError(
                    f"input {tensor.name!r} has open dims {list(tensor.shape)} ({tensor.dims}): call resizeTensor first"
                )
        session.resize({})
        return True

    def runSession(self, session: Session) -> int:
        """Runs on what the inputs were filled with; 0. Raises an MnnxError where MNN gives another code."""
        _checked(session).run()
        return 0

    def runSessionWithCallBack(self, session: Session, begin: Callback | None = None, end: Callback | None = None) -> int:
        """Calls begin(tensors, op name) and end(tensors, op name) around every op; False from one stops the run with the code 11."""
        return _checked(session).run_with_callbacks(_adapted(begin, lambda info: info.name), _adapted(end, lambda info: info.name))

    def runSessionWithCallBackInfo(self, session: Session, begin: Callback | None = None, end: Callback | None = None) -> int:
        """The same with an info that has getName() and getType() in place of the name."""
        return _checked(session).run_with_callbacks(_adapted(begin, lambda info: info), _adapted(end, lambda info: info))

    def getSessionInfo(self, session: Session, code: int) -> float | int:
        """0: memory in MiB. 1: millions of floating-point operations of a run (a multiply-add is two). 2: the main device's number.
        3: 0 if the session is planned, else 2. 4: threads."""
        info = _checked(session).info()
        if not isinstance(code, Integral):
            raise InputError(f"getSessionInfo knows the codes 0 … 4, not {code!r}")
        if code == _MEMORY:
            return info["memory_mb"]
        if code == _FLOPS:
            return info["flops"] / 1e6
        if code == _BACKENDS:
            return next((number for number, name in _FORWARD_TYPES.items() if name == info["backends"][0]), -1)
        if code == _RESIZE_STATUS:
            return 2 if any(tensor.is_open for tensor in session.inputs.values()) else 0
        if code == _THREADS:
            return info["num_threads"]
        raise InputError(f"getSessionInfo knows the codes 0 … 4, not {code!r}")

    def setCacheFile(self, path: str) -> None:
        """The same as `set_cache_file`. Kernels are not in it: they are cached for all models in one folder (docs/pymnn.md)."""
        self.set_cache_file(path)

    def updateCacheFile(self, session: Session, flag: int = 0) -> int:
        """The same as `update_cache_file`; 0, also where no file was set."""
        self.update_cache_file(_checked(session))
        return 0

    def setSessionMode(self, mode: int) -> None:
        """Takes MNN's modes 0 … 9; what they choose between is one and the same here (docs/pymnn.md). Raises InputError for others."""
        if not is_one_of(mode, _SESSION_MODES):
            raise InputError(f"setSessionMode knows the modes 0 … 9, not {mode!r}")

    def releaseSession(self, session: Session) -> bool:
        _checked(session).release()
        return True

    def releaseModel(self) -> None:
        """Lets go of the model: no more sessions can be created, those that exist go on."""
        self._loaded = None


def version() -> str:
    """mnnx's version."""
    from mnnx import __version__

    return __version__


def schedule_config(config: Mapping[str, Any]) -> ScheduleConfig:
    """MNN's config dict as a ScheduleConfig. Raises InputError for an unknown key or value; unknown devices show when it is used."""
    if not isinstance(config, Mapping):
        raise InputError(f"a session's config is a dict, not {type(config).__name__}")
    if unknown := [key for key in config if key not in _KEYS]:
        raise InputError(f"a session's config has no key {unknown[0]!r}; known ones: {', '.join(_KEYS)}")
    backend = config.get("backend", 0)
    saved = config.get("saveTensors", ())
    if not isinstance(saved, list | tuple) or not all(isinstance(name, str) for name in saved):
        raise InputError(f"saveTensors is a tuple of names, not {saved!r}")
    return ScheduleConfig(
        backend=_FORWARD_TYPES.get(backend, str(backend)) if isinstance(backend, int) else str(backend).lower(),
        num_threads=config.get("numThread", 0),
        backend_config=BackendConfig(
            precision=_level(config, "precision", "high", _PRECISIONS),
            memory=_level(config, "memory", "normal", _LEVELS),
            power=_level(config, "power", "normal", _LEVELS),
        ),
        save_tensors=tuple(saved),
        tune=config.get("tune", False),
    )


def _checked(session: Session) -> Session:
    """Raises InputError for what is no session."""
    if not hasattr(session, "run_with_callbacks"):
        raise InputError(f"this wants a session, as createSession gives it, not {type(session).__name__}")
    return session


def _level(config: Mapping[str, Any], key: str, default: str, levels: Mapping[Any, str]) -> str:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | str) or value not in levels:
        raise InputError(f"{key} is one of {', '.join(map(repr, levels))}; it is {value!r}")
    return levels[value]


def _chosen(tensors: Mapping[str, SessionTensor], name: str | None, what: str) -> SessionTensor:
    if not tensors:
        raise InputError(f"the model has no {what}s")
    if name is None:
        return next(iter(tensors.values()))
    if not isinstance(name, str) or name not in tensors:
        hint = "; list a tensor inside the model in saveTensors" if what == "output" else ""
        raise InputError(f"the session has no {what} {name!r}; its {what}s are {', '.join(map(repr, tensors))}{hint}")
    return tensors[name]


def _adapted(callback: Callback | None, second: Callable[[OperatorInfo], Any]) -> Callable[[Sequence[Any], OperatorInfo], bool]:
    """A PyMNN callback as one of `run_with_callbacks`: None goes on, any false value stops."""

    def call(tensors: Sequence[Any], info: OperatorInfo) -> bool:
        if callback is None:
            return True
        seen = [_SeenTensor(tensor) for tensor in tensors if tensor is not None]
        answer = callback(seen, second(info))
        return answer is None or bool(answer)

    return call


class _SeenTensor(SessionTensor):
    """An op's input or output, as a callback sees it; its data is copied when asked for."""

    def __init__(self, tensor: Any):
        super().__init__(Value(tensor.name, tensor.dtype, tensor.shape), {})
        self._tensor = tensor

    @property
    def filled(self) -> bool:
        return True

    def data(self) -> Any:
        return self._tensor.copy_to_host()
