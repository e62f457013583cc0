"""Weights in a mapped file: memory of theirs that this process needs no more."""

from __future__ import annotations

import mmap

import numpy as np


def forget_pages(array: np.ndarray) -> None:
    """Lets go of the pages that an array alone fills, where it lies in a mapped file; they are read again if somebody looks."""
    owner = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    while isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED") or not array.flags.c_contiguous:
        return
    start = array.__array_interface__["data"][0] - np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        owner.madvise(mmap.MADV_DONTNEED, first, last - first)
