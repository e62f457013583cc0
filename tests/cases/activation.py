"""Rows of the ops in schema/ops/activation.py."""

import numpy as np

from mnnx.schema.ops import activation as ops
from tests.cases import case, f16, f32, f64, integers

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.5, 100, -100], np.float32)

for op in (
    ops.Relu(),
    ops.LeakyRelu(),
    ops.LeakyRelu(alpha=0.3),
    ops.Elu(),
    ops.Elu(alpha=0.4),
    ops.Selu(),
    ops.Celu(alpha=2.0),
    ops.ThresholdedRelu(alpha=0.5),
    ops.HardSigmoid(),
    ops.HardSigmoid(alpha=0.6, beta=0.3),
    ops.HardSwish(),
    ops.Sigmoid(),
    ops.Softplus(),
    ops.Softsign(),
    ops.Gelu(),
    ops.Gelu(approximate="tanh"),
    ops.Mish(),
    ops.Swish(),
    ops.Swish(alpha=1.7),
    ops.Shrink(),
    ops.Shrink(lambd=0.3, bias=0.2),
):
    case(op, f32(2, 3, 5, low=-6, high=6), rtol=1e-5, atol=1e-6)
    case(op, f32(70, low=-20, high=20), rtol=1e-5, atol=1e-6)
    case(op, f32(0, 3))
    case(op, f32(1))
    case(op, f64(7), rtol=1e-6)  # attributes are float32 in ONNX
    case(op, f16(7, 1))
case(ops.Relu(), np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5], np.float32))
case(ops.Sigmoid(), SPECIAL)
case(ops.Relu(), f32())
case(ops.Sigmoid(), f32())
case(ops.Relu(), integers("int32", 9, low=-5, high=5))
case(ops.Relu(), integers("int8", 3, 3, low=-5, high=5))

case(ops.PRelu(), f32(2, 3, 4, 5), f32(3, 1, 1))
case(ops.PRelu(), f32(2, 3), f32(2, 3))
case(ops.PRelu(), f32(4), f32(1))
case(ops.PRelu(), f16(2, 3), f16(3))
case(ops.PRelu(), integers("int32", 2, 3, low=-5, high=5), integers("int32", 3))
case(ops.SwiGLU(), f32(2, 3, 4), f32(2, 3, 4))
case(ops.SwiGLU(alpha=1.7), f32(5), f32(5))

for op_class in (ops.Softmax, ops.LogSoftmax, ops.Hardmax):
    case(op_class(), f32(2, 3, 5))
    case(op_class(axis=0), f32(2, 3, 5))
    case(op_class(axis=1), f32(2, 33, 5))
    case(op_class(axis=-2), f32(2, 3, 5))
    case(op_class(), f32(4, 1000, low=-30, high=30))
    case(op_class(), f32(7))
    case(op_class(axis=1), f64(2, 3))
    case(op_class(), f16(3, 4))
    case(op_class(), f32(0, 3), reference=lambda x: x)
    case(op_class(), f32(3, 0), reference=lambda x: x)
    case(op_class(), np.array([[90, 90, 3], [0, 0, 0]], np.float32))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x.astype(np.float64) - x.max(-1, keepdims=True)
    return (shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))).astype(np.float32)


case(ops.LogSoftmax(), np.array([[1e6, 1e6], [-3e4, -29999.5]], np.float32), reference=_log_softmax)
case(ops.LogSoftmax(axis=0), np.array([[1e6, -3e4], [1e6, -29999.5]], np.float32), reference=lambda x: _log_softmax(x.T).T)
