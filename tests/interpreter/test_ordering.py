"""The order of steps: less memory where branches can be finished one by one, and the same results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mnnx.interpreter import placement
from mnnx.interpreter.ordering import best_order

#: Four branches that grow and shrink, layer by layer; and a chain.
BRANCHES = """<ir_version: 9, opset_import: ["" : 20]> agraph (float[64,32] x) => (float[1,1] y)
    <int64[2] wide = {1, 100}, int64[2] axes = {0, 1}>
    { a = Tile(x, wide) b = Tile(x, wide) c = Tile(x, wide) d = Tile(x, wide)
      e = Exp(a) f = Sin(b) g = Cos(c) h = Neg(d)
      p = ReduceMean(e, axes) q = ReduceMean(f, axes) r = ReduceMean(g, axes) s = ReduceMean(h, axes)
      t = Add(p, q) u = Add(r, s) y = Mul(t, u) }"""
CHAIN = """<ir_version: 9, opset_import: ["" : 20]> agraph (float[64,32] x) => (float[64,32] y)
    { a = Exp(x) b = Softmax(a) c = Sin(b) d = Softmax(c) y = Add(a, d) }"""


def in_given_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(values: object, steps: Sequence, *rest: object, **named: object) -> Sequence:
        return steps

    monkeypatch.setattr(placement, "best_order", keep)


@pytest.mark.parametrize(("text", "smaller"), [(BRANCHES, True), (CHAIN, False)])
def test_branches_are_finished_one_by_one(text: str, smaller: bool, session_of, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = {"x": np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)}
    found = []
    for given in (False, True):
        if given:
            in_given_order(monkeypatch)
        session = session_of(text, level=0)
        result = session.run(feed)["y"]
        found.append((result, session.info()["arena_bytes"], session.info()["arena_lower_bound_bytes"]))
    (result, arena, bound), (wanted, given_arena, given_bound) = found
    np.testing.assert_array_equal(result, wanted)
    if smaller:
        assert arena < given_arena / 2
        assert bound < given_bound / 2
    else:
        assert (arena, bound) == (given_arena, given_bound)


def test_random_numbers_are_drawn_in_the_models_order(session_of, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]> agraph (float[64,32] x) => (float[1,1] y)
        <int64[2] axes = {0, 1}>
        { a = RandomNormal<shape = [64, 99]>() b = RandomNormal<shape = [64, 99]>() c = RandomUniform<shape = [64, 99]>()
          e = Exp(a) f = Sin(b) g = Cos(c)
          r = ReduceMean(g, axes) p = ReduceMean(e, axes) q = ReduceMean(f, axes) t = Sub(p, q) y = Mul(t, r) }"""
    orders: list[list[str]] = []

    def watched(*args: object, **named: object) -> Sequence:
        steps = best_order(*args, **named)
        orders.append([step.node.op.name for step in steps if step.node.op.name.startswith("Random")])
        return steps

    monkeypatch.setattr(placement, "best_order", watched)
    session_of(text, level=0).run({"x": np.zeros((64, 32), np.float32)})
    assert orders == [["RandomNormal", "RandomNormal", "RandomUniform"]]


def test_each_op_runs_after_those_that_it_needs(session_of) -> None:
    session = session_of(BRANCHES, level=0)
    there = {"x"}

    def before(tensors: Sequence, op: object) -> bool:
        assert {tensor.name for tensor in tensors if tensor is not None and len(tensor.name) == 1} <= there
        return True

    def after(tensors: Sequence, op: object) -> bool:
        there.update(tensor.name for tensor in tensors if tensor is not None)
        return True

    assert session.run_with_callbacks(before, after, {"x": np.zeros((64, 32), np.float32)}) == 0
    assert there >= set("abcdefghpqrstuy")
