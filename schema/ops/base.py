"""What an operator definition is: typed attributes, and the shape and dtype of its results.

A definition is a class under `@op`. Its annotated fields, and those of its base classes, are its attributes; they are written to the
model file and read back from it by their annotations, so a new attribute is one line. Instances are immutable. (Definition modules
don't use `from __future__ import annotations`: their annotations are read as objects, which costs nothing at import.)
"""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, get_args, get_origin

import numpy as np

from mnnx.schema import dtypes, plugins

OPS: dict[str, type[Op]] = {}
_DEFINITION = re.compile(rb'\n@op\("([^"]+)"\)')


class DataDependent(Exception):
    """Raised by `Op.infer` where the shape of a result depends on values that aren't known before the model runs."""


class RuleError(ValueError):
    """Raised by `Op.infer` (through `require`) where inputs or attributes break a rule of the operator."""


def require(condition: object, rule: str) -> None:
    """Raises RuleError(rule) unless `condition` holds. `rule` says what must hold and what was found instead."""
    if not condition:
        raise RuleError(rule)


class Spec:
    """What is known of a tensor before the model runs: dtype, shape (non-negative ints), and its value where that is known."""

    __slots__ = ("dtype", "shape", "value")

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...], value: np.ndarray | None = None):
        self.dtype = dtype
        self.shape = shape
        self.value = value

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def known(self) -> np.ndarray:
        """The value; raises DataDependent where it isn't known yet."""
        if self.value is None:
            raise DataDependent
        return self.value

    def ints(self) -> tuple[int, ...]:
        """The value as a flat tuple of ints (a shape, axes, …); raises DataDependent where it isn't known yet."""
        return tuple(int(v) for v in self.known().reshape(-1))

    @classmethod
    def of(cls, array: np.ndarray) -> Spec:
        return cls(array.dtype, array.shape, array)

    def __str__(self) -> str:
        return f"{dtypes.name(self.dtype)}{list(self.shape)}"

    def __repr__(self) -> str:
        return f"Spec({self}{'' if self.value is None else ', known'})"


def specs_of(*arrays: np.ndarray | None) -> tuple[Spec | None, ...]:
    """The Specs of arrays, their values known; None for None."""
    return tuple(None if array is None else Spec.of(array) for array in arrays)


class Subgraph:
    """Marks an attribute that holds a graph: in the converter its `Graph`, at run time the reader's `Graph`, in the file its index."""


#: An op with its inputs and outputs.
Part = tuple["Op", Sequence[Any], Sequence[Any]]


class Op:
    """Base of all operator definitions."""

    name: ClassVar[str]
    #: Attribute name → (annotation, default or `...` where the attribute must be given).
    fields: ClassVar[dict[str, tuple[Any, Any]]] = {}
    #: The attributes that hold graphs.
    subgraphs: ClassVar[tuple[str, ...]] = ()
    #: False where two runs on equal inputs may differ (random numbers): never folded or merged.
    deterministic: ClassVar[bool] = True
    #: True where sessions plan it as other ops (`parts`).
    composed: ClassVar[bool] = False

    def __init__(self, **attributes: Any):
        """Raises TypeError for an unknown, missing or wrongly typed attribute, ValueError (`check`) for an illegal one."""
        for key, (annotation, default) in self.fields.items():
            if key in attributes:
                value = attributes.pop(key)
                if type(value) is not annotation:
                    value = _coerce(value, annotation, f"{self.name}.{key}")
            elif default is ...:
                raise TypeError(f"{self.name} needs the attribute {key!r}")
            else:
                value = default
            object.__setattr__(self, key, value)
        if attributes:
            raise TypeError(f"{self.name} has no attribute {', '.join(map(repr, attributes))}")
        self.check()

    def __setattr__(self, key: str, value: Any) -> None:
        raise AttributeError(f"{self.name} is immutable")

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.attributes().items())})"

    def check(self) -> None:
        """Raises RuleError (see `require`) where an attribute's value is illegal, whatever the inputs."""

    def attributes(self) -> dict[str, Any]:
        """The attributes that differ from their defaults, by name."""
        return {
            key: getattr(self, key) for key, (_, default) in self.fields.items() if default is ... or not _same(getattr(self, key), default)
        }

    def replace(self, **changes: Any) -> Op:
        """A copy with some attributes changed."""
        return type(self)(**({key: getattr(self, key) for key in self.fields} | changes))

    def infer(self, *inputs: Spec | None) -> Spec | tuple[Spec | None, ...]:
        """Specs of the outputs (one Spec, or a tuple with one entry per output) from those of the inputs (None: an input left out).

        Raises RuleError where the inputs break a rule of the op: whatever a kernel relies on must be checked here. Raises
        DataDependent where a shape depends on values that aren't known: such an op runs on the host, and ends a segment. So does
        an op that doesn't override this.
        """
        raise DataDependent

    def infer_all(self, *inputs: Spec | None) -> tuple[Spec | None, ...]:
        """As `infer`; a tuple also where the op has one output."""
        results = self.infer(*inputs)
        return results if isinstance(results, tuple) else (results,)

    def parts(self, inputs: Sequence[Any], outputs: Sequence[Any], further: Callable[[], Any]) -> list[Part]:
        """Of a `composed` op: the ops that compute it, with inputs and outputs; anything stands for values, `further()` makes another."""
        raise NotImplementedError

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        """Floating-point operations of one run on such tensors; a multiply-add counts as two. What moves data, or is cheap, counts as 0."""
        return 0


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None or isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return a is b  # NumPy takes None for float64 when it compares dtypes
    return a == b


