"""mnnx: neural network inference on small machines.

    mnnx.convert("model.onnx", "model.mnnx")
    session = mnnx.Interpreter.from_file("model.mnnx").create_session()
    outputs = session.run({"x": array})

Names are loaded when they are first used, so that `import mnnx` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "BackendConfig": "mnnx.interpreter.config",
    "BackendError": "mnnx.errors",
    "BackendUnavailable": "mnnx.errors",
    "CVMatrix": "mnnx.interpreter.cv_matrix",
    "ConversionError": "mnnx.errors",
    "ConversionReport": "mnnx.converter.report",
    "ExtractionReport": "mnnx.converter.report",
    "ImageProcess": "mnnx.interpreter.image_process",
    "ImageProcessConfig": "mnnx.interpreter.image_process",
    "InputError": "mnnx.errors",
    "Interpreter": "mnnx.interpreter.interpreter",
    "LimitExceeded": "mnnx.errors",
    "Limits": "mnnx.interpreter.config",
    "MnnxError": "mnnx.errors",
    "ModelFormatError": "mnnx.errors",
    "Op": "mnnx.schema.ops.base",
    "OperatorInfo": "mnnx.interpreter.unit",
    "Placement": "mnnx.interpreter.unit",
    "ScheduleConfig": "mnnx.interpreter.config",
    "Session": "mnnx.interpreter.session",
    "SessionStateError": "mnnx.errors",
    "Spec": "mnnx.schema.ops.base",
    "Tensor": "mnnx.interpreter.tensor",
    "ThreadTeam": "mnnx.interpreter.thread_team",
    "UnknownName": "mnnx.errors",
    "UnsupportedOperator": "mnnx.errors",
    "convert": "mnnx.converter.convert",
    "extract": "mnnx.converter.extract",
    "importer": "mnnx.converter.frontends.onnx.registry",
    "numpy_execution": "mnnx.backends.cpu.numpy_executions.registry",
    "op": "mnnx.schema.ops.base",
    "register_backend": "mnnx.backends.backend",
    "require": "mnnx.schema.ops.base",
    "version": "mnnx.interpreter.pymnn",
}
# The constants of PyMNN's API (docs/pymnn.md).
_HOME |= dict.fromkeys(
    (
        *("Halide_Type_Double", "Halide_Type_Float", "Halide_Type_Int", "Halide_Type_Int64", "Halide_Type_String", "Halide_Type_Uint8"),
        *("Tensor_DimensionType_Caffe", "Tensor_DimensionType_Caffe_C4", "Tensor_DimensionType_Tensorflow"),
    ),
    "mnnx.interpreter.pymnn_tensor",
)
_HOME |= dict.fromkeys(
    (
        *("CVImageProcess", "CV_Filter_BICUBIC", "CV_Filter_BILINEAL", "CV_Filter_BILINEAR", "CV_Filter_NEAREST"),
        *("CV_ImageFormat_BGR", "CV_ImageFormat_BGRA", "CV_ImageFormat_GRAY", "CV_ImageFormat_HSV", "CV_ImageFormat_RGB"),
        *("CV_ImageFormat_RGBA", "CV_ImageFormat_YUV_I420", "CV_ImageFormat_YUV_NV12", "CV_ImageFormat_YUV_NV21"),
        *("CV_Wrap_CLAMP_TO_EDGE", "CV_Wrap_REPEAT", "CV_Wrap_ZERO"),
    ),
    "mnnx.interpreter.pymnn_image",
)

__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mnnx' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
