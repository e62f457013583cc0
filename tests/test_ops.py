"""Every row of the case table, on every backend of this machine, against the ONNX reference or the row's own."""

from __future__ import annotations

import numpy as np
import pytest

import mnnx
from mnnx.schema.writer import serialize
from tests.agreement import assert_same, expected
from tests.cases import CASES, Case, load_all
from tests.devices import GPU_BACKENDS, missing
from tests.op_model import model_of

load_all()


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
        wanted = expected(case) if wanted is None else wanted
        for index, value in enumerate(wanted[: case.outputs]):
            assert_same(results[f"o{index}"], value, case)
    return used
