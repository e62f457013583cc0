"""The kernels compiled ahead of time, in one file beside this module.

Its first line is the magic and the size of the index; the index has a line per kernel, in order of keys: the SHA-256 of the GLSL that it
was compiled from, the offset and size of its binary after the index, its key. Binaries are SPIR-V, deflated with the first one as
dictionary: they share most of their text.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("kernels.bin")
_MAGIC = b"mnnx-spirv 1 "


class Binaries:
    """What a file holds. Raises ValueError for one that isn't such a file."""

    def __init__(self, data: bytes):
        header, _, rest = data.partition(b"\n")
        if not header.startswith(_MAGIC):
            raise ValueError("this file doesn't hold Vulkan kernels")
        size = int(header.removeprefix(_MAGIC))
        self._data = memoryview(rest)[size:]
        self._places: dict[str, tuple[str, int, int]] = {}
        for line in rest[:size].decode().splitlines():
            digest, offset, nbytes, key = line.split(" ", 3)
            self._places[key] = digest, int(offset), int(nbytes)

    def __contains__(self, key: str) -> bool:
        return key in self._places

    @property
    def digests(self) -> dict[str, str]:
        """Key → SHA-256 of its GLSL."""
        return {key: digest for key, (digest, _, _) in self._places.items()}

    def digest(self, key: str) -> str:
        """Raises KeyError for a kernel that isn't there."""
        return self._places[key][0]

    def spirv(self, key: str) -> bytes:
        """Raises KeyError for a kernel that isn't there."""
        _, offset, nbytes = self._places[key]
        deflated = self._data[offset : offset + nbytes]
        return zlib.decompress(deflated) if offset == 0 else _inflate(deflated, self._dictionary)

    @functools.cached_property
    def _dictionary(self) -> bytes:
        return next(self.spirv(key) for key, (_, offset, _) in self._places.items() if offset == 0)


def _inflate(deflated: bytes, dictionary: bytes) -> bytes:
    stream = zlib.decompressobj(zdict=dictionary)
    return stream.decompress(deflated) + stream.flush()


def packed(kernels: Mapping[str, tuple[str, bytes]]) -> bytes:
    """The file of kernels: key → (SHA-256 of the GLSL, SPIR-V)."""
    lines, pieces, offset = [], [], 0
    dictionary = b""
    for key in sorted(kernels):
        digest, spirv = kernels[key]
        stream = zlib.compressobj(9, zdict=dictionary) if dictionary else zlib.compressobj(9)
        piece = stream.compress(spirv) + stream.flush()
        dictionary = dictionary or spirv
        lines.append(f"{digest} {offset} {len(piece)} {key}\n")
        pieces.append(piece)
        offset += len(piece)
    index = "".join(lines).encode()
    return b"".join((_MAGIC, str(len(index)).encode(), b"\n", index, *pieces))


@functools.cache
def shipped() -> Binaries:
    """Those of the package."""
    return Binaries(FILE.read_bytes())
