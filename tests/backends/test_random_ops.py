"""Random ops: the right distribution, equal numbers for equal seeds, others without a seed."""

import numpy as np
import pytest

from mnnx.backends.cpu.numpy_executions import registry
from mnnx.schema.ops import RuleError
from mnnx.schema.ops import generation as ops

SHAPE = (100, 200)
LIKE = np.zeros(SHAPE, np.float32)


def run(op, *inputs):
    return registry.run(op, list(inputs))[0]


@pytest.mark.parametrize(
    ("op", "inputs", "mean", "deviation"),
    [
        (ops.RandomNormal(shape=SHAPE, mean=3.0, scale=2.0, seed=1.0), (), 3, 2),
        (ops.RandomNormalLike(mean=-1.0, scale=0.5, seed=1.0), (LIKE,), -1, 0.5),
        (ops.RandomUniform(shape=SHAPE, low=1.0, high=3.0, seed=1.0), (), 2, 2 / 12**0.5),
        (ops.RandomUniformLike(low=-1.0, high=1.0, seed=1.0), (LIKE,), 0, 2 / 12**0.5),
        (ops.Bernoulli(seed=1.0), (LIKE + np.float32(0.3),), 0.3, 0.21**0.5),
        (ops.Multinomial(sample_size=20000, seed=1.0), (np.log(np.array([[0.25, 0.5, 0.25]], np.float32)),), 1, 0.5**0.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_mean_and_deviation_are_those_asked_for(op, inputs, mean, deviation):
    drawn = run(op, *inputs).astype(np.float64)
    assert abs(drawn.mean() - mean) < 0.05
    assert abs(drawn.std() - deviation) < 0.05


@pytest.mark.parametrize("seed", [7.0, None])
def test_numbers_repeat_with_a_seed_and_only_then(seed):
    op = ops.RandomUniform(shape=(50,), seed=seed)
    assert np.array_equal(run(op), run(op)) == (seed is not None)


def test_dropout_in_training_keeps_the_mean_and_marks_what_it_dropped():
    ones = np.ones(SHAPE, np.float32)
    y, mask = registry.run(ops.Dropout(seed=3), [ones, np.array(0.25, np.float32), np.array(True)])
    assert abs(mask.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y, mask / np.float32(0.75), rtol=1e-6)


def test_dropout_refuses_to_drop_everything():
    with pytest.raises(RuleError, match="ratio"):
        registry.run(ops.Dropout(), [LIKE, np.array(1.0, np.float32), np.array(True)])
