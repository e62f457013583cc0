"""Losses whose parts lie in working memory."""

from __future__ import annotations

import numpy as np
import pytest

from mnnx.schema.ops.loss import NegativeLogLikelihoodLoss
from tests.backends.gpu.run import gpu, run


@pytest.mark.parametrize("precision", ["high", "low"])
@pytest.mark.parametrize("backend", ["opencl", "vulkan"])
def test_all_of_many_losses_count_whatever_the_scores_are_stored_as(backend: str, precision: str) -> None:
    scores = np.tile(np.array([[-0.5, -2.0]], np.float32), (5000, 1))
    labels = np.arange(5000) % 2
    ((_, (y,)),) = run(gpu(backend, precision), NegativeLogLikelihoodLoss(reduction="sum"), scores, labels)
    np.testing.assert_allclose(y, 6250, rtol=1e-3)
