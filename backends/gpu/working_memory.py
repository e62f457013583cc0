"""An execution's working memory in pieces, each of which begins where a tensor may."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mnnx.backends.backend import Backend
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Spec

_BYTE = np.dtype("uint8")


def aligned(backend: Backend, nbytes: int) -> int:
    """The bytes from a piece of `nbytes` to the next one."""
    return -(-nbytes // backend.alignment) * backend.alignment


def bytes_of(backend: Backend, pieces: Iterable[int]) -> int:
    """The bytes of working memory that pieces of so many bytes take."""
    return sum(aligned(backend, nbytes) for nbytes in pieces)


def cut(scratch: DeviceTensor | None, pieces: Iterable[int]) -> list[DeviceTensor | None]:
    """Pieces of so many bytes, in this order; None in place of one without bytes, so that `scratch` may be missing where all are."""
    found: list[DeviceTensor | None] = []
    offset = 0
    for nbytes in pieces:
        found.append(piece(scratch, offset, nbytes) if nbytes else None)
        offset += aligned(scratch.backend, nbytes) if nbytes else 0
    return found


def piece(scratch: DeviceTensor, offset: int, nbytes: int) -> DeviceTensor:
    """`nbytes` of the working memory from its byte `offset` on, a multiple of the alignment."""
    return DeviceTensor(scratch.name, Spec(_BYTE, (nbytes,)), scratch.backend, scratch.memory, scratch.offset + offset)
