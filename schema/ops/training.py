"""One step of an optimizer, for any number of tensors. ONNX ai.onnx.preview.training 1: Adagrad, Adam, Momentum."""

from typing import ClassVar

import numpy as np

from mnnx.schema.ops.base import Op, Spec, op, require
from mnnx.schema.ops.elementwise import require_dtype, require_inputs

_FLOATS = frozenset({np.dtype("float32"), np.dtype("float64")})


class Optimizer(Op):
    """Inputs: the learning rate (float scalar), the update count (int64 scalar), then the optimized tensors X, then their gradients,
    then for each of `states` its tensors. Results: the new X, then the new states."""

    states: ClassVar[int] = 1

    def groups(self, inputs) -> tuple:
        """The inputs behind the first two, in equal parts: X, gradients, states …"""
        parts = 2 + self.states
        require(len(inputs) > 2 and (len(inputs) - 2) % parts == 0, f"wants 2 inputs and {parts} per tensor; got {len(inputs)}")
        count = (len(inputs) - 2) // parts
        return tuple(tuple(inputs[2 + part * count : 2 + (part + 1) * count]) for part in range(parts))

    def infer(self, *inputs):
        require_inputs(inputs, len(inputs))
        tensors, *others = self.groups(inputs)
        rate, count = inputs[:2]
        require_dtype(rate, _FLOATS, "the learning rate")
        require(
            rate.size == count.size == 1 and count.dtype == np.dtype("int64"),
            f"R and T must be a float and an int64; found {rate}, {count}",
        )
        for part in (tensors, *others):
            for spec, x in zip(part, tensors, strict=True):
                require_dtype(spec, _FLOATS)
                require(
                    spec.dtype == x.dtype and spec.shape == x.shape, f"gradients and states must be like their tensor {x}; found {spec}"
                )
        return tuple(Spec(spec.dtype, spec.shape) for part in (tensors, *others[1:]) for spec in part)


@op("ai.onnx.preview.training::Adagrad")
class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan, Singer 2011); the state is the sum of squared gradients."""

    decay_factor: float = 0.0
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0


@op("ai.onnx.preview.training::Adam")
class Adam(Optimizer):
    """Adam (Kingma, Ba 2014); the states are the running averages of the gradient and of its square."""

    states = 2
    alpha: float = 0.9
    beta: float = 0.999
    epsilon: float = 1e-6
    norm_coefficient: float = 0.0
    norm_coefficient_post: float = 0.0


@op("ai.onnx.preview.training::Momentum")
class Momentum(Optimizer):
    """Gradient descent with momentum, `mode` standard or nesterov; the state is the momentum."""

    alpha: float
    beta: float
    mode: str
    norm_coefficient: float

    def check(self):
        require(self.mode in ("standard", "nesterov"), f"mode must be standard or nesterov; found {self.mode!r}")
