"""Random valid ONNX models for property tests, with inputs and the reference's outputs.

Each node is computed by ONNX's reference implementation when it is added, so that shapes are known, and what would overflow, or grow too
large, isn't added. It is computed twice, the second time with what rounding could have made of its inputs: a node whose result depends on
that (a Floor near a whole number, a division by next to nothing) isn't added either. What is left must be the same at all levels.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OPSET = 23
#: Relative errors that every result is given for the second computation.
NOISE = 2e-6
LARGEST = 100.0
MOST_ELEMENTS = 3000
MOST_INPUTS = 5


@dataclass
class Case:
    """A model, a feed, and what the outputs must be."""

    model: onnx.ModelProto
    feed: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]

    def __repr__(self) -> str:
        return f"{onnx.printer.to_text(self.model)}\nfed with { ({name: (a.dtype.name, a.shape) for name, a in self.feed.items()}) }"


class Rejected(Exception):
    """A node whose result is too large, not finite, or not to be told for rounding."""


class Network:
    """A graph as it grows, by choices of `random`."""

    def __init__(self, random: np.random.Generator):
        self.random = random
        self.values: dict[str, np.ndarray] = {}
        self.noisy: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}
        self.initializers: dict[str, np.ndarray] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.used: set[str] = set()

    # ---- what there is
    def one_of(self, *options: Any) -> Any:
        return options[self.between(0, len(options) - 1)]

    def between(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def often(self) -> bool:
        return self.between(0, 1) == 1

    def draw_from(self, things: list[Any]) -> Any:
        return things[self.between(0, len(things) - 1)]

    def draw_order(self, count: int) -> list[int]:
        return self.random.permutation(count).tolist()

    def tensor(self, fits: Callable[[np.ndarray], bool] = lambda a: True, kinds: str = "f", *, new: tuple[int, ...] | None = None) -> str:
        """A tensor that was made before, mostly one of the latest; where none fits, an input of the shape `new`."""
        names = [name for name, a in self.values.items() if a.dtype.kind in kinds and fits(a)]
        if not names and new is not None and len(self.inputs) < MOST_INPUTS:
            return self.input(self.array(*new, scale=2.0))
        if not names:
            raise Rejected("no tensor fits")
        return names[-1 - min(self.between(0, 5), len(names) - 1)]

    def array(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self.random.uniform(-1, 1, shape) * scale).astype(np.float32)

    def array_of(self, name: str) -> np.ndarray:
        return self.values[name] if name in self.values else self.initializers[name]

    # ---- what is added
    def input(self, array: np.ndarray) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = array
        self._put(name, array, array)
        return name

    def constant(self, array: Any, dtype: Any = None) -> str:
        """An initializer, or a Constant node."""
        array = np.asarray(array, dtype)
        name = f"c{len(self.initializers)}"
        self.initializers[name] = array
        return name

    def shape(self, *sizes: int) -> str:
        return self.constant(sizes, np.int64)

    def node(self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", most: float = LARGEST, **attributes: Any) -> Any:
        """Adds a node, with floats up to `most`; returns the name of its output, or their names."""
        names = [f"t{len(self.nodes)}_{i}" if outputs > 1 else f"t{len(self.nodes)}" for i in range(outputs)]
        node = helper.make_node(op_type, list(inputs), names, f"{op_type}_{len(self.nodes)}", domain=domain, **attributes)
        results = self._compute(node, self.values)
        noisy = self._compute(node, self.noisy)
        for exact, other in zip(results, noisy, strict=True):
            _check(exact, other, most)
        self.nodes.append(node)
        self.used.update(inputs)
        for name, exact, other in zip(names, results, noisy, strict=True):
            self._put(name, exact, self._with_noise(other))
        return names[0] if outputs == 1 else names

    def _compute(self, node: onnx.NodeProto, values: dict[str, np.ndarray]) -> list[np.ndarray]:
        given = {name: values[name] for name in _uses(node) if name in values}
        model = self._model([node], given, dict.fromkeys(node.output))
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(a) for a in ReferenceEvaluator(model).run(None, given)]
        except Exception as error:  # the reference has faults of its own (Softsign of a scalar)
            raise Rejected("the reference fails") from error

    def _with_noise(self, array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f" or not array.size:
            return array
        return (array + self.random.uniform(-1, 1, array.shape) * NOISE * np.abs(array).max()).astype(array.dtype)

    def _put(self, name: str, exact: np.ndarray, noisy: np.ndarray) -> None:
        self.values[name], self.noisy[name] = exact, noisy

    # ---- the end
    def _model(
        self,
        nodes: list[onnx.NodeProto],
        inputs: dict[str, np.ndarray],
        outputs: dict[str, Any],
        name_dim: Callable[[str, int], Any] | None = None,
    ) -> onnx.ModelProto:
        used = {name for node in nodes for name in _uses(node)} | set(outputs)
        graph = helper.make_graph(
            nodes,
            "random",
            [_info(name, a, name_dim) for name, a in inputs.items()],
            [onnx.ValueInfoProto(name=name) if a is None else _info(name, a, name_dim) for name, a in outputs.items()],
            [numpy_helper.from_array(a, name) for name, a in self.initializers.items() if name in used],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)

    def case(self) -> Case:
        """The model, whose outputs are the tensors that nobody uses, and perhaps others."""
        made = [name for node in self.nodes for name in node.output]
        if not made:
            made = [self.node("Identity", next(iter(self.inputs)))]
        unused = [name for name in made if name not in self.used] or made[-1:]
        wanted = unused[: 1 + self.between(0, len(unused) - 1)] if self.between(0, 3) == 0 else unused  # what others need is dead code
        if self.often():
            wanted.append(self.draw_from(made))
        outputs = {name: self.values[name] for name in dict.fromkeys(wanted)}
        open_dims = self.often()
        model = self._model(self.nodes, self.inputs, outputs, (lambda name, axis: f"{name}_{axis}") if open_dims else None)
        return Case(model, self.inputs, outputs)


def _info(name: str, array: np.ndarray, name_dim: Callable[[str, int], Any] | None) -> onnx.ValueInfoProto:
    shape = [size if name_dim is None or axis % 2 else name_dim(name, axis) for axis, size in enumerate(array.shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def _uses(node: onnx.NodeProto) -> set[str]:
    """What a node reads, its branches included."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        if attribute.HasField("g"):
            inner = attribute.g
            made = {name for n in inner.node for name in n.output} | {i.name for i in inner.input}
            names |= {name for n in inner.node for name in _uses(n)} | {o.name for o in inner.output}
            names -= made
    return names


