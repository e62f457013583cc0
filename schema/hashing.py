"""The hash that files and kernels are told apart by."""

try:
    from _blake2 import blake2b  # hashlib's own, without OpenSSL, whose loading takes as long as that of all kernels
except ImportError:
    from hashlib import blake2b

__all__ = ["blake2b"]
