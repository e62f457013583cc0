"""Optimizer steps in NumPy."""

from collections.abc import Callable

import numpy as np

from mnnx.backends.cpu.numpy_executions.registry import numpy_execution
from mnnx.schema.ops import training as ops


def _optimizer(op_class: type[ops.Optimizer]) -> Callable:
    """Registers a function (op, rate, count, x, gradient, *states) → (new x, *new states) for one tensor."""

    def register(step: Callable) -> Callable:
        def run(op: ops.Optimizer, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
            count = int(inputs[1].reshape(-1)[0])
            results = []
            with np.errstate(all="ignore"):
                for x, gradient, *states in zip(*op.groups(inputs), strict=True):
                    rate = x.dtype.type(inputs[0].reshape(-1)[0])
                    news = step(op, rate, count, x, op.norm_coefficient * x + gradient, *states)
                    results.append([np.asarray(new).astype(x.dtype, copy=False) for new in news])
            return tuple(new for part in zip(*results, strict=True) for new in part)

        numpy_execution(op_class)(run)
        return step

    return register


@_optimizer(ops.Adagrad)
def adagrad(op: ops.Adagrad, rate, count: int, x: np.ndarray, gradient: np.ndarray, squares: np.ndarray):
    squares = squares + gradient * gradient
    return x - rate / (1 + count * op.decay_factor) * gradient / (np.sqrt(squares) + op.epsilon), squares


@_optimizer(ops.Adam)
def adam(op: ops.Adam, rate, count: int, x: np.ndarray, gradient: np.ndarray, mean: np.ndarray, squares: np.ndarray):
    mean = op.alpha * mean + (1 - op.alpha) * gradient
    squares = op.beta * squares + (1 - op.beta) * gradient * gradient
    if count > 0:
        rate = rate * np.sqrt(1 - np.float64(op.beta) ** count) / (1 - np.float64(op.alpha) ** count)
    return (1 - op.norm_coefficient_post) * (x - rate * mean / (np.sqrt(squares) + op.epsilon)), mean, squares


@_optimizer(ops.Momentum)
def momentum(op: ops.Momentum, rate, count: int, x: np.ndarray, gradient: np.ndarray, velocity: np.ndarray):
    velocity = op.alpha * velocity + (op.beta if count > 0 else 1) * gradient
    return x - rate * (gradient + op.alpha * velocity if op.mode == "nesterov" else velocity), velocity
