"""The order of steps: less memory where branches can be finished one by one, and the same results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mnnx.interpreter import ordering, placement

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


def test_more_branches_than_can_be_compared_are_finished_one_by_one_too(session_of, monkeypatch: pytest.MonkeyPatch) -> None:
    branches, orders = range(70), []
    layers = ("a{0} = Tile(x, wide)", "b{0} = Sin(a{0})", "c{0} = ReduceMean(b{0}, axes)")
    text = f"""<ir_version: 9, opset_import: ["" : 20]> agraph (float[8,32] x) => (float[1,1] y)
        <int64[2] wide = {{1, 100}}, int64[2] axes = {{0, 1}}>
        {{ {" ".join(layer.format(i) for layer in layers for i in branches)} y = Sum({", ".join(f"c{i}" for i in branches)}) }}"""
    greedy = ordering._Work.greedy
    monkeypatch.setattr(ordering._Work, "greedy", lambda work: orders.append(greedy(work)) or orders[-1])
    arena = session_of(text, level=0).info()["arena_bytes"]
    assert orders == [[]]
    in_given_order(monkeypatch)
    assert arena < session_of(text, level=0).info()["arena_bytes"] / 2


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
