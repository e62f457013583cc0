"""Einsums as products: equal to NumPy's einsum, and which ops there are then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mnnx

#: equation → shapes, the ops that are left
EQUATIONS = {
    "ij->ji": ([(3, 4)], {"Transpose": 1}),
    "ij->i": ([(3, 4)], {"ReduceSum": 1}),
    "ijk->ki": ([(3, 4, 5)], {"ReduceSum": 1, "Transpose": 1}),
    "ij->ij": ([(3, 4)], {"Identity": 1}),
    "i,j->ij": ([(3,), (4,)], {"Mul": 1, "Unsqueeze": 1}),
    "i,j->ji": ([(3,), (4,)], {"Mul": 1, "Unsqueeze": 1}),
    "bi,bi->bi": ([(3, 4), (3, 4)], {"Mul": 1}),
    ",ij->ij": ([(), (2, 3)], {"Mul": 1}),
    "ij,jk->ik": ([(3, 4), (4, 5)], {"MatMul": 1}),
    "ij,kj->ik": ([(3, 4), (5, 4)], {"MatMul": 1, "Transpose": 1}),
    "ij,jk->ki": ([(3, 4), (4, 5)], {"MatMul": 1, "Transpose": 1}),
    "bhqd,bhkd->bhqk": ([(2, 3, 4, 5), (2, 3, 6, 5)], {"MatMul": 1, "Transpose": 1}),
    "bhqk,bkhd->bqhd": ([(2, 3, 4, 6), (2, 6, 3, 5)], {"MatMul": 1, "Transpose": 2}),
    "bhwc,hkc->bhwk": ([(2, 3, 4, 5), (3, 6, 5)], {"MatMul": 1, "Transpose": 1}),
    "bhwc,wkc->bhwk": ([(2, 3, 4, 5), (4, 6, 5)], {"MatMul": 1, "Transpose": 3}),
    "bd,dhk->hbk": ([(2, 6), (6, 3, 5)], {"MatMul": 1, "Transpose": 1}),
    "bhd,dk->bkh": ([(2, 3, 6), (6, 5)], {"MatMul": 1, "Transpose": 1}),
    "btd,dhk->bthk": ([(2, 4, 6), (6, 3, 5)], {"MatMul": 1, "Reshape": 2}),
    "bhqd,hde->bqe": ([(2, 3, 4, 5), (3, 5, 6)], {"MatMul": 1, "Transpose": 1, "Reshape": 2}),
    "i,i": ([(5,), (5,)], {"MatMul": 1, "Unsqueeze": 2, "Squeeze": 1}),
    "ij,j->i": ([(3, 5), (5,)], {"MatMul": 1, "Unsqueeze": 1, "Squeeze": 1}),
    "j,jk->k": ([(5,), (5, 4)], {"MatMul": 1, "Unsqueeze": 1, "Squeeze": 1}),
    "aij,jkb->ik": ([(2, 3, 4), (4, 5, 6)], {"ReduceSum": 2, "MatMul": 1}),
    "...ij,...jk": ([(2, 3, 4), (5, 1, 4, 2)], {"MatMul": 1}),
    "...ij,jk->...ki": ([(2, 1, 3, 4), (4, 5)], {"MatMul": 1, "Transpose": 1}),
    "bij,bjk->ikb": ([(1, 3, 4), (6, 4, 5)], {"MatMul": 1, "Transpose": 1}),
    "bijm,bjmk->bik": ([(1, 3, 4, 2), (6, 4, 2, 5)], {"MatMul": 1, "Reshape": 2}),
    "ij,jk->ijk": ([(3, 4), (4, 5)], {"Mul": 1, "Unsqueeze": 1}),
    "ii->i": ([(4, 4)], {"Einsum": 1}),
    "ij,jk->ik of another size": ([(3, 1), (4, 5)], {"Einsum": 1}),
    "ij,jk,kl->il": ([(2, 3), (3, 4), (4, 5)], {"Einsum": 1}),
}
#: equation → shapes with open dims, shapes that are fed, the ops that are left
OPEN = {
    "bhqd,bhkd->bhqk": ([("b", 3, "q", 5), ("b", 3, "k", 5)], [(2, 3, 4, 5), (2, 3, 6, 5)], {"MatMul": 1, "Transpose": 1}),
    "btd,dhk->bthk": ([("b", "t", "d"), ("d", 3, 5)], [(2, 4, 6), (6, 3, 5)], {"MatMul": 1, "Reshape": 2}),
    "bqhd,hde->bqe": ([(None, None, 3, 5), (3, 5, 6)], [(2, 4, 3, 5), (3, 5, 6)], {"MatMul": 1, "Reshape": 2}),
    "ij,jk->ik": ([("i", "j"), ("k", "l")], [(3, 4), (4, 5)], {"Einsum": 1}),
    "ij,jk->ik of any": ([(None, None), (None, None)], [(3, 4), (4, 5)], {"Einsum": 1}),
    "btd,dhk->bthk of open heads": (
        [("b", "t", "d"), ("d", "h", 5)],
        [(2, 4, 6), (6, 3, 5)],
        {"MatMul": 1, "Transpose": 2, "Unsqueeze": 1},
    ),
    "bhqd,hde->bqe": ([(2, "h", 3, "d"), ("h", "d", 4)], [(2, 2, 3, 5), (2, 5, 4)], {"Einsum": 1}),
}


def _model(equation: str, shapes: list[tuple]) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in zip(names, shapes, strict=True)]
    graph = helper.make_graph([node], "main", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _check(equation: str, shapes: list[tuple], fed: list[tuple], left: dict[str, int], path: Path) -> None:
    rng = np.random.default_rng(len(equation))
    feed = {f"x{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(fed)}
    report = mnnx.convert(_model(equation, shapes), path)
    wanted = np.einsum(equation, *(value.astype(np.float64) for value in feed.values()))
    with mnnx.Interpreter.from_file(path) as interpreter:
        np.testing.assert_allclose(interpreter.create_session().run(feed)["y"], wanted, rtol=1e-5, atol=1e-5)
    assert report.ops_after == left


@pytest.mark.parametrize("name", EQUATIONS)
def test_an_einsum_is_what_it_comes_to(name: str, tmp_path: Path) -> None:
    shapes, left = EQUATIONS[name]
    _check(name.partition(" of ")[0], shapes, shapes, left, tmp_path / "m.mnnx")


@pytest.mark.parametrize("name", OPEN)
def test_an_einsum_of_open_dims_is_what_it_comes_to(name: str, tmp_path: Path) -> None:
    _check(name.partition(" of ")[0], *OPEN[name], tmp_path / "m.mnnx")


def test_attention_is_found_in_einsums(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        main (float[b, 3, l, 8] q, float[b, 3, m, 8] k, float[b, 3, m, 6] v) => (float[b, 3, l, 6] y) <float scale = {0.35}>
        { s = Einsum<equation = "bhid,bhjd->bhij">(q, k) t = Mul(s, scale) p = Softmax<axis = -1>(t)
          y = Einsum<equation = "bhij,bhjd->bhid">(p, v) }"""
    )
    assert mnnx.convert(model, tmp_path / "m.mnnx").ops_after == {"mnnx::FusedAttention": 1}
