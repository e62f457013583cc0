"""The page of cases, docs/operator-cases.md, has a row for each op, opset and element type that a case tests, and counts them all."""

from __future__ import annotations

from collections import Counter

import onnx
import pytest

from tests.op_cases import all_cases
from tests.op_table import BACKENDS, PAGE, read_columns, total


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_page_counts_the_cases_there_are(backend: str) -> None:
    wanted = Counter(case.key for case in all_cases())
    counted = {key: total(cell) for key, cell in read_columns(PAGE.read_text())[backend].items()}
    assert counted == wanted, "run: make op-table"


@pytest.mark.parametrize(("cell", "cases"), [("12", 12), ("9 + 3", 12), ("9 + 1 of 12", 12), ("0 of 2", 2)])
def test_cells_say_how_many_cases_there_are(cell: str, cases: int) -> None:
    assert total(cell) == cases


def test_every_opset_from_the_first_on_has_cases() -> None:
    assert set(range(1, onnx.defs.onnx_opset_version() + 1)) <= {case.opset for case in all_cases()}