def _check(exact: np.ndarray, noisy: np.ndarray, most: float) -> None:
    """Raises Rejected where a result isn't fit for a comparison."""
    if exact.size > MOST_ELEMENTS or exact.ndim > 5 or exact.shape != noisy.shape:
        raise Rejected("too large, or a shape that depends on rounding")
    if exact.dtype.kind not in "f":
        if (exact != noisy).any() or (exact.dtype.kind in "iu" and exact.size and np.abs(exact.astype(np.int64)).max() > 1 << 20):
            raise Rejected("depends on rounding, or overflows")
        return
    if not exact.size:
        return
    largest = np.abs(exact).max()
    if not np.isfinite(exact).all() or not np.isfinite(noisy).all() or largest > most:
        raise Rejected("too large")
    if np.abs(exact - noisy).max() > 1e-4 * largest + 1e-6:
        raise Rejected("depends on rounding")


def generator(draw: Callable[[st.SearchStrategy], Any]) -> np.random.Generator:
    """Evenly spread choices, which hypothesis' own aren't."""
    return np.random.default_rng(draw(st.uuids()).int)


@st.composite
def models(draw: Callable[[st.SearchStrategy], Any], most_nodes: int = 14) -> Case:
    """Random models, with the ops and patterns of `random_ops` and `random_products`. They shrink by leaving out steps."""
    from tests import random_products  # noqa: F401  (registers its steps)
    from tests.random_ops import STEPS

    random = generator(draw)
    net = Network(random)
    for _ in range(net.between(1, 3)):
        net.input(net.array(*net.one_of(image_shape, matrix_shape, sequence_shape, vector_shape)(net), scale=2.0))
    if net.between(0, 2) == 0:
        net.input(random.integers(-5, 6, (net.between(1, 6), 4)).astype(np.int64))
    kept = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=most_nodes, max_size=most_nodes))
    steps = [net.one_of(*STEPS) for _ in kept]
    for step, seed, is_kept in zip(steps, random.integers(0, 1 << 62, len(kept)).tolist(), kept, strict=True):
        if is_kept:
            net.random = np.random.default_rng(seed)
            with suppress(Rejected):
                step(net)
    return net.case()


def image_shape(net: Network) -> tuple[int, ...]:
    return net.between(1, 2), net.one_of(1, 3, 4, 8, 16), net.between(3, 8), net.between(3, 8)


def matrix_shape(net: Network) -> tuple[int, ...]:
    return net.between(1, 6), net.one_of(1, 4, 7, 16)


def sequence_shape(net: Network) -> tuple[int, ...]:
    return net.between(1, 2), net.between(1, 6), net.one_of(4, 8, 12)


def vector_shape(net: Network) -> tuple[int, ...]:
    return (net.between(1, 9),)
