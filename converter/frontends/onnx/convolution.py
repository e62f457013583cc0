"""Conv, ConvTranspose, DeformConv, Col2Im, CausalConvWithState: the same in every opset."""

from mnnx.converter.frontends.onnx.node import OnnxNode
from mnnx.converter.frontends.onnx.registry import direct, importer
from mnnx.converter.graph import Value
from mnnx.schema.ops.convolution import CausalConvWithState, Col2Im, Conv, ConvTranspose, DeformConv

direct(DeformConv, Col2Im, CausalConvWithState)


def auto_pad(node: OnnxNode) -> str:
    """The attribute auto_pad; some exporters write an empty string for NOTSET."""
    return node.attribute("auto_pad", str, "NOTSET") or "NOTSET"


@importer("Conv")
def conv(node: OnnxNode, *_inputs: Value | None) -> Conv:
    return node.op(Conv, auto_pad=auto_pad(node))


@importer("ConvTranspose")
def conv_transpose(node: OnnxNode, x: Value, w: Value, bias: Value | None = None) -> ConvTranspose:
    output_shape = node.attribute("output_shape", tuple[int, ...], ())
    rank = w.rank or x.rank
    if rank is not None and len(output_shape) == rank:  # some exporters give N and C too
        output_shape = output_shape[2:]
    return node.op(ConvTranspose, auto_pad=auto_pad(node), output_shape=output_shape)
