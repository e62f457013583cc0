"""Models written as text, with weights for tests of passes."""

from __future__ import annotations

import numpy as np
import onnx

HEADER = '<ir_version: 11, opset_import: ["" : 23]>'


def filled(text: str) -> onnx.ModelProto:
    """The model with seeded positive weights for what the text declares without values."""
    model = onnx.parser.parse_model(HEADER + text)
    rng = np.random.default_rng(3)
    for info in model.graph.value_info:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.uniform(0.5, 1.5, shape).astype(np.float32), info.name))
    del model.graph.value_info[:]
    return model