@cache
def _parts(annotation: Any) -> tuple[Any, bool, Any]:
    """An annotation without None, whether that may stand in its place, and what it is a tuple of (None: it is none)."""
    options = get_args(annotation) if get_origin(annotation) not in (tuple, None) else ()
    plain = next((option for option in options if option is not type(None)), annotation)
    return plain, type(None) in options, get_args(plain)[0] if get_origin(plain) is tuple else None


def is_redefinition(old: Any, new: Any) -> bool:
    """Whether a class or function of a user is one that was defined before and is run again, as a cell of a notebook is."""
    (module, name), again = ((getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)) for thing in (old, new))
    return (module, name) == again and bool(module and name) and not module.startswith("mnnx.") and not name.endswith("<lambda>")


def _coerce(value: Any, annotation: Any, where: str) -> Any:
    """`value` as the annotation wants it; raises TypeError where it isn't of that type."""
    annotation, optional, element = _parts(annotation)
    if type(value) is annotation or (value is None and optional):
        return value
    if element is not None:
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise TypeError(f"{where} must be a list, not {value!r}")
        return tuple([v if type(v) is element else _coerce(v, element, where) for v in value])
    if annotation is bool and isinstance(value, (bool, int, np.integer, np.bool_)) and value in (0, 1):
        return bool(value)
    if annotation is int and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if annotation is float and isinstance(value, (float, int, np.floating, np.integer)) and not isinstance(value, bool):
        return float(value)
    if annotation is str and isinstance(value, str):
        return value
    if annotation is np.dtype and value is not None:
        return np.dtype(value)
    if annotation is np.ndarray and isinstance(value, np.ndarray):
        return value
    if annotation is Subgraph:
        return value
    raise TypeError(f"{where} must be {getattr(annotation, '__name__', annotation)}, not {value!r}")


def op(name: str):
    """Registers a definition under its canonical name: ONNX's own, or `domain::Name` for other domains (`mnnx::` for our fused ops).

    Raises TypeError for what is no Op, ValueError for a name that is taken, or, in a module of another package, has no domain; there, also
    TypeError for annotations and defaults that a model file can't hold.
    """

    def register(cls: type[Op]) -> type[Op]:
        if not (isinstance(cls, type) and issubclass(cls, Op)):
            raise TypeError(f"the op {name} must be a class derived from mnnx.Op, not {cls!r}")
        cls.name = name
        cls.__slots__ = ()
        bases = [base for base in reversed(cls.__mro__) if issubclass(base, Op) and base is not Op]
        annotations = {key: annotation for base in bases for key, annotation in base.__annotations__.items()}
        cls.fields = {
            key: (annotation, getattr(cls, key, ...)) for key, annotation in annotations.items() if get_origin(annotation) is not ClassVar
        }
        cls.subgraphs = tuple(key for key, (annotation, _) in cls.fields.items() if annotation is Subgraph)
        if any(isinstance(annotation, str) for annotation, _ in cls.fields.values()):
            raise TypeError(f"{cls.__module__} defines the op {name}: it must not have `from __future__ import annotations`")
        if not cls.__module__.startswith(f"{__package__}."):
            if name in _homes() or "::" not in name:
                raise ValueError(f"the op {name} of {cls.__module__} needs a name of its own, with a domain: 'com.example::Name'")
            _check_fields(cls)
            cls.infer_all = _infer_checked
        if name in OPS and not is_redefinition(OPS[name], cls):
            raise ValueError(f"two definitions of the op {name}: {OPS[name]} and {cls}")
        OPS[name] = cls
        return cls

    return register


def _infer_checked(self: Op, *inputs: Spec | None) -> tuple[Spec | None, ...]:
    """What a user's `infer` gives, one per output. Raises TypeError where that is no Spec, or one of no sizes."""
    specs = Op.infer_all(self, *inputs)
    for spec in specs:
        if spec is None:
            continue
        if not isinstance(spec, Spec):
            raise TypeError(f"its infer must give Specs, not {spec!r}")
        if not isinstance(spec.dtype, np.dtype) or not all(isinstance(dim, int | np.integer) and dim >= 0 for dim in spec.shape):
            raise TypeError(f"its infer must give a NumPy dtype and a shape of sizes, not {spec.dtype!r} and {spec.shape!r}")
    return specs


def _check_fields(cls: type[Op]) -> None:
    """Raises TypeError where the attributes of an op are none that a model file can hold."""
    from mnnx.schema.attributes import kinds

    if hasattr(cls, "__dataclass_fields__"):
        raise TypeError(f"the op {cls.name} must not be a dataclass: mnnx reads the annotations itself")
    kinds(cls)
    for key, (annotation, default) in cls.fields.items():
        if default is not ... and default is not None:
            cls.fields[key] = (annotation, _coerce(default, annotation, f"the default of {cls.name}.{key}"))


def find(name: str) -> type[Op] | None:
    """The definition of an operator by its canonical name, with no more files loaded than need be; None where there is none."""
    if name not in OPS:
        module = _homes().get(name)
        if module is None:
            load_all()
            if name not in OPS:
                plugins.load("mnnx.ops")
        else:
            importlib.import_module(f"{__package__}.{module}")
    return OPS.get(name)


@cache
def _homes() -> dict[str, str]:
    """Name → the module that defines it, by the text of the modules; what isn't seen there is found by `load_all`."""
    folder = os.path.dirname(__file__)
    found = {}
    for file in os.listdir(folder):
        if file.endswith(".py"):
            with open(f"{folder}/{file}", "rb") as stream:
                found.update((name.decode(), file.removesuffix(".py")) for name in _DEFINITION.findall(stream.read()))
    return found


def load_all() -> dict[str, type[Op]]:
    """All operator definitions, by canonical name."""
    import pkgutil

    import mnnx.schema.ops as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return OPS
