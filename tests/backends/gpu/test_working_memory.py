"""Working memory in pieces: as large as asked for, apart, and where a tensor may begin."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mnnx.backends.gpu.working_memory import bytes_of, cut
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Spec

BACKEND = SimpleNamespace(alignment=64)


@pytest.mark.parametrize("sizes", [(1,), (64, 64), (65, 1, 200), (0, 3, 0, 70, 0)])
def test_pieces_lie_apart_within_the_working_memory(sizes: tuple[int, ...]) -> None:
    scratch = DeviceTensor("scratch", Spec(np.dtype("uint8"), (bytes_of(BACKEND, sizes),)), BACKEND, object(), 128)
    pieces = cut(scratch, sizes)
    assert [0 if piece is None else piece.spec.nbytes for piece in pieces] == list(sizes)
    end = scratch.offset
    for piece in filter(None, pieces):
        assert piece.memory is scratch.memory
        assert piece.offset >= end
        assert piece.offset % BACKEND.alignment == 0
        end = piece.offset + piece.spec.nbytes
    assert end <= scratch.offset + scratch.spec.nbytes


def test_pieces_without_bytes_need_no_working_memory() -> None:
    assert cut(None, (0, 0)) == [None, None]
