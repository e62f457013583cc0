"""Products and convolutions of bytes on GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mnnx.backends.backend import Specs, Tensors
from mnnx.backends.gpu.constants import WINDOW_DIMS
from mnnx.backends.gpu.device import Memory
from mnnx.backends.gpu.epilogue import activation_params
from mnnx.backends.gpu.execution import GpuExecution
from mnnx.backends.gpu.executions.byte_sums import firsts, packed_bytes, record_sums, steps_of_sums, sums_kernel
from mnnx.backends.gpu.floats import FLOATS
from mnnx.backends.gpu.kernel import Kernel, kernel
from mnnx.backends.gpu.steps import nested
from mnnx.backends.tensor import DeviceTensor
from mnnx.schema.ops.base import Op, Spec
from mnnx.schema.ops.fused import Fused
from mnnx.schema.ops.fused_quantization import FusedQLinearMatMul
from mnnx.schema.ops.quantization import BYTES, Operands, as_conv

_FLOAT32, _INT32 = np.dtype("float32"), np.dtype("int32")
_STORAGES = {np.dtype("int8"): "char", np.dtype("uint8"): "uchar", _INT32: "int"}


def supports_product(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    a, a_zero, b, b_zero, scales, y_zero, _ = Operands.of(op, inputs)
    if {a.dtype, b.dtype, outputs[0].dtype} - set(BYTES) - {_INT32}:
        return "only int8 and uint8 have kernels"
    if a.rank < 2 or b.rank < 2:
        return "no kernels for vectors"
    if any(spec is not None and spec.size != 1 and spec.rank > 1 for spec in (a_zero, b_zero, *scales, y_zero)):
        return "no kernels for scales and zero points per matrix"
    return _reason_against(scales)


def has_constants(inputs: Specs) -> bool:
    """Whether all but the matrices and a's zero point is known, and a has one scale."""
    known = all(spec is None or spec.value is not None for spec in (inputs[1], *inputs[4:]))
    return known and inputs[1].size == 1


def supports_fused_product(op: FusedQLinearMatMul, inputs: Specs, outputs: Specs) -> str | None:
    if not has_constants(inputs):
        return "its scales, zero points, bias and addend must be constant, a's scale a single one"
    return supports_product(op, inputs[:8], [inputs[7]])  # y has its zero point's dtype


def _reason_against(scales: Specs) -> str | None:
    dtypes = {spec.dtype for spec in scales}
    return None if dtypes <= FLOATS and len(dtypes) < 2 else "no kernels for such scales"


class QuantizedExecution(GpuExecution):
    """Constant scales are read as float32 whatever the precision."""

    def scale_storage(self, scales: Sequence[Spec | DeviceTensor]) -> str:
        known = all((scale.value if isinstance(scale, Spec) else scale.constant) is not None for scale in scales)
        return "float" if known else self.backend.storage(scales[0].dtype)

    def scales(self, scales: Sequence[DeviceTensor]) -> list[DeviceTensor | Memory]:
        if any(scale.constant is None for scale in scales):
            return list(scales)
        return [self.backend.table(scale.constant.astype(_FLOAT32)) for scale in scales]


class SumsExecution(GpuExecution):
    """MatMulInteger."""

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        a, b, _, b_zero = (*inputs, None, None)[:4]
        return [sums_kernel(self.backend, a, b, b_zero)]

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        return packed_bytes(self.backend, inputs[1])

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        a, b, _, b_zero = (*inputs, None, None)[:4]
        return steps_of_sums(self.backend, a, b, b_zero)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        (a, b, a_zero, b_zero), y = (*inputs, None, None)[:4], outputs[0]
        if y.spec.size:
            record_sums(self.backend, a, a_zero, b, b_zero, y, y.shape)


class FinishedProductExecution(GpuExecution):
    """FusedQLinearMatMul, and QLinearMatMul where it `has_constants`: sums in int32, in working memory, then what follows."""

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        a, _, _, b, _, b_zero = inputs[:6]
        return [sums_kernel(self.backend, a, b, b_zero), finish_kernel(self.backend, outputs[0])]

    def largest_piece(self, inputs: Specs, outputs: Specs) -> int:
        return max(packed_bytes(self.backend, inputs[3]), self.scratch_bytes(inputs, outputs))

    def scratch_bytes(self, inputs: Specs, outputs: Specs) -> int:
        return 4 * outputs[0].size

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        a, _, _, b, _, b_zero = inputs[:6]
        return steps_of_sums(self.backend, a, b, b_zero)

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch: DeviceTensor | None) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero, bias, addend, scale, zero = (*inputs, *[None] * 4)[:12]
        backend, (y,) = self.backend, outputs
        if not y.spec.size:
            return
        record_sums(backend, a, a_zero, b, b_zero, scratch, y.shape)
        of_a, of_b, of_y = (tensor.constant.reshape(-1).astype(_FLOAT32) for tensor in (a_scale, b_scale, y_scale))
        last = None if scale is None else _range(scale, zero)
        record_finish(backend, self.op, scratch, y, of_a * of_b / of_y, bias, addend, rounded=_range(y_scale, y_zero), quantized=last)


def finish_kernel(backend, y: Spec | DeviceTensor) -> Kernel:
    return kernel("quantization.finish", result=backend.storage(y.dtype))


