"""The ONNX project's own backend cases: node, simple and converted PyTorch models, with ONNX's tolerances."""

from __future__ import annotations

import onnx.backend.test

from tests.conformance.backend import MnnxBackend
from tests.conformance.known_failures import KNOWN_FAILURES

cases = onnx.backend.test.BackendTest(MnnxBackend, __name__)
for pattern in KNOWN_FAILURES:
    cases.exclude(pattern)
wanted = ("Node", "Simple", "PyTorchConverted", "PyTorchOperator")
for name, test_class in cases.test_cases.items():
    if any(f"Backend{kind}" in name for kind in wanted):
        for method in [m for m in vars(test_class) if m.endswith("_cuda")]:
            delattr(test_class, method)
        globals()[name] = test_class
