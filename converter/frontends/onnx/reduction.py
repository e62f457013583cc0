"""Importers of the ops in schema/ops/reduction.py."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops import reduction as ops

direct(ops.ArgMax, ops.ArgMin, ops.CumSum, ops.CumProd)

_REDUCTIONS = {
    op.name: op
    for op in (
        ops.ReduceSum,
        ops.ReduceMean,
        ops.ReduceProd,
        ops.ReduceMax,
        ops.ReduceMin,
        ops.ReduceL1,
        ops.ReduceL2,
        ops.ReduceSumSquare,
        ops.ReduceLogSum,
        ops.ReduceLogSumExp,
    )
}


@importer(*_REDUCTIONS)
def reduction(node: OnnxNode, data: Value, axes: Value | None = None):
    op = node.op(_REDUCTIONS[node.op_type])
    if axes is None and (given := node.attribute("axes", tuple[int, ...], ())):  # before opset 13 (ReduceSum) or 18
        axes = node.constant(given, "int64")
    return node.add(op, data, axes) if axes is not None else node.add(op, data)
