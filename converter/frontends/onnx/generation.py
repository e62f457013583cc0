"""Importers of the ops in schema/ops/generation.py, and of Constant."""

import numpy as np

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import generation as ops
from mnnx.schema.ops.cast import CastLike
from mnnx.schema.ops.shape import Identity, Shape

direct(ops.ConstantOfShape, ops.Range, ops.EyeLike, ops.Bernoulli, ops.Multinomial, ops.MelWeightMatrix)
direct(ops.RandomNormal, ops.RandomNormalLike, ops.RandomUniform, ops.RandomUniformLike)
direct(ops.HannWindow, ops.HammingWindow, ops.BlackmanWindow)

#: Attribute of Constant → its kind, and the dtype of the constant (None: the tensor's own).
_FORMS = {
    "value": (np.ndarray, None),
    "sparse_value": (np.ndarray, None),
    "value_float": (float, np.float32),
    "value_floats": (tuple[float, ...], np.float32),
    "value_int": (int, np.int64),
    "value_ints": (tuple[int, ...], np.int64),
    "value_string": (str, object),
    "value_strings": (tuple[str, ...], object),
}


@importer("Constant")
def constant(node: OnnxNode):
    given = [name for name in _FORMS if node.has(name)]
    if len(given) != 1:
        node.fail(f"needs one of the attributes {', '.join(_FORMS)}; found {', '.join(given) or 'none'}")
    kind, dtype = _FORMS[given[0]]
    return node.constant(node.attribute(given[0], kind), dtype)


@importer("Dropout")
def dropout(node: OnnxNode, x: Value, ratio: Value | None = None, training: Value | None = None):
    if training is not None and (training.constant is None or training.constant.any()):
        return node.op(ops.Dropout)
    if len(node.output_names) < 2 or not node.output_names[1]:
        return node.add(Identity(), x)
    kept = node.add(ops.ConstantOfShape(value=np.array([True])), node.add(Shape(), x))
    mask = kept if node.opset >= 10 else node.add(CastLike(), kept, x)
    return node.add(Identity(), x), mask
