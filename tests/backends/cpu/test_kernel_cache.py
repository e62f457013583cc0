"""Kernels are compiled once, and nothing that is wrong with the cache stops them."""

import logging
import subprocess
import sys

import pytest

from mnnx.backends.cpu import kernel as kernels
from mnnx.backends.cpu.compiler import compile_kernel
from mnnx.backends.cpu.elf import undefined_symbols
from mnnx.backends.cpu.kernels.intrinsics import load_i64, store_i64
from mnnx.backends.cpu.kernels.registry import kernel_factory
from mnnx.backends.cpu.target import Target
from mnnx.backends.kernel_cache import KernelCache
from mnnx.errors import BackendError

RUN = """
import ctypes, sys
import numpy as np
from mnnx.backends.cpu.kernel import compiled_count, kernel
x = np.zeros(100, np.float32)
args = np.array([x.ctypes.data, x.size])
call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(kernel("selfcheck.count").address)
for part in range(3):
    call(args.ctypes.data, part, 3)
assert (x == 1).all()
print(compiled_count(), "numba" in sys.modules)
"""


def count_in_new_process(folder):
    """'<kernels compiled> <numba imported>' of a process that uses one kernel, and its log."""
    done = subprocess.run([sys.executable, "-c", RUN], env={"MNNX_CACHE_DIR": str(folder)}, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A cache that holds one kernel."""
    path = tmp_path_factory.mktemp("cache")
    assert count_in_new_process(path)[0] == "1 True"
    return path


def test_a_cached_kernel_needs_no_numba(folder):
    assert count_in_new_process(folder)[0] == "0 False"


@pytest.mark.parametrize("damage", [lambda data: data[:-10], lambda data: b"", lambda data: data.replace(b"ELF", b"elf")])
def test_a_damaged_file_is_compiled_again(folder, damage):
    (file,) = folder.glob("kernels/*/*.kernel")
    file.write_bytes(damage(file.read_bytes()))
    printed, log = count_in_new_process(folder)
    assert printed == "1 True"
    assert "damaged" in log
    assert count_in_new_process(folder)[0] == "0 False"


def test_a_folder_that_cannot_be_used_gives_one_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file", "target")
    with caplog.at_level(logging.WARNING, "mnnx"):
        assert cache.read("a") is None
        cache.write("a", b"code")
        cache.write("b", b"code")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_the_folder_stays_bounded(tmp_path):
    cache = KernelCache(tmp_path, "target", limit_bytes=100_000)
    for number in range(200):
        cache.write(f"kernel{number}", bytes(5000))
    assert sum(file.stat().st_size for file in cache.folder.iterdir()) < 100_000 + 64 * 6000
    assert cache.read("kernel199") == bytes(5000)


def test_what_was_written_is_read(tmp_path):
    KernelCache(tmp_path, "target").write("a", b"code\nwith lines")
    assert KernelCache(tmp_path, "target").read("a") == b"code\nwith lines"
    assert KernelCache(tmp_path, "other").read("a") is None


def test_the_source_hash_follows_the_modules_that_a_kernel_imports(tmp_path, monkeypatch, request):
    monkeypatch.setattr(kernels, "_SOURCES", tmp_path)
    request.addfinalizer(kernels._source.cache_clear)
    texts = {"intrinsics": "", "a": "from mnnx.backends.cpu.kernels.b import (\n    x,\n)", "b": "x = 1", "c": "y = 1"}

    def digest(**changes):
        for name, text in (texts | changes).items():
            (tmp_path / f"{name}.py").write_text(text)
        kernels._source.cache_clear()
        return kernels.source_hash.__wrapped__("a")

    assert digest() == digest(c="y = 2")
    assert len({digest(), digest(a="#"), digest(b="x = 2"), digest(intrinsics="#")}) == 4


@kernel_factory("selfcheck.foreign")
def make_foreign():
    from numba import types

    getpid = types.ExternalFunction("getpid", types.int32())

    def foreign(args, part, parts):
        store_i64(load_i64(args), getpid())

    return foreign


def test_an_object_that_needs_more_than_the_c_library_is_refused():
    with pytest.raises(BackendError, match=r"selfcheck.foreign\(\) needs getpid"):
        compile_kernel("selfcheck.foreign", {}, "symbol", Target.host())


def test_undefined_symbols_of_other_formats_are_unknown():
    assert undefined_symbols(b"\xcf\xfa\xed\xfe" + bytes(100)) is None


def test_kernels_are_equal_by_name_and_parameters():
    assert kernels.kernel("raster", element=4, lanes=8) is kernels.kernel("raster", lanes=8, element=4)
    level = Target.host().level
    assert kernels.kernel("raster", element=4, lanes=8).identity(level) != kernels.kernel("raster", element=4, lanes=4).identity(level)
