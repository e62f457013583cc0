"""Sessions on two devices: a device of the test's own, which knows few ops, and the CPU behind it."""

from __future__ import annotations

import numpy as np
import pytest

import mnnx
from mnnx.backends import backend as backends
from mnnx.backends.cpu.backend import CpuBackend

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
TEXT = (
    HEAD
    + """g (float[n,4] x) => (float[n,4] y, float[n,4] z)
    { a = Exp(x) b = Neg(a) c = Relu(a) d = Add(b, c) e = Neg(d) y = Sqrt(c) z = Add(e, a) }"""
)


class Modest(CpuBackend):
    """Runs Neg and Relu; counts what is copied to it and from it."""

    name = "modest"
    copies: list[tuple[str, str]] = []  # noqa: RUF012

    def supports(self, op, inputs, outputs):
        return None if op.name in ("Neg", "Relu") else f"{op.name} is beyond it"

    def upload(self, array, tensor):
        self.copies.append(("in", tensor.name))
        super().upload(array, tensor)

    def download(self, tensor):
        self.copies.append(("out", tensor.name))
        return super().download(tensor)

    host_view = download


@pytest.fixture(autouse=True)
def modest(monkeypatch):
    monkeypatch.setitem(backends._BACKENDS, "modest", Modest)
    Modest.copies = []


def test_ops_that_a_device_doesnt_support_fall_back_and_say_why(session_of):
    session = session_of(TEXT, level=0, backend="modest")
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    result = session.run({"x": x})
    a = np.exp(x)
    np.testing.assert_allclose(result["y"], np.sqrt(a), rtol=1e-5)
    np.testing.assert_allclose(result["z"], a, rtol=1e-4, atol=1e-5)
    rows = {(row.op_type, row.backend, row.reason) for row in session.placement()}
    assert ("Neg", "modest", "") in rows
    assert ("Exp", "cpu", "modest: Exp is beyond it") in rows
    assert session.info()["backends"] == ["modest", "cpu"]


def test_a_tensor_crosses_once(session_of):
    session = session_of(TEXT, level=0, backend="modest")
    session.resize({"x": (3, 4)})
    Modest.copies.clear()
    session.run({"x": np.ones((3, 4), np.float32)})
    assert Modest.copies.count(("in", "a")) == 1
    assert Modest.copies.count(("out", "c")) == 1  # Add and Sqrt both read it


def test_many_shapes_on_two_devices(session_of):
    session = session_of(TEXT, level=0, backend="modest", num_threads=2)
    for rows in (1, 7, 0, 1):
        x = np.full((rows, 4), 0.5, np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], np.sqrt(np.exp(x)), rtol=1e-5)


def test_callbacks_see_the_device(session_of):
    seen = {}
    session = session_of(TEXT, level=0, backend="modest")
    session.run_with_callbacks(lambda t, i: None, lambda t, i: seen.update({i.type: i.backend}), {"x": np.ones((1, 4), np.float32)})
    assert (seen["Neg"], seen["Add"]) == ("modest", "cpu")


def test_without_a_backup_that_can_it_is_an_error(session_of):
    with pytest.raises(mnnx.BackendError, match=r"op '\w+' \(Exp\) runs on none of the session's backends: modest: Exp is beyond it"):
        session_of(TEXT, level=0, backend="modest", backup="modest").resize({"x": (1, 4)})


def test_a_backend_that_fails_to_open_releases_the_others(session_of, monkeypatch):
    released = []
    monkeypatch.setattr(Modest, "release", lambda self: released.append(self))
    with pytest.raises(mnnx.BackendUnavailable):
        session_of(TEXT, backend="modest", backup="nowhere")
    assert len(released) == 1
