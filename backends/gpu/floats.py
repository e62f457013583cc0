"""The floats with which kernels compute on GPUs, and the reasons against other dtypes."""

from __future__ import annotations

import numpy as np

from mnnx.backends.backend import Specs
from mnnx.schema.ops.base import Op

FLOATS = frozenset({np.dtype("float32"), np.dtype("float16")})


def floats_only(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    """`supports` of ops whose first input says what they compute with."""
    return None if inputs[0].dtype in FLOATS else f"no kernel for {inputs[0].dtype}"


def one_float_only(op: Op, inputs: Specs, outputs: Specs) -> str | None:
    """`supports` of ops whose inputs and outputs all have one dtype."""
    dtypes = {spec.dtype for spec in (*inputs, *outputs) if spec is not None}
    return None if len(dtypes) == 1 and dtypes <= FLOATS else f"no kernel for {', '.join(sorted(map(str, dtypes)))}"
