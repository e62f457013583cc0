"""Importers of ai.onnx.ml's feature preparation."""

from __future__ import annotations

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema import dtypes
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.ml_features import (
    ArrayFeatureExtractor,
    Binarizer,
    CastMap,
    CategoryMapper,
    DictVectorizer,
    FeatureVectorizer,
    Imputer,
    LabelEncoder,
    Normalizer,
    OneHotEncoder,
    Scaler,
    ZipMap,
)

DOMAIN = "ai.onnx.ml"

direct(ArrayFeatureExtractor, Binarizer, CastMap, CategoryMapper, DictVectorizer, FeatureVectorizer, Imputer, domain=DOMAIN)
direct(Normalizer, OneHotEncoder, domain=DOMAIN)


@importer("Scaler", domain=DOMAIN)
def scaler(node: OnnxNode, x: Value) -> Op:
    floats = tuple[float, ...]
    return Scaler(offset=node.attribute("offset", floats, (0.0,)), scale=node.attribute("scale", floats, (1.0,)))


@importer("ZipMap", domain=DOMAIN)
def zip_map(node: OnnxNode, x: Value):
    result = node.add(node.op(ZipMap), x)
    result.kind = "sequence"
    return result


@importer("LabelEncoder", domain=DOMAIN)
def label_encoder(node: OnnxNode, x: Value) -> Op:
    if node.opset < 2:
        return _by_position(node, x)
    keys_strings, keys = _list(node, "keys")
    values_strings, values = _list(node, "values")
    if node.opset < 4 and keys is not None and keys.dtype.kind == "f" and keys.size == len(values_strings if values is None else values):
        known = np.flatnonzero(~np.isnan(keys))  # a NaN is no key there: it equals nothing
        keys = keys[known]
        values_strings = tuple(values_strings[index] for index in known) if values is None else ()
        values = None if values is None else values[known]
    default = node.attribute("default_tensor", np.ndarray, None)
    default_string = node.attribute("default_string", str, "_Unused")
    if default is not None and default.dtype == dtypes.STRING:
        default, default_string = None, str(default.reshape(-1)[0])
    if values is None:
        default = None
    elif default is None:
        plain = node.attribute("default_float", float, -0.0) if values.dtype.kind == "f" else node.attribute("default_int64", int, -1)
        default = np.array(plain, values.dtype)
    return node.op(
        LabelEncoder,
        keys_strings=keys_strings,
        keys_tensor=keys,
        values_strings=values_strings,
        values_tensor=values,
        default_string=default_string,
        default_tensor=default,
    )


def _list(node: OnnxNode, name: str) -> tuple[tuple[str, ...], np.ndarray | None]:
    """The attributes keys_* or values_*: strings, or else an array."""
    tensor = node.attribute(f"{name}_tensor", np.ndarray, None)
    if tensor is not None:
        tensor = tensor.reshape(-1)
        return (tuple(tensor), None) if tensor.dtype == dtypes.STRING else ((), tensor)
    for kind, element, dtype in (("floats", float, np.float32), ("int64s", int, np.int64)):
        if node.has(f"{name}_{kind}"):
            return (), np.array(node.attribute(f"{name}_{kind}", tuple[element, ...]), dtype)
    return node.attribute(f"{name}_strings", tuple[str, ...]), None


def _by_position(node: OnnxNode, x: Value) -> Op:
    """LabelEncoder-1: a string stands for its position in classes_strings; the input's type says which way to map."""
    strings = node.attribute("classes_strings", tuple[str, ...])
    if x.dtype not in (dtypes.STRING, np.dtype(np.int64)):
        node.fail(f"its input must be known to be strings or int64; it is {dtypes.name(x.dtype)}")
    positions = np.arange(len(strings), dtype=np.int64)
    if x.dtype == dtypes.STRING:
        default = np.array(node.attribute("default_int64", int, -1), np.int64)
        return node.op(
            LabelEncoder, keys_strings=strings, keys_tensor=None, values_strings=(), values_tensor=positions, default_tensor=default
        )
    return node.op(LabelEncoder, keys_strings=(), keys_tensor=positions, values_strings=strings, values_tensor=None, default_tensor=None)
