"""Compiled programs on disk, beside the CPU's kernels."""

from __future__ import annotations

from mnnx.backends.kernel_cache import KernelCache, default_folder, open_cache
from mnnx.schema.hashing import blake2b


def open_program_cache(api: str, device: str) -> KernelCache:
    """The cache of a device (with its driver) in words."""
    return open_cache(default_folder(), f"{api}-{blake2b(device.encode(), digest_size=8).hexdigest()}")
