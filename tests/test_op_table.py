"""The page of cases, docs/operator-cases.md, has a row for each op, opset and element type that a case tests.

Its numbers are those of the last `make op-table`.
"""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

from tests.conformance import known_failures
from tests.op_cases import all_cases
from tests.op_table import BACKENDS, PAGE, failed, read_columns, total


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_page_has_the_rows_of_the_cases_there_are(backend: str) -> None:
    rows = read_columns(PAGE.read_text())[backend].keys()
    assert rows == {case.key for case in all_cases()}, "run: make op-table OPS=…"


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_what_is_known_to_fail_fails(backend: str) -> None:
    known = Counter(case.key for case in all_cases() if known_failures.reason(case.name, backend))
    fails = Counter({key: failed(cell) for key, cell in read_columns(PAGE.read_text())[backend].items()})
    assert not fails - known, "run: python -m tests.op_table --failures FILE"


@pytest.mark.parametrize(("cell", "cases", "failures"), [("12", 12, 0), ("9 + 3", 12, 0), ("9 + 1 of 12", 12, 2), ("0 of 2", 2, 2)])
def test_cells_say_how_many_cases_there_are(cell: str, cases: int, failures: int) -> None:
    assert (total(cell), failed(cell)) == (cases, failures)


def test_every_opset_from_the_first_on_has_cases() -> None:
    assert set(range(1, onnx.defs.onnx_opset_version() + 1)) <= {case.opset for case in all_cases()}
