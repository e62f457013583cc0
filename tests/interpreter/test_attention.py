"""Attention that a model writes out needs no memory for its scores."""

import numpy as np
import onnx
import pytest

MODEL = """<ir_version: 9, opset_import: ["" : 20]>
agraph (float[1,L,128] q, float[1,L,128] k, float[1,L,128] v) => (float[1,L,128] y)
<int64[4] heads = {0, 0, 4, 32}, int64[3] flat = {0, 0, 128}, float c = {5.65685}>
{ q4 = Reshape(q, heads)
  k4 = Reshape(k, heads)
  v4 = Reshape(v, heads)
  a = Transpose<perm = [0, 2, 1, 3]>(q4)
  b = Transpose<perm = [0, 2, 3, 1]>(k4)
  d = Transpose<perm = [0, 2, 1, 3]>(v4)
  s = MatMul(a, b)
  t = Div(s, c)
  p = Softmax<axis = -1>(t)
  o = MatMul(p, d)
  h = Transpose<perm = [0, 2, 1, 3]>(o)
  y = Reshape(h, flat) }"""


@pytest.mark.parametrize("threads", [1, 2])
def test_scores_of_long_sequences_are_not_planned(threads: int, session_of) -> None:
    length, rng = 1500, np.random.default_rng(2)
    feed = {name: rng.standard_normal((1, length, 128)).astype(np.float32) for name in "qkv"}
    session, plain = (session_of(onnx.parser.parse_model(MODEL), level=level, num_threads=threads) for level in (2, 1))
    np.testing.assert_allclose(session.run(feed)["y"], plain.run(feed)["y"], rtol=1e-4, atol=1e-5)
    scores = 4 * 4 * length * length
    assert plain.info()["arena_bytes"] > scores
    assert session.info()["arena_bytes"] < scores / 4
