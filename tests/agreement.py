"""When what an op gives agrees with what it must give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mnnx.schema import dtypes
from tests.cases import Case
from tests.op_model import reference

#: (rtol, atol for values around 1, which grows with the largest one) by dtype of the result; 8-bit and narrower floats must agree to
#: the last bit.
TOLERANCES = {
    np.dtype(np.float16): (2e-3, 2e-3),
    np.dtype(ml_dtypes.bfloat16): (2e-2, 2e-2),
    np.dtype(np.float32): (1e-4, 1e-5),
    np.dtype(np.float64): (1e-7, 1e-9),
    np.dtype(np.complex64): (1e-4, 1e-5),
}


def expected(case: Case) -> list[Any]:
    """What a row of the case table must give."""
    if case.reference is None:
        return reference(case.op, case.inputs, case.outputs)
    result = case.reference(*case.inputs)
    return list(result) if isinstance(result, tuple) else [result]


def assert_same(got: Any, wanted: Any, case: Case) -> None:
    """Fails where an output of a row isn't what it must be, within the row's tolerance."""
    if isinstance(wanted, list):
        assert isinstance(got, list)
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_same(one, other, case)
        return
    if isinstance(wanted, dict) or wanted is None:
        assert got == wanted
        return
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape
    if wanted.dtype.kind in "OSUT":
        assert got.astype(str).tolist() == wanted.astype(str).tolist()
        return
    assert got.dtype == wanted.dtype
    if dtypes.is_float(wanted.dtype) or wanted.dtype.kind == "c":
        rtol, atol = TOLERANCES.get(wanted.dtype, (0.0, 0.0))
        rtol = rtol if case.rtol is None else case.rtol
        atol = atol if case.atol is None else case.atol
        wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
        with np.errstate(invalid="ignore"):
            largest = np.max(np.abs(wanted.astype(wide)), initial=1.0, where=np.isfinite(wanted.astype(wide)))
        np.testing.assert_allclose(got.astype(wide), wanted.astype(wide), rtol, atol * largest)
    else:
        np.testing.assert_array_equal(got, wanted)
