"""Convolutions and matrix products with what follows them: bias, residual sum and activation in one op. The passes make these."""

from collections.abc import Sequence

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.convolution import Conv, ConvTranspose
from mnnx.schema.ops.matmul import matmul_shape
from mnnx.schema.ops.rules import require_floats, require_shape

#: Activations that a fused op can end in, each with its parameters: those of the ONNX op of the same name, if any, in ONNX's order.
ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "": (),
    "Relu": (),
    "Clip": ("low", "high"),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "ScaledHardSwish": ("scale", "shift"),  # scale * HardSwish(x) + shift, as mobile networks learn it
    "Sigmoid": (),
    "Swish": ("alpha",),
    "Tanh": (),
    "Elu": ("alpha",),
    "Gelu": (),  # exact: 0.5 * x * (1 + erf(x / sqrt(2)))
    "GeluTanh": (),  # Gelu with approximate="tanh"
    "Mish": (),
}


def check_activation(activation: str, parameters: tuple[float, ...]) -> None:
    """Raises RuleError for an unknown activation, or a wrong number of parameters."""
    require(activation in ACTIVATIONS, f"activation must be one of {', '.join(ACTIVATIONS)}; it is {activation!r}")
    wanted = ACTIVATIONS[activation]
    require(len(parameters) == len(wanted), f"{activation} takes the parameters ({', '.join(wanted)}); it has {list(parameters)}")


class Fused(Op):
    """An op that ends in an activation."""

    activation: str = ""
    activation_parameters: tuple[float, ...] = ()

    def check(self) -> None:
        super().check()
        check_activation(self.activation, self.activation_parameters)


class FusedConvolution(Fused):
    """Stands before the plain op among a class's bases; the residual has the result's shape."""

    def infer(self, x: Spec, w: Spec, bias: Spec | None = None, residual: Spec | None = None) -> Spec:
        result = super().infer(x, w, bias)
        require_floats(x=x, residual=residual)
        require_shape("residual", residual, result.shape)
        return result


@op("mnnx::FusedConv")
class FusedConv(FusedConvolution, Conv):
    """activation(Conv(x, w, bias) + residual)."""


@op("mnnx::FusedConvTranspose")
class FusedConvTranspose(FusedConvolution, ConvTranspose):
    """activation(ConvTranspose(x, w, bias) + residual)."""


@op("mnnx::FusedMatMul")
class FusedMatMul(Fused):
    """activation(alpha * a' @ b' + bias + residual); ' swaps the last two dims of an operand where its attribute says so.

    Floats of one dtype; bias [N] for N columns (of a result with columns), the residual of the result's shape.
    """

    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0

    def infer(self, a: Spec, b: Spec, bias: Spec | None = None, residual: Spec | None = None) -> Spec:
        require_floats(a=a, b=b, bias=bias, residual=residual)
        require(a.rank >= 2 or not self.transpose_a, f"a must be a matrix to be transposed; it is {a}")
        require(b.rank >= 2 or not self.transpose_b, f"b must be a matrix to be transposed; it is {b}")
        shape = matmul_shape(
            (*a.shape[:-2], *a.shape[:-3:-1]) if self.transpose_a else a.shape,
            (*b.shape[:-2], *b.shape[:-3:-1]) if self.transpose_b else b.shape,
        )
        require(b.rank >= 2 or bias is None, f"b must be a matrix where there is a bias; it is {b}")
        require_shape("bias", bias, shape[-1:])
        require_shape("residual", residual, shape)
        return Spec(a.dtype, shape)

    def flops(self, inputs: Sequence[Spec | None], outputs: Sequence[Spec | None]) -> int:
        return 2 * outputs[0].size * inputs[0].shape[-2 if self.transpose_a else -1]
