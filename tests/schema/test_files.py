"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mnnx.schema.files import make_folder, naming, whole_file


def _folder(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def test_a_file_is_replaced_when_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert _folder(tmp_path) == {"file": b"new"}


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), ValueError("no value")])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write() -> None:
        with whole_file(path) as file:
            file.write(b"half of the n")
            raise failure

    with pytest.raises(type(failure)):
        write()
    assert _folder(tmp_path) == {"file": b"old"}


@pytest.mark.parametrize("name", ["missing/file", "file/file", "folder"])
def test_an_error_names_the_file_that_was_meant(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=f"{name}'$") as caught, whole_file(tmp_path / name) as file:
        file.write(b"")
    assert caught.value.filename == str(tmp_path / name)
    assert {entry.name for entry in tmp_path.iterdir()} == {"file", "folder"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_device_is_written_to_as_it_is() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), whole_file("/dev/full") as file:
        file.write(b"x")
    assert Path("/dev/full").is_char_device()


def test_folders_are_made_with_those_above_them(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    assert make_folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"it is not a folder: .*file'$"):
        make_folder(tmp_path / "file")


def test_an_error_without_a_reason_gives_its_text() -> None:
    with pytest.raises(OSError, match=r"9 requested and 1 written: 'x\.npy'"), naming("x.npy"):
        raise OSError("9 requested and 1 written")
