"""Broken models of five kinds are opened and run: each gives results or an MnnxError, within 10 s and 2 GiB.

Broken in their bytes, most are refused by the reader; broken in their meaning, they come through to inference and executions.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import mnnx
from tests import mutation
from tests.networks import feed_for
from tests.runnable_models import MODELS


@pytest.fixture(params=MODELS)
def path(request, tmp_path):
    mnnx.convert(MODELS[request.param](), tmp_path / "model.mnnx")
    return tmp_path / "model.mnnx"


@pytest.mark.parametrize("name", MODELS)
def test_the_sound_models_run_and_agree_with_onnxruntime(session_of, name):
    model = MODELS[name]()
    feed = feed_for(model, {"k": 2})
    if name == "loops":
        feed["n"] += 3
    reference = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session_of(model).run(feed)
    for info, wanted in zip(reference.get_outputs(), reference.run(None, feed), strict=True):
        if wanted.dtype == object:
            assert found[info.name].tolist() == wanted.tolist()
        else:
            atol = 0.051 if name == "quantized" else 1e-5  # one step of its quantization
            np.testing.assert_allclose(found[info.name], wanted, rtol=1e-4, atol=atol)


BYTES, MEANING = "tests.mutation:mutant", "tests.model_mutation:altered"


@pytest.mark.parametrize("mutate", [BYTES, MEANING], ids=["bytes", "meaning"])
def test_some_mutants(path, mutate):
    report = mutation.run(path, "tests.runnable_models:open_and_run", seed=7, count=300, mutate=mutate)
    assert not report.failures, report
    assert report.taken > 10
    assert report.refused > 10


@pytest.mark.slow
@pytest.mark.parametrize("mutate", [BYTES, MEANING], ids=["bytes", "meaning"])
def test_many_mutants(path, mutate):
    report = mutation.run(path, "tests.runnable_models:open_and_run", seed=8, count=2000, mutate=mutate)
    assert not report.failures, report
