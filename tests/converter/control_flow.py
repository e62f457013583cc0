"""What tests of models with control flow share: all their ops, and their results beside onnxruntime's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnxruntime

import mnnx
from mnnx.schema.model import Graph


def check(model: onnx.ModelProto, session: mnnx.Session, feeds: list[dict]) -> None:
    """Runs feeds in a session, and asserts that each gives what onnxruntime gives unoptimized. A tuple is the shape of random values."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    reference = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for shapes in feeds:
        rng = np.random.default_rng(5)
        feed = {name: rng.uniform(-1, 1, s).astype(np.float32) if isinstance(s, tuple) else np.array(s) for name, s in shapes.items()}
        for got, wanted in zip(session.run(feed).values(), reference.run(None, feed), strict=True):
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def ops_of(graph: Graph) -> Counter[str]:
    """How often ops stand in a graph and its subgraphs."""
    found = Counter(node.op.name for node in graph.nodes)
    for node in graph.nodes:
        for key in node.op.fields:
            if isinstance(body := getattr(node.op, key), Graph):
                found += ops_of(body)
    return found
