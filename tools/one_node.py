"""A model of one node of an ONNX model, to run it by itself on given inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from mnnx.converter.frontends.onnx.order import used
from mnnx.schema import dtypes


def model_of_one_node(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Mapping[str, Any]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model that computes what `node` of the main graph does, and the feed for it.

    What the node and its subgraphs use are the model's inputs, but for initializers and results of Constant nodes, which stay so. Raises
    KeyError where `values` hasn't one of them, TypeError where one is no tensor.
    """
    graph = model.graph
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
    constants = {name: maker for maker in graph.node if maker.op_type == "Constant" for name in maker.output}
    one = onnx.ModelProto()
    one.CopyFrom(onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions))
    one.graph.name = graph.name
    feed: dict[str, np.ndarray] = {}
    for name in dict.fromkeys(used(node)):
        if name in initializers:
            one.graph.initializer.append(initializers[name])
        elif name in sparse:
            one.graph.sparse_initializer.append(sparse[name])
        elif name in constants:
            one.graph.node.append(constants[name])
        elif name:
            if not isinstance(values[name], np.ndarray | np.generic):
                raise TypeError(f"{name!r} is a {type(values[name]).__name__}")
            feed[name] = np.asarray(values[name])
            one.graph.input.append(onnx.helper.make_tensor_value_info(name, dtypes.to_code(feed[name].dtype), feed[name].shape))
    one.graph.node.append(node)
    one.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    return one, feed
