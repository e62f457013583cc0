"""JSON as the value of an input: what the dtype can't hold is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mnnx.errors import InputError
from mnnx.tools.json_values import parse


@pytest.mark.parametrize(
    ("text", "dtype", "wanted"),
    [
        ("16000", np.int64, 16000),
        ("16000.0", np.int32, 16000),
        ("[9007199254740993]", np.int64, [9007199254740993]),
        ("[[1, 2], [3, 4]]", np.uint8, [[1, 2], [3, 4]]),
        ("[]", np.int64, []),
        ("[]", np.float32, []),
        ("[-8, 7]", ml_dtypes.int4, [-8, 7]),
        ("[0.1, 2]", np.float32, np.float32([0.1, 2])),
        ("[NaN, -Infinity]", np.float16, [np.nan, -np.inf]),
        ("[true, 0]", np.bool_, [True, False]),
        ('["a", "Ü"]', object, ["a", "Ü"]),
        ("1.5", ml_dtypes.bfloat16, 1.5),
    ],
)
def test_values_that_fit(text: str, dtype: type, wanted: object) -> None:
    value = parse(text, "x", np.dtype(dtype))
    assert value.dtype == dtype
    np.testing.assert_array_equal(value, np.array(wanted, dtype))


@pytest.mark.parametrize(
    ("text", "dtype", "why"),
    [
        ("16000.5", np.int64, "16000.5 is not a whole number"),
        ("[1, NaN]", np.int32, "nan is not a whole number"),
        ("[256]", np.uint8, "256 is outside of 0 … 255"),
        ("-1", np.uint64, "-1 is outside of 0"),
        ("1e30", np.int64, "is outside of"),
        ("8", ml_dtypes.int4, "8 is outside of -8 … 7"),
        ("true", np.int64, "true is not a number"),
        ("[1, [2]]", np.int64, "lists differ in length"),
        ("1e39", np.float32, "1e+39 is too large"),
        ("[70000]", np.float16, "70000 is too large"),
        ("[1, null]", np.float32, "null is not a number"),
        ('"1.5"', np.float32, '"1.5" is not a number'),
        ("2", np.bool_, "2 is neither true nor false"),
    ],
)
def test_values_that_dont_fit(text: str, dtype: type, why: str) -> None:
    with pytest.raises(InputError, match="is no value of") as error:
        parse(text, "x", np.dtype(dtype))
    assert why in str(error.value)


@pytest.mark.parametrize("text", ["nothing", "[" * 100_000])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(InputError, match="neither a file nor a JSON value"):
        parse(text, "x", np.dtype(np.float32))
