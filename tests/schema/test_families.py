"""What packages have for ops: found by class, in modules that are imported when they are needed."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mnnx.schema.ops.activation import Elu, Relu
from mnnx.schema.ops.families import Families
from mnnx.schema.ops.matmul import MatMul

SLOW = """
import time
from mnnx.schema.ops.activation import Relu
from tests.schema.test_families import FOUND
time.sleep(0.2)
FOUND.register([Relu], "a Relu's")
"""
FOUND: Families[str] = Families("families_of_a_test", "things")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "families_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "activation.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("families_of_a_test", "families_of_a_test.activation"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "tests.schema.test_families", sys.modules[__name__])


@pytest.mark.usefixtures("package")
def test_threads_that_ask_at_once_all_find_it() -> None:
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(FOUND.find, [Relu] * 4)) == ["a Relu's"] * 4
    assert FOUND.find(Elu) is None
    assert FOUND.find(MatMul) is None  # a family without a module


def test_an_op_has_one_of_each() -> None:
    found: Families[int] = Families("mnnx.schema", "numbers")
    found.register([Relu, Elu], 1)
    with pytest.raises(ValueError, match="two numbers for Relu"):
        found.register([Relu], 2)
