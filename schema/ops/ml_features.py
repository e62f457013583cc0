"""Feature preparation of ai.onnx.ml: scaling, filling in, encoding of categories, and maps."""

import numpy as np

from mnnx.schema import dtypes
from mnnx.schema.ops.axes import require_integers
from mnnx.schema.ops.base import DataDependent, Op, Spec, op, require
from mnnx.schema.ops.elementwise import STRING, require_dtype
from mnnx.schema.ops.ml_trees import NUMBERS

_FLOAT, _INT64 = np.dtype("float32"), np.dtype("int64")
_SCALARS = (*NUMBERS, STRING)


def _require_per_feature(count: int, x: Spec, what: str) -> None:
    features = x.shape[-1] if x.rank else 1
    require(count in (1, features), f"{what} must have one entry, or one per feature ({features}); it has {count}")


@op("ai.onnx.ml::Scaler")
class Scaler(Op):
    """(x - offset) * scale in float32; one value each, or one per feature (last axis). Scaler-1."""

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def infer(self, x: Spec) -> Spec:
        require_dtype(x, NUMBERS)
        _require_per_feature(len(self.offset), x, "offset")
        _require_per_feature(len(self.scale), x, "scale")
        return Spec(_FLOAT, x.shape)


@op("ai.onnx.ml::Normalizer")
class Normalizer(Op):
    """Rows of x [N, C] or [C], divided by their maximum, sum of magnitudes or length, where that isn't 0; float32. Normalizer-1."""

    norm: str = "MAX"

    def check(self):
        require(self.norm in ("MAX", "L1", "L2"), f"norm must be MAX, L1 or L2; it is {self.norm!r}")

    def infer(self, x: Spec) -> Spec:
        require_dtype(x, NUMBERS)
        require(x.rank in (1, 2), f"the input must have the shape [N, C] or [C]; it is {x}")
        return Spec(_FLOAT, x.shape)


@op("ai.onnx.ml::Imputer")
class Imputer(Op):
    """x with elements equal to the replaced value (NaN equals NaN) set to the imputed one; one, or one per feature. Imputer-1.

    Of both, the float attributes belong to float inputs, the int64 ones to integer inputs.
    """

    imputed_value_floats: tuple[float, ...] = ()
    imputed_value_int64s: tuple[int, ...] = ()
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def check(self):
        limits = (*self.imputed_value_int64s, self.replaced_value_int64)
        require(all(-(2**63) <= v < 2**63 for v in limits), "integer values must fit in 64 bits")

    def infer(self, x: Spec) -> Spec:
        require_dtype(x, NUMBERS)
        values = self.imputed_value_int64s if x.dtype.kind == "i" else self.imputed_value_floats
        _require_per_feature(len(values), x, f"the imputed values for {x.dtype}")
        return Spec(x.dtype, x.shape)


@op("ai.onnx.ml::Binarizer")
class Binarizer(Op):
    """1 where x > threshold, else 0, in x's dtype. Binarizer-1."""

    threshold: float = 0.0

    def infer(self, x: Spec) -> Spec:
        require_dtype(x, NUMBERS)
        return Spec(x.dtype, x.shape)


@op("ai.onnx.ml::LabelEncoder")
class LabelEncoder(Op):
    """Maps each element that is the i-th key to the i-th value, others to the default. LabelEncoder-4.

    Keys, values and default are strings, or the tensors keys_tensor and values_tensor (1-D) and default_tensor (one element).
    NaN keys match any NaN; of equal keys the last one counts.
    """

    keys_strings: tuple[str, ...] = ()
    keys_tensor: np.ndarray | None = None
    values_strings: tuple[str, ...] = ()
    values_tensor: np.ndarray | None = None
    default_string: str = "_Unused"
    default_tensor: np.ndarray | None = None

    def check(self):
        for name, array in (("keys", self.keys_tensor), ("values", self.values_tensor)):
            strings = getattr(self, f"{name}_strings")
            require((array is None) == bool(strings), f"{name} must be given as strings or as a tensor, not as both or neither")
            require(array is None or (array.ndim == 1 and array.dtype.kind in "if"), f"{name} must be a vector of numbers")
        values = self.values_tensor
        keys = len(self.keys_strings) if self.keys_tensor is None else self.keys_tensor.size
        count = len(self.values_strings) if values is None else values.size
        require(keys == count, f"there must be as many values as keys; there are {count} for {keys}")
        if values is not None:
            default = self.default_tensor
            legal = default is not None and default.size == 1 and default.dtype == values.dtype
            require(legal, f"default_tensor must be one value of dtype {values.dtype}")

    def infer(self, x: Spec) -> Spec:
        expected = STRING if self.keys_tensor is None else self.keys_tensor.dtype
        require(x.dtype == expected, f"the input must be {dtypes.name(expected)}, as the keys are; it is {dtypes.name(x.dtype)}")
        return Spec(STRING if self.values_tensor is None else self.values_tensor.dtype, x.shape)


