"""Feature preparation of ai.onnx.ml."""

import numpy as np

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
from tests.cases import case, f32, f64, i64, integers


def strings(*values):
    return np.array(values, object)


case(Scaler(offset=(0.5,), scale=(2.0,)), f32(4, 3))
case(
    Scaler(offset=(0.5, -1.0, 2.0), scale=(2.0, 0.5, 1.0)),
    integers("int64", 4, 3),
    reference=lambda x: ((x - np.array([0.5, -1, 2])) * np.array([2, 0.5, 1])).astype(np.float32),
)
case(Scaler(offset=(0.5,), scale=(2.0,)), f64(0, 3), reference=lambda x: np.zeros((0, 3), np.float32))

for norm in ("MAX", "L1", "L2"):
    x = f32(4, 3)
    x[2] = 0
    divisor = {
        "MAX": lambda x: x.max(1),
        "L1": lambda x: np.abs(x).sum(1),
        "L2": lambda x: np.sqrt((x**2).sum(1)),
    }[norm]
    case(Normalizer(norm=norm), x, reference=lambda x, d=divisor: x / np.where(d(x) == 0, 1, d(x))[:, None])

holes = f32(4, 3)
holes[::2, 1] = np.nan
case(Imputer(imputed_value_floats=(7.0,), replaced_value_float=float("nan")), holes)
case(Imputer(imputed_value_floats=(7.0, 8.0, 9.0), replaced_value_float=float("nan")), holes)
case(Imputer(imputed_value_int64s=(7, 8, 9), replaced_value_int64=1), integers("int64", 4, 3, high=3))

case(Binarizer(threshold=0.5), f32(3, 4))
case(Binarizer(threshold=4.0), integers("int32", 3, 4), reference=lambda x: (x > 4).astype(np.int32))

numbers = np.array([10, 20, 30], np.int64)
minus_one = np.array(-1, np.int64)
words = strings("b", "?", "a", "c").reshape(2, 2)
case(LabelEncoder(keys_strings=("a", "b", "c"), values_tensor=numbers, default_tensor=minus_one), words)
case(LabelEncoder(keys_strings=("a", "b"), values_strings=("x", "y")), np.array("b", object), reference=lambda x: np.array("y", object))
case(
    LabelEncoder(keys_tensor=np.array([1.5, np.nan, 2.5], np.float32), values_strings=("x", "y", "z")),
    np.array([2.5, np.nan, 3, 1.5], np.float32),
    reference=lambda x: strings("z", "y", "_Unused", "x"),
)
case(
    LabelEncoder(keys_tensor=np.array([3, 1, 3], np.int64), values_tensor=numbers, default_tensor=minus_one),
    i64(1, 2, 3),
    reference=lambda x: i64(20, -1, 30),
)
case(CategoryMapper(cats_int64s=(4, 5), cats_strings=("x", "y")), strings("y", "z", "x"), reference=lambda x: i64(5, -1, 4))
case(CategoryMapper(cats_int64s=(4, 5), cats_strings=("x", "y")), np.array(5), reference=lambda x: np.array("y", object))
case(CategoryMapper(cats_int64s=(4, 5), cats_strings=("x", "y")), i64(5, 6), reference=lambda x: strings("y", "_Unused"))
case(OneHotEncoder(cats_int64s=(2, 5, 7)), i64(5, 1, 2, 7))
case(OneHotEncoder(cats_strings=("a", "b")), words)
case(
    FeatureVectorizer(inputdimensions=(2, 4)),
    f32(3, 3),
    f32(3, 2),
    reference=lambda a, b: np.hstack([a[:, :2], b, np.zeros((3, 2), np.float32)]),
)
case(ArrayFeatureExtractor(), f32(3, 4), i64(3, 0))
case(ArrayFeatureExtractor(), f32(2, 3, 4), i64(1), reference=lambda x, i: x[..., 1:2])
case(ArrayFeatureExtractor(), strings("a", "b", "c"), i64(2, 2), reference=lambda x, i: strings("c", "c")[None])

case(ZipMap(classlabels_strings=("a", "b")), f32(2, 2), reference=lambda x: ([{"a": float(r[0]), "b": float(r[1])} for r in x],))
case(DictVectorizer(string_vocabulary=("a", "c", "b")), {"a": 4, "b": 8}, reference=lambda x: np.array([[4, 0, 8]]))
case(CastMap(), {2: 0.5, 0: 1.5}, reference=lambda x: np.array([[1.5, 0.5]], np.float32))
case(CastMap(map_form="SPARSE", max_map=4), {2: 0.5, 0: 1.5}, reference=lambda x: np.array([[1.5, 0, 0.5, 0]], np.float32))
