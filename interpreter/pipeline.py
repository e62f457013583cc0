"""A Pipeline: a run of Units on one backend, recorded once and submitted as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from mnnx.backends.backend import Backend, Repetition
from mnnx.backends.tensor import DeviceTensor
from mnnx.errors import BackendError
from mnnx.interpreter.faults import blamed, blaming
from mnnx.interpreter.unit import CallbackStop, OperatorInfo, Unit

Callback = Callable[[Sequence[DeviceTensor | None], OperatorInfo], bool | None]


class Hooks:
    """What a run calls around every op. `before` and `after` return False to stop the run."""

    def __init__(self, before: Callback, after: Callback):
        self._before = before
        self._after = after

    def before(self, tensors: Sequence[DeviceTensor | None], info: OperatorInfo) -> None:
        _call(self._before, tensors, info)

    def after(self, tensors: Sequence[DeviceTensor | None], info: OperatorInfo) -> None:
        _call(self._after, tensors, info)


def _call(callback: Callback, tensors: Sequence[DeviceTensor | None], info: OperatorInfo) -> None:
    stop = CallbackStop()
    try:
        if callback(tensors, info) is not False:
            return
    except Exception as error:  # the caller's own; no op around this one is to be blamed for it
        stop.error = error
    raise stop


class Pipeline:
    """Records its units when made; they and their tensors stay as they are."""

    def __init__(self, backend: Backend, units: list[Unit], transfers: list[tuple[DeviceTensor, DeviceTensor]]):
        self.backend = backend
        self.units = units
        self.transfers = transfers  # (tensor of another backend, its copy here), made before the units run
        self.commands = backend.new_commands()
        for unit in units:
            unit.first = len(self.commands)
            with blaming(unit.node, [t and t.spec for t in unit.inputs], BackendError):
                unit.execution.on_resize(unit.inputs, unit.outputs, unit.scratch)
            unit.last = len(self.commands)
        self.commands.prepare()
        for _, wave in groupby(units, lambda unit: unit.wave):
            lanes = [list(lane) for _, lane in groupby(wave, lambda unit: unit.lane)]
            if len(lanes) > 1:
                self.commands.set_abreast([(lane[0].first, lane[-1].last) for lane in lanes])

    def execute(self, hooks: Hooks | None = None) -> None:
        """Runs all units; with hooks one at a time."""
        for source, copy in self.transfers:
            copy.copy_from_host(source.copy_to_host())
        if hooks is None:
            self._blaming(self.commands.submit, 0, len(self.commands))
            return
        for unit in self.units:
            info = unit.info
            hooks.before(unit.inputs, info)
            nanoseconds = self._blaming(self.commands.submit_timed, unit.first, unit.last)
            hooks.after(unit.outputs, info._replace(nanoseconds=nanoseconds))

    def repeat(self, loop: Repetition, first: int, last: int) -> tuple[int, bool]:
        """Runs all units for the iterations first … last-1 of a loop. Returns how far it came, and whether the loop goes on."""
        return self._blaming(self.commands.repeat, loop, first, last)

    def _blaming(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function gives for the arguments; an error is one of the unit whose command failed, where the device can tell."""
        try:
            return function(*arguments)
        except Exception as error:
            self._blame_unit(error)
            raise

    def _blame_unit(self, error: Exception) -> None:
        failed = self.commands.failed
        for unit in self.units:
            if failed is not None and unit.first <= failed < unit.last:
                raise blamed(error, unit.node, [t and t.spec for t in unit.inputs]) from error
