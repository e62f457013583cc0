"""Rows of the ops in schema/ops/training.py."""

import numpy as np

from mnnx.schema.ops import training as ops
from tests.cases import case, f32

RATE = np.array(0.1, np.float32)
ADAM = ops.Adam(norm_coefficient=0.01, norm_coefficient_post=0.1)


def _adam(rate, count, x, gradient, mean, squares):
    gradient = gradient + ADAM.norm_coefficient * x
    mean = ADAM.alpha * mean + (1 - ADAM.alpha) * gradient
    squares = ADAM.beta * squares + (1 - ADAM.beta) * gradient**2
    if count:
        rate = rate * np.sqrt(1 - ADAM.beta**count) / (1 - ADAM.alpha**count)
    x = (x - rate * mean / (np.sqrt(squares) + ADAM.epsilon)) * (1 - ADAM.norm_coefficient_post)
    return tuple(result.astype(np.float32) for result in (x, mean, squares))


for count in (0, 3):
    step = np.array(count, np.int64)
    case(ops.Adagrad(decay_factor=0.1, norm_coefficient=0.01), RATE, step, f32(3), f32(3), f32(3, low=0.1), outputs=2)
    case(ADAM, RATE, step, f32(2), f32(2), f32(2), f32(2, low=0.1), outputs=3, reference=_adam)
    for mode in ("standard", "nesterov"):
        op = ops.Momentum(alpha=0.9, beta=0.8, mode=mode, norm_coefficient=0.01)
        case(op, RATE, step, f32(2, 3), f32(2, 3), f32(2, 3), outputs=2)
        case(op, RATE, step, f32(2), f32(3), f32(2), f32(3), f32(2), f32(3), outputs=4)
