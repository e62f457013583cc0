"""NumPy executions of ai.onnx.ml's feature preparation."""

from __future__ import annotations

from typing import Any

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema import dtypes
from mnnx.schema.ops.base import require
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


@numpy_execution(Scaler)
def scaler(op: Scaler, x: np.ndarray) -> np.ndarray:
    offset, scale = np.array(op.offset, np.float32), np.array(op.scale, np.float32)
    with np.errstate(all="ignore"):
        return ((x.astype(np.float32) - offset) * scale).reshape(x.shape)


@numpy_execution(Normalizer)
def normalizer(op: Normalizer, x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float32)
    if not x.size:
        return x
    with np.errstate(all="ignore"):
        if op.norm == "MAX":
            divisor = x.max(-1, keepdims=True)
        elif op.norm == "L1":
            divisor = np.abs(x).sum(-1, keepdims=True)
        else:
            divisor = np.sqrt((x * x).sum(-1, keepdims=True))
        return np.where(divisor == 0, x, x / divisor)


@numpy_execution(Imputer)
def imputer(op: Imputer, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "i":
        return np.where(x == op.replaced_value_int64, np.array(op.imputed_value_int64s).astype(x.dtype), x).reshape(x.shape)
    replaced = x.dtype.type(np.float32(op.replaced_value_float))
    missing = np.isnan(x) if np.isnan(replaced) else x == replaced
    return np.where(missing, np.array(op.imputed_value_floats, np.float32).astype(x.dtype), x).reshape(x.shape)


@numpy_execution(Binarizer)
def binarizer(op: Binarizer, x: np.ndarray) -> np.ndarray:
    return np.asarray((x > op.threshold).astype(x.dtype))


def _looked_up(x: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """The index of each element of x among numeric keys (the last of equal ones; NaN equals NaN), -1 where it isn't among them."""
    if not keys.size:
        return np.full(x.shape, -1)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    at = np.maximum(np.searchsorted(ordered, x, side="right") - 1, 0)
    found = ordered[at]
    return np.where((found == x) | ((found != found) & (x != x)), order[at], -1)


def _looked_up_strings(x: np.ndarray, keys: tuple[str, ...]) -> np.ndarray:
    index = {key: i for i, key in enumerate(keys)}
    return np.array([index.get(element, -1) for element in x.reshape(-1)], np.int64).reshape(x.shape)


def _chosen(index: np.ndarray, values: np.ndarray, default: Any) -> np.ndarray:
    """values[index], the default where the index is -1."""
    table = np.empty(len(values) + 1, values.dtype)
    table[:-1], table[-1] = values, default
    return np.asarray(table[index])


def _strings(strings: tuple[str, ...]) -> np.ndarray:
    return np.array([*strings, ""], object)[:-1]


@numpy_execution(LabelEncoder)
def label_encoder(op: LabelEncoder, x: np.ndarray) -> np.ndarray:
    index = _looked_up_strings(x, op.keys_strings) if op.keys_tensor is None else _looked_up(x, op.keys_tensor)
    if op.values_tensor is None:
        return _chosen(index, _strings(op.values_strings), op.default_string).reshape(x.shape)
    return _chosen(index, op.values_tensor, op.default_tensor.reshape(()))


@numpy_execution(CategoryMapper)
def category_mapper(op: CategoryMapper, x: np.ndarray) -> np.ndarray:
    integers = np.array(op.cats_int64s, np.int64)
    if x.dtype == dtypes.STRING:
        return _chosen(_looked_up_strings(x, op.cats_strings), integers, op.default_int64)
    return _chosen(_looked_up(x, integers), _strings(op.cats_strings), op.default_string).reshape(x.shape)


@numpy_execution(OneHotEncoder)
def one_hot_encoder(op: OneHotEncoder, x: np.ndarray) -> np.ndarray:
    if op.cats_strings:
        index, count = _looked_up_strings(x, op.cats_strings), len(op.cats_strings)
    else:
        with np.errstate(all="ignore"):
            index, count = _looked_up(x.astype(np.int64), np.array(op.cats_int64s, np.int64)), len(op.cats_int64s)
    require(op.zeros or (index >= 0).all(), "the input has a category that isn't listed, and `zeros` is off")
    return (index[..., None] == np.arange(count)).astype(np.float32)


@numpy_execution(FeatureVectorizer)
def feature_vectorizer(op: FeatureVectorizer, *inputs: np.ndarray) -> np.ndarray:
    rows = 1 if inputs[0].ndim == 1 else inputs[0].shape[0]
    result = np.zeros((rows, sum(op.inputdimensions)), np.float32)
    start = 0
    for x, size in zip(inputs, op.inputdimensions, strict=True):
        flat = x[None] if x.ndim == 1 else x.reshape(rows, -1) if x.size else x.reshape(rows, 0)
        used = min(size, flat.shape[1])
        result[:, start : start + used] = flat[:, :used]
        start += size
    return result


@numpy_execution(ArrayFeatureExtractor)
def array_feature_extractor(op: ArrayFeatureExtractor, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    flat, count = indices.reshape(-1), x.shape[-1]
    require(((flat >= 0) & (flat < count)).all(), f"the indices must be 0 … {count - 1}")
    return np.take(x if x.ndim > 1 else x[None], flat, -1)


@numpy_execution(ZipMap)
def zip_map(op: ZipMap, x: np.ndarray) -> list[dict[Any, Any]]:
    labels = op.classlabels_strings or op.classlabels_int64s
    return [dict(zip(labels, row, strict=True)) for row in np.atleast_2d(x).tolist()]


@numpy_execution(DictVectorizer)
def dict_vectorizer(op: DictVectorizer, x: dict[Any, Any]) -> np.ndarray:
    vocabulary = op.string_vocabulary or op.int64_vocabulary
    example = next(iter(x.values()), 0.0)
    if isinstance(example, str):
        dtype = dtypes.STRING
    elif isinstance(example, float) and not isinstance(example, np.floating):
        dtype = np.dtype(np.float32)
    else:
        dtype = np.asarray(example).dtype
    return np.array([[x.get(word, "" if dtype == dtypes.STRING else 0) for word in vocabulary]], dtype)


@numpy_execution(CastMap)
def cast_map(op: CastMap, x: dict[int, Any]) -> np.ndarray:
    kind = {"TO_FLOAT": float, "TO_INT64": lambda value: int(float(value)), "TO_STRING": _text}[op.cast_to]
    if op.map_form == "DENSE":
        return np.array([kind(x[key]) for key in sorted(x)], op.dtype)[None]
    require(all(0 <= key < op.max_map for key in x), f"the keys of a map must be 0 … {op.max_map - 1}; they are {sorted(x)[:10]}")
    values = np.full(op.max_map, "0.f" if op.dtype == dtypes.STRING else 0, op.dtype)
    for key, value in x.items():
        values[key] = kind(value)
    return values[None]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:f}"