def record_finish(
    backend,
    op: Op,
    sums: DeviceTensor,
    y: DeviceTensor,
    factors: np.ndarray,
    bias: DeviceTensor | None = None,
    addend: DeviceTensor | None = None,
    multiplier: DeviceTensor | None = None,
    rounded: tuple[float, float, float, float] | None = None,
    quantized: tuple[float, float, float, float] | None = None,
) -> None:
    """What follows a product's sums (int32 of y's shape, not empty), see the kernel. The multiplier has y's storage where y is floats;
    rounded, quantized: `_range` of what they are rounded to on the way and at the end."""
    one = np.ones(1, np.float16 if backend.storage(y.dtype) == "half" else _FLOAT32)
    buffers = [
        sums,
        bias or sums,
        backend.table(factors),
        sums if addend is None else backend.table(addend.constant),
        multiplier or backend.table(one),
        y,
    ]
    unused = (1.0, 0.0, 0.0, 0.0)
    params = [y.spec.size, y.shape[-1], int(bias is not None), int(addend is not None), int(factors.size > 1)]
    params += [int(rounded is not None), int(quantized is not None), *(rounded or unused), *(quantized or unused)]
    fused = isinstance(op, Fused)
    params += activation_params(op.activation, op.activation_parameters) if fused else activation_params("", ())
    backend.commands.record(finish_kernel(backend, y), buffers, params, params[:1])


def _range(scale: DeviceTensor, zero: DeviceTensor) -> tuple[float, float, float, float]:
    """Scale and zero point, and the lowest and highest value of the zero point's dtype."""
    info = np.iinfo(zero.dtype)
    return float(scale.constant.item()), float(zero.constant.item()), float(info.min), float(info.max)


class ProductExecution(QuantizedExecution):
    """QLinearMatMul, an element at a time."""

    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        return nested(Operands.of(self.op, inputs).x.shape[-1])

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [self.kernel_for(inputs, outputs)]

    def kernel_for(self, inputs: Specs | Tensors, outputs: Specs | Tensors) -> Kernel:
        a, _, b, _, scales, *_ = Operands.of(self.op, inputs)
        a, b, y = (_STORAGES[tensor.dtype] for tensor in (a, b, outputs[0]))
        return kernel("quantization.product", a=a, b=b, result=y, scale=self.scale_storage(scales))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        a, a_zero, b, b_zero, scales, y_zero, _ = Operands.of(self.op, inputs)
        y = outputs[0]
        if not y.spec.size:
            return
        rows, columns, depth = *y.shape[-2:], a.shape[-1]
        items = self.backend.table(firsts(a.shape, b.shape, y.shape[:-2]).astype(np.int32))
        buffers = [a, a_zero, b, b_zero, items, *self.scales(scales), y_zero, y]
        params = [y.spec.size, rows, columns, depth, *(int(part.spec.size > 1) for part in (a_zero, b_zero, *scales[:2]))]
        self.backend.commands.record(self.kernel_for(inputs, outputs), buffers, params, params[:1])


def supports_convolution(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    x, _, w, _, scales, *_ = Operands.of(op, inputs)
    if {x.dtype, w.dtype, outputs[0].dtype} - _STORAGES.keys():
        return "only int8 and uint8 have kernels"
    if reason := _reason_against(scales):
        return reason
    return f"more than {WINDOW_DIMS} spatial dims" if x.rank > 2 + WINDOW_DIMS else None


class ConvolutionExecution(QuantizedExecution):
    def loop_steps(self, inputs: Specs, outputs: Specs) -> int:
        w = Operands.of(self.op, inputs).w
        return nested(w.shape[1], *(1,) * (WINDOW_DIMS + 2 - w.rank), *w.shape[2:])

    def kernels(self, inputs: Specs, outputs: Specs) -> Sequence[Kernel]:
        return [self.kernel_for(inputs, outputs)]

    def kernel_for(self, inputs: Specs | Tensors, outputs: Specs | Tensors) -> Kernel:
        x, _, w, _, scales, *_ = Operands.of(self.op, inputs)
        x, w, y = (_STORAGES[tensor.dtype] for tensor in (x, w, outputs[0]))
        return kernel("quantization.convolution", x=x, w=w, result=y, scale=self.scale_storage(scales))

    def on_resize(self, inputs: Tensors, outputs: Tensors, scratch) -> None:
        x, x_zero, w, w_zero, scales, y_zero, bias = Operands.of(self.op, inputs)
        y, table = outputs[0], self.backend.table
        if not y.spec.size:
            return
        g = as_conv(self.op).geometry(x.shape, w.shape)
        more = WINDOW_DIMS - len(g.input)
        rows = ((g.input, 1), (g.kernel, 1), (g.strides, 1), (g.dilations, 1), (g.begin, 0), (g.output, 1))
        buffers = [x, x_zero or table(np.zeros(1, x.dtype)), w, w_zero or table(np.zeros(1, w.dtype)), bias or table(np.zeros(1, np.int32))]
        params = [y.spec.size, w.shape[0], self.op.group, w.shape[1], *(n for values, n1 in rows for n in (*(n1,) * more, *values))]
        params += [int(w_zero is not None and w_zero.spec.size > 1), int(bias is not None)]
        if scales:
            buffers += [*self.scales(scales), y_zero]
            params.append(int(scales[1].spec.size > 1))
        self.backend.commands.record(self.kernel_for(inputs, outputs), [*buffers, y], params, params[:1])
