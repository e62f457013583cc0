"""Every row of the case table, on every backend of this machine, against the ONNX reference or the row's own."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mnnx
from mnnx.schema import dtypes
from mnnx.schema.writer import serialize
from tests.cases import CASES, Case, load_all
from tests.devices import GPU_BACKENDS, missing
from tests.op_model import model_of, reference

load_all()

#: (rtol, atol for values around 1, which grows with the largest one) by dtype of the result; 8-bit and narrower floats must agree to
#: the last bit.
TOLERANCES = {
    np.dtype(np.float16): (2e-3, 2e-3),
    np.dtype(ml_dtypes.bfloat16): (2e-2, 2e-2),
    np.dtype(np.float32): (1e-4, 1e-5),
    np.dtype(np.float64): (1e-7, 1e-9),
    np.dtype(np.complex64): (1e-4, 1e-5),
}


def _expected(case: Case) -> list[Any]:
    if case.reference is None:
        return reference(case.op, case.inputs, case.outputs)
    result = case.reference(*case.inputs)
    return list(result) if isinstance(result, tuple) else [result]


def _assert_same(got: Any, wanted: Any, case: Case) -> None:
    if isinstance(wanted, list):
        assert isinstance(got, list)
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            _assert_same(one, other, case)
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


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_op_agrees_with_its_reference(case: Case) -> None:
    _check(case, "cpu")


@pytest.mark.parametrize("backend", GPU_BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_op_agrees_with_its_reference_on_a_gpu(case: Case, backend: str) -> None:
    if reason := missing(backend):
        pytest.skip(reason)
    if not _check(case, backend):
        pytest.skip(f"{backend} leaves it to the CPU")


def _check(case: Case, backend: str) -> bool:
    """Whether any of it ran on the backend, where it agrees; otherwise it is left out."""
    constant = frozenset(i for i, value in enumerate(case.inputs) if isinstance(value, np.ndarray) and i > 0)
    wanted, used = None, False
    for constants in (frozenset(), constant):
        data = serialize(model_of(case.op, case.inputs, case.outputs, constants))
        with mnnx.Interpreter.from_bytes(data) as interpreter:
            session = interpreter.create_session(mnnx.ScheduleConfig(backend=backend, num_threads=1))
            if backend != "cpu" and not (session.is_planned and any(row.backend == backend for row in session.placement())):
                continue
            used = True
            feed = {f"i{i}": v for i, v in enumerate(case.inputs) if v is not None and i not in constants}
            results = session.run(feed)
        wanted = _expected(case) if wanted is None else wanted
        for index, value in enumerate(wanted[: case.outputs]):
            _assert_same(results[f"o{index}"], value, case)
    return used
