"""Classes of plain fields that cost next to nothing to define.

A process that starts defines dozens of them; `@dataclass` and `NamedTuple` compile methods for each, which takes up to half a millisecond.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, ClassVar


class Record:
    """Fields by annotation, with defaults where the class body gives any (a class: a fresh instance of it); equal to itself only.

    class Node(Record):
        name: str
        inputs: tuple[int, ...] = ()
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        cls._fields = (*cls._fields, *cls.__annotations__)
        cls._defaults = cls._defaults | {name: own[name] for name in cls.__annotations__ if name in own}

    def __init__(self, *values: Any, **named: Any):
        """Raises TypeError for a field that is missing, unknown or given twice."""
        fields, given = self._fields, self.__dict__
        if not named and len(values) == len(fields):
            given.update(zip(fields, values, strict=True))
            return
        for name, default in self._defaults.items():
            given[name] = default() if isinstance(default, type) else default
        given.update(zip(fields, values, strict=False))
        twice = len(values) > len(fields) or not named.keys().isdisjoint(fields[: len(values)])
        given.update(named)
        if twice or given.keys() != set(fields):
            raise TypeError(f"{type(self).__name__} takes the fields {', '.join(fields)}, each once")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


class Row(tuple):
    """A tuple whose elements have names, by annotation, with defaults where the class body gives any.

    class Grid(Row):
        start: tuple[int, int]
        step: tuple[int, int] = (1, 1)
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        cls._fields = tuple(name for name in own.get("__annotations__", ()) if not name.startswith("_")) or cls._fields
        cls._defaults = cls._defaults | {name: own[name] for name in cls._fields if name in own}
        for place, name in enumerate(cls._fields):
            setattr(cls, name, property(itemgetter(place)))

    def __new__(cls, *values: Any, **named: Any):
        """Raises TypeError for a field that is missing, unknown or given twice."""
        if named or len(values) != len(cls._fields):
            rest = cls._fields[len(values) :]
            given = cls._defaults | named
            if len(values) > len(cls._fields) or not given.keys() >= set(rest) or not named.keys() <= set(rest):
                raise TypeError(f"{cls.__name__} has the fields {', '.join(cls._fields)}, each once")
            values = (*values, *(given[name] for name in rest))
        return tuple.__new__(cls, values)

    def __getnewargs__(self) -> tuple:
        return tuple(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def _replace(self, **changes: Any):
        """The same with other values for some fields."""
        return type(self)(**dict(zip(self._fields, self, strict=True)) | changes)
