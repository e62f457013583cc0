"""Writes the shapes that a caller fixes into an ONNX model, before onnx infers what follows from them."""

from __future__ import annotations

import onnx

from mnnx.converter.computed_dims import computed_dim
from mnnx.converter.fixed_shapes import FixedShapes, Shape
from mnnx.converter.frontends.onnx.soundness import graphs
from mnnx.errors import ConversionError
from mnnx.schema.model import Dim, Range


def fix(model: onnx.ModelProto, fixed: FixedShapes) -> dict[str, Range]:
    """Changes the model's declared types; gives the ranges of the names of dims that stay open.

    A dim's name stands for one size in all graphs of a model (ONNX IR, "Static tensor shapes"). Raises ConversionError where `fixed`
    doesn't fit the inputs.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {info.name: info.type for info in model.graph.input if info.name not in weights}
    for name in fixed.shapes:
        if name in inputs and not inputs[name].HasField("tensor_type"):
            kind = (inputs[name].WhichOneof("value") or "value without a type").removesuffix("_type")
            raise ConversionError(f"the input {name!r} is a {kind}, which has no shape")
    tensors = {name: proto.tensor_type for name, proto in inputs.items() if proto.HasField("tensor_type")}
    declared = {name: _shape(tensor) for name, tensor in tensors.items()}
    settled = fixed.settle(declared)
    names = {dim for shape in declared.values() for dim in shape or () if isinstance(dim, str)}
    for graph in graphs(model.graph):
        for info in [*graph.input, *graph.output, *graph.value_info]:
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_param in settled.renamed:
                    _set_dim(dim, settled.renamed[dim.dim_param])
                elif (new := computed_dim(dim.dim_param, settled.renamed, names)) != dim.dim_param:
                    _set_dim(dim, new)
    for name, shape in settled.shapes.items():
        if shape is not None:
            _set_shape(tensors[name], shape)
    return settled.ranges


def _shape(tensor: onnx.TypeProto.Tensor) -> Shape | None:
    if not tensor.HasField("shape"):
        return None
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else d.dim_param or None for d in tensor.shape.dim)


def _set_shape(tensor: onnx.TypeProto.Tensor, shape: Shape) -> None:
    tensor.shape.ClearField("dim")
    tensor.shape.SetInParent()
    for dim in shape:
        _set_dim(tensor.shape.dim.add(), dim)


def _set_dim(proto: onnx.TensorShapeProto.Dimension, dim: Dim) -> None:
    proto.Clear()
    if isinstance(dim, int):
        proto.dim_value = dim
    elif dim is not None:
        proto.dim_param = dim
