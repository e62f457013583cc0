"""Checks of what callers give to `convert` and `extract`."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Any

from mnnx.errors import ConversionError
from mnnx.schema.files import sidecar_name

LEVELS = (0, 1, 2, 3)

#: Endings of files of other frameworks, which can't be told from a broken ONNX file by what is in them.
_OTHER_FORMATS = (
    *(".caffemodel", ".engine", ".h5", ".keras", ".mlmodel", ".mnn", ".ncnn", ".ort", ".param", ".pdmodel", ".pt", ".pth", ".safetensors"),
    *(".pt2", ".tflite", ".xml"),
)
_PYTORCH = (".pt", ".pt2", ".pth")


def check_level(level: Any) -> None:
    """Raises ConversionError for what is none."""
    if not isinstance(level, Integral) or level not in LEVELS:
        raise ConversionError(f"level must be one of {', '.join(map(str, LEVELS))}; it is {level!r}")


def is_proto(source: Any) -> bool:
    """Whether the source is a model in memory (or another message of protobuf), not a path."""
    return hasattr(source, "SerializeToString")


def require_onnx() -> None:
    """Raises ConversionError, which says how to install it, where the package isn't there."""
    if importlib.util.find_spec("onnx") is None:
        raise ConversionError("reading ONNX models needs the package onnx, which isn't installed: pip install 'mnnx[convert]'")


def as_path(value: Any, what: str) -> Path:
    """Raises ConversionError where `value` can't be the name of a file."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise ConversionError(f"the {what} must be the path of a file (a str or os.PathLike), not {type(value).__name__}")
    if "\0" in os.fspath(value):
        raise ConversionError(f"the {what} {os.fspath(value)!r} is no path: it holds a NUL")
    if os.fspath(value).endswith(("/", os.sep)):
        raise ConversionError(f"the {what} {os.fspath(value)!r} names a folder; give the path of a file")
    return Path(value)


def check_source(source: Path, target: Path) -> None:
    """Raises ConversionError where the source isn't for this converter, or would be overwritten."""
    try:
        if not source.is_file():
            raise ConversionError(f"{source} is not a file; give the path of an .onnx model")
        if target.exists() and source.samefile(target):
            raise ConversionError(f"{target} is the source itself, which the result would overwrite; give the target another name")
        with open(source, "rb") as file:
            start = file.read(8)
    except OSError as error:
        raise ConversionError(f"{source} can't be read: {error.strerror or error}") from error
    if start[4:] == b"MNNX":
        raise ConversionError(f"{source} is an .mnnx model already; mnnx converts from ONNX: give the .onnx file that it was made from")
    if source.suffix.lower() in _OTHER_FORMATS:
        way = (
            "load the module in Python and give that to mnnx.convert"
            if source.suffix.lower() in _PYTORCH
            else "export the model as .onnx first"
        )
        raise ConversionError(f"{source} is not an ONNX model; mnnx converts from ONNX: {way}")


def check_apart(target: Path, weights: Iterable[Path]) -> None:
    """Raises ConversionError where the result would overwrite one of the files in which the source has its weights."""
    for written in (target, sidecar_name(target)):
        for file in weights:
            if written.exists() and file.exists() and file.samefile(written):
                raise ConversionError(
                    f"{written} holds weights of the source, which the result would overwrite; give the target another name"
                )


def check_target(target: Path) -> None:
    """Raises ConversionError where it is plain before the work begins that the target can't be written, or would be taken for a source."""
    if target.suffix.lower() == ".onnx":
        raise ConversionError(f"{target} would look like an ONNX model, and what is written is an .mnnx one: call it {target.stem}.mnnx")
    if reason := _obstacle(target):
        raise ConversionError(f"{target} can't be written: {reason}")


def _obstacle(target: Path) -> str:
    try:
        if not target.parent.exists():
            return f"there is no folder {target.parent}"
        if not target.parent.is_dir():
            return f"{target.parent} is not a folder"
        if target.is_dir():
            return "it is a folder"
        if target.exists() and not target.is_file():
            return "it is a device or a pipe, not a file"
        if not os.access(target.parent, os.W_OK | os.X_OK):
            return f"Permission denied in the folder {target.parent}"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def name_of(source: Any) -> str:
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else type(source).__name__
