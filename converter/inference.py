"""Shapes and dtypes in the converter: an op whose inputs are fully known is inferred exactly; elsewhere ONNX's own hints stand."""

from __future__ import annotations

from mnnx.converter.graph import Node, Value
from mnnx.errors import ConversionError
from mnnx.schema.ops.base import DataDependent, RuleError, Spec


def spec_of(value: Value) -> Spec | None:
    """The Spec of a value whose dtype and every dim are known, else None."""
    if value.kind != "tensor" or value.dtype is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return Spec(value.dtype, value.shape, value.constant)


def infer_node(node: Node) -> tuple[Spec | None, ...]:
    """The Specs of a node's outputs, which take over what they don't know yet; () where the inputs aren't known well enough."""
    specs = [None if value is None else spec_of(value) for value in node.inputs]
    if any(spec is None and value is not None for spec, value in zip(specs, node.inputs, strict=True)):
        return ()
    try:
        results = node.op.infer_all(*specs)
    except (DataDependent, RuleError):
        return ()  # a rule that is broken is reported where the node runs, with the shapes of that run
    except Exception as error:  # more or fewer inputs than the op has, attributes that fit no input
        raise ConversionError(f"node {node.name!r} ({node.op.name}) is broken: {error or type(error).__name__}") from error
    for value, spec in zip(node.outputs, results, strict=False):
        if value is not None and spec is not None:
            value.dtype = value.dtype if value.dtype is not None else spec.dtype
            value.shape = value.shape if value.shape is not None and all(isinstance(d, int) for d in value.shape) else spec.shape
    return results
