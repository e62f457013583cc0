"""Importers of the ops in schema/ops/shape.py."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import shape as ops

direct(ops.Shape, ops.Size, ops.Identity, ops.Flatten, ops.Expand, ops.Transpose, ops.DepthToSpace, ops.SpaceToDepth)


@importer("Reshape")
def reshape(node: OnnxNode, data: Value, shape: Value | None = None):
    if shape is None:  # opset 1 … 4
        shape = node.constant(node.attribute("shape", tuple[int, ...], ()), "int64")
    return node.add(node.op(ops.Reshape), data, shape)


@importer("Squeeze")
def squeeze(node: OnnxNode, data: Value, axes: Value | None = None):
    if axes is None and node.has("axes"):  # opset 1 … 12
        axes = node.constant(node.attribute("axes", tuple[int, ...]), "int64")
    return node.add(ops.Squeeze(), data, axes)


@importer("Unsqueeze")
def unsqueeze(node: OnnxNode, data: Value, axes: Value | None = None):
    if axes is None:  # opset 1 … 12
        axes = node.constant(node.attribute("axes", tuple[int, ...]), "int64")
    return node.add(ops.Unsqueeze(), data, axes)


@importer("Tile")
def tile(node: OnnxNode, data: Value, repeats: Value, axis: Value | None = None):
    if axis is None:
        return ops.Tile()
    # Opset 1 … 5: so many tiles along the one axis.
    if data.rank is None:
        node.fail("needs an input of known rank in opset 1 … 5; convert the model with onnx.version_converter first")
    counts = [1] * data.rank
    counts[int(node.value_of(axis, "axis").item())] = int(node.value_of(repeats, "tiles").item())
    return node.add(ops.Tile(), data, node.constant(counts, "int64"))


@importer("Concat")
def concat(node: OnnxNode, *inputs: Value):
    return ops.Concat(axis=node.attribute("axis", int, 1) if node.opset < 4 else node.attribute("axis", int))


@importer("Split")
def split(node: OnnxNode, data: Value, sizes: Value | None = None):
    if sizes is None and node.has("split"):  # opset 1 … 12
        sizes = node.constant(node.attribute("split", tuple[int, ...]), "int64")
    parts = len(node.output_names)
    if node.attribute("num_outputs", int, parts) != parts:
        node.fail(f"num_outputs is {node.attribute('num_outputs', int)}, but it has {parts} outputs")
    return node.add(ops.Split(num_outputs=parts, axis=node.attribute("axis", int, 0)), data, sizes, outputs=parts)