@op("ai.onnx.ml::CategoryMapper")
class CategoryMapper(Op):
    """Strings to integers or integers to strings, by two lists of equal length. CategoryMapper-1."""

    cats_int64s: tuple[int, ...]
    cats_strings: tuple[str, ...]
    default_int64: int = -1
    default_string: str = "_Unused"

    def check(self):
        require(len(self.cats_int64s) == len(self.cats_strings), "cats_int64s and cats_strings must have the same length")
        require(all(-(2**63) <= v < 2**63 for v in (*self.cats_int64s, self.default_int64)), "integers must fit in 64 bits")

    def infer(self, x: Spec) -> Spec:
        require_dtype(x, (STRING, _INT64))
        return Spec(_INT64 if x.dtype == STRING else STRING, x.shape)


@op("ai.onnx.ml::OneHotEncoder")
class OneHotEncoder(Op):
    """Each element becomes a float32 row with a 1 at its category; unknown ones a row of zeros, or an error (`zeros` off). OneHotEncoder-1.

    Numbers are cut to integers and looked up among cats_int64s.
    """

    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    zeros: bool = True

    def check(self):
        require(bool(self.cats_int64s) != bool(self.cats_strings), "categories must be given as strings or as integers")
        require(all(-(2**63) <= v < 2**63 for v in self.cats_int64s), "integers must fit in 64 bits")

    def infer(self, x: Spec) -> Spec:
        require_dtype(x, (STRING,) if self.cats_strings else NUMBERS)
        return Spec(_FLOAT, (*x.shape, len(self.cats_strings or self.cats_int64s)))


@op("ai.onnx.ml::FeatureVectorizer")
class FeatureVectorizer(Op):
    """The inputs [N, …] (or [C]: one row), each flattened to rows and cut or zero-padded to its size, side by side. FeatureVectorizer-1."""

    inputdimensions: tuple[int, ...]

    def check(self):
        require(all(size >= 0 for size in self.inputdimensions), f"inputdimensions must not be negative: {self.inputdimensions}")

    def infer(self, *inputs: Spec) -> Spec:
        require(0 < len(inputs) == len(self.inputdimensions), f"there must be {len(self.inputdimensions)} inputs, not {len(inputs)}")
        for x in inputs:
            require_dtype(x, NUMBERS)
            require(x.rank >= 1, f"inputs must not be scalars; one is {x}")
        rows = {1 if x.rank == 1 else x.shape[0] for x in inputs}
        require(len(rows) == 1, f"the inputs must have the same number of rows; they have {sorted(rows)}")
        return Spec(_FLOAT, (rows.pop(), sum(self.inputdimensions)))


@op("ai.onnx.ml::ArrayFeatureExtractor")
class ArrayFeatureExtractor(Op):
    """x[..., indices] with the indices flattened; a vector x gives one row. ArrayFeatureExtractor-1."""

    def infer(self, x: Spec, indices: Spec) -> Spec:
        require_dtype(x, _SCALARS)
        require_integers(indices, "the indices")
        require(x.rank >= 1, f"the input must not be a scalar; it is {x}")
        return Spec(x.dtype, (*(x.shape[:-1] or (1,)), indices.size))


@op("ai.onnx.ml::ZipMap")
class ZipMap(Op):
    """x [N, C] (or [C]) → a list of N dicts from the C labels to the values of a row. ZipMap-1."""

    classlabels_int64s: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()

    def infer(self, x: Spec) -> Spec:
        labels = len(self.classlabels_strings or self.classlabels_int64s)
        require(x.rank in (1, 2) and x.shape[-1] == labels, f"the input must have {labels} columns, one per label; it is {x}")
        raise DataDependent


@op("ai.onnx.ml::DictVectorizer")
class DictVectorizer(Op):
    """A dict → [1, V] with the value of each of the V words of the vocabulary, 0 (or "") where the dict lacks it. DictVectorizer-1."""

    int64_vocabulary: tuple[int, ...] = ()
    string_vocabulary: tuple[str, ...] = ()

    def check(self):
        require(bool(self.int64_vocabulary) != bool(self.string_vocabulary), "the vocabulary must be strings or integers")


@op("ai.onnx.ml::CastMap")
class CastMap(Op):
    """A dict with integer keys → its values ordered by key [1, n] (DENSE), or placed at their keys in [1, max_map] (SPARSE). CastMap-1."""

    cast_to: str = "TO_FLOAT"
    map_form: str = "DENSE"
    max_map: int = 1

    def check(self):
        known = ("TO_FLOAT", "TO_STRING", "TO_INT64")
        require(self.cast_to in known, f"cast_to must be one of {', '.join(known)}; it is {self.cast_to!r}")
        require(self.map_form in ("DENSE", "SPARSE"), f"map_form must be DENSE or SPARSE; it is {self.map_form!r}")
        require(self.map_form == "DENSE" or 0 < self.max_map < 2**31, f"max_map must be positive, below 2^31; it is {self.max_map}")

    @property
    def dtype(self) -> np.dtype:
        """That of the result."""
        return {"TO_FLOAT": _FLOAT, "TO_STRING": STRING, "TO_INT64": _INT64}[self.cast_to]

    def infer(self, x: Spec | None) -> Spec:
        if self.map_form == "DENSE":
            raise DataDependent
        return Spec(self.dtype, (1, self.max_map))
