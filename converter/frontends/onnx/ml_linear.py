"""Importers of ai.onnx.ml's linear models and support vector machines."""

from __future__ import annotations

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.base import Op
from mnnx.schema.ops.ml_linear import LinearClassifier, LinearRegressor, SVMClassifier, SVMRegressor


def _with_vectors(op_class: type[Op]) -> None:
    """Registers an op whose long lists of floats are arrays with us."""

    @importer(op_class.name.rpartition("::")[2], domain="ai.onnx.ml")
    def import_op(node: OnnxNode, x: Value) -> Op:
        arrays = {
            key: np.array(node.attribute(key, tuple[float, ...], ()), np.float32)
            for key in ("coefficients", "support_vectors")
            if key in op_class.fields
        }
        return node.op(op_class, **arrays)


for _op_class in (LinearClassifier, LinearRegressor, SVMClassifier, SVMRegressor):
    _with_vectors(_op_class)
