"""Vulkan's C functions and structs, through cffi. Only this file knows which binding gives them: the package `vulkan`."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from mnnx.errors import BackendError, BackendUnavailable

INSTALL = "install a driver (on Debian: apt-get install mesa-vulkan-drivers libvulkan1, which runs on any CPU as well)"
DEVICE_LOST, LAYER_NOT_PRESENT = -4, -6
#: A part of a name that begins behind a lower-case letter: CreateInfo, Device16BitStorage, InfoEXT.
_PART = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[0-9])(?=[A-Z](?!it))")  # 16Bit stays whole


class Api:
    """`ffi` makes C data; `lib` has the functions and enumerators."""

    def __init__(self, ffi: Any, lib: Any):
        self.ffi = ffi
        self.lib = lib
        self.NULL = ffi.NULL
        self._kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._codes = ffi.typeof("VkResult").elements

    def struct(self, kind: str, **fields: Any) -> Any:
        """A pointer to a struct, whose sType follows from its name; what its fields point to lives as long as it does."""
        made = self.ffi.new(f"{kind} *", {"sType": self._type_of(kind), **fields})
        self._kept[made] = fields
        return made

    def array(self, kind: str, values: Sequence[Any]) -> Any:
        """A C array, for as long as somebody holds it; what its elements point to is the caller's to hold."""
        return self.ffi.new(f"{kind}[]", values)

    def _type_of(self, kind: str) -> int:
        return getattr(self.lib, f"VK_STRUCTURE_TYPE_{_PART.sub('_', kind[2:]).upper()}")

    def make(self, function: str, kind: str, *arguments: Any) -> Any:
        """The handle that a function vkCreate… or vkAllocate… makes. Raises BackendError."""
        place = self.ffi.new(f"{kind} *")
        self.check(getattr(self.lib, function)(*arguments, place), function)
        return place[0]

    def each(self, function: Any, kind: str, *arguments: Any) -> Iterator[Any]:
        """All that a function of the form vkEnumerate… or vkGet…Properties lists; a struct holds until the next."""
        count = self.ffi.new("uint32_t *")
        function(*arguments, count, self.NULL)
        rows = self.ffi.new(f"{kind}[]", max(1, count[0]))
        function(*arguments, count, rows)
        for i in range(count[0]):
            yield rows[i]

    def name_of(self, code: int) -> str:
        """VK_ERROR_DEVICE_LOST for -4."""
        return self._codes.get(code, f"VkResult {code}")

    def check(self, code: int, function: str) -> int:
        """Raises BackendError for a code that says failure; gives the others back."""
        if code < 0:
            raise BackendError(f"the Vulkan driver failed in {function}: {self.name_of(code)}")
        return code


def load() -> Api:
    """Raises BackendUnavailable, saying what to install."""
    try:
        from vulkan import ffi, lib
    except ImportError as error:
        raise BackendUnavailable(f"the backend vulkan needs the package vulkan (pip install 'mnnx[vulkan]'): {error}") from error
    except OSError as error:  # the package's way to say that libvulkan is missing
        raise BackendUnavailable(f"no Vulkan loader was found ({error}): {INSTALL}") from error
    return Api(ffi, lib)
