"""Native Resize against the NumPy execution, which the case table checks against ONNX."""

import numpy as np
import pytest

from mnnx.backends.cpu.numpy_executions import registry
from mnnx.schema.ops.resize import Resize
from tests.backends.cpu.run import cpu, run

RNG = np.random.default_rng(9)
BACKEND = cpu(2)


@pytest.mark.parametrize("shape", [(2, 3, 17, 23), (5, 9), (13,)])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("transformation", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode, transformation, antialias, shape):
    if antialias and mode == "nearest":
        pytest.skip("only interpolation antialiases")
    x = RNG.uniform(-1, 1, shape).astype(np.float32)
    op = Resize(mode=mode, coordinate_transformation_mode=transformation, antialias=antialias)
    for scales in ((2, 2), (1.7, 0.6), (1, 3), (0.5, 0.5)):
        scales = np.array([1, 1, *scales][-len(shape) :], np.float32)
        kind, (result,) = run(BACKEND, op, x, None, scales)
        assert kind != "HostExecution"
        np.testing.assert_allclose(result, registry.run(op, [x, None, scales, None])[0], rtol=1e-5, atol=2e-6)


def test_other_dims_run_with_numpy():
    x = RNG.uniform(-1, 1, (4, 5, 6)).astype(np.float32)
    kind, (result,) = run(BACKEND, Resize(mode="linear"), x, None, np.array([2, 1, 1], np.float32))
    assert kind == "HostExecution"
    assert result.shape == (8, 5, 6)
