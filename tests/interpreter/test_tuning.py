"""Sessions that tune, and what they keep in a cache file."""

from __future__ import annotations

import json
import logging
from collections import Counter

import numpy as np
import onnxruntime
import pytest

import mnnx
from mnnx import InputError
from tests.networks import Builder


def network():
    """Convolutions of every kind, a residual among them, and a product of matrices."""
    b = Builder(3)
    x = b.node("Relu", b.conv("x", 3, 24, 3, 2))
    y = b.node("Relu", b.conv(x, 24, 40))
    y = b.node("Relu", b.conv(y, 40, 40, 3))
    y = b.node("Relu", b.conv(y, 40, 40, 3, group=40))
    y = b.node("Relu", b.node("Add", b.conv(y, 40, 24), x))
    y = b.linear(b.node("Flatten", b.node("GlobalAveragePool", y)), 24, 10)
    return b.model({"x": (1, [1, 3, 28, 28])}, y, [1, 10])


FEED = {"x": np.random.default_rng(1).standard_normal((1, 3, 28, 28)).astype(np.float32)}
TUNED = {"num_threads": 2, "tune": True, "tune_seconds": 300}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """(path of the .mnnx file, onnxruntime's result)."""
    proto = network()
    path = tmp_path_factory.mktemp("tuning") / "network.mnnx"
    mnnx.convert(proto, path)
    reference = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return path, reference.run(None, FEED)[0]


@pytest.fixture(scope="module")
def cache(model, tmp_path_factory):
    """A file with times of all problems, plain tensors being slow, so that the same ones are met in every session."""
    folder = tmp_path_factory.mktemp("tuning")
    cache = folder / "none yet.json"
    for turn in range(3):
        with session(model, cache, **TUNED) as tuned:
            cache = folder / f"{turn}.json"
            tuned.interpreter.set_cache_file(cache)
            tuned.interpreter.update_cache_file(tuned)
        write(cache, cache, {problem: {name: time_of(name, i) for i, name in enumerate(found)} for problem, found in times(cache).items()})
    return cache


def time_of(name, rank):
    return 10**7 if name == "plain" else 1000 + rank


def session(model, cache=None, **config):
    interpreter = mnnx.Interpreter.from_file(model[0])
    interpreter.set_cache_file(cache)
    return interpreter.create_session(mnnx.ScheduleConfig(**config))


def counts(session):
    info = session.info()
    return info["tuned"], info["tuned_from_cache"]


def times(cache):
    (entry,) = json.loads(cache.read_text())["devices"].values()
    return entry["times"]


def write(path, cache, times):
    """A file like `cache` with other times."""
    content = json.loads(cache.read_text())
    (entry,) = content["devices"].values()
    entry["times"] = times
    path.write_text(json.dumps(content))


def check(session, model):
    (result,) = session.run(FEED).values()
    np.testing.assert_allclose(result, model[1], rtol=2e-4, atol=1e-5 * np.abs(model[1]).max())


def test_a_session_measures_at_its_creation_and_computes_the_same(model):
    with session(model, **TUNED) as tuned:
        measured, _ = counts(tuned)
        assert measured >= 6
        check(tuned, model)
        assert counts(tuned) == (measured, 0)


def test_without_tune_nothing_is_measured(model, tmp_path):
    with session(model, tmp_path / "times.json", num_threads=2) as plain:
        check(plain, model)
        assert counts(plain) == (0, 0)
    assert not (tmp_path / "times.json").exists()


@pytest.mark.parametrize("tune", [False, True])
def test_what_the_file_covers_is_not_measured(model, cache, tune):
    before = cache.read_bytes()
    with session(model, cache, **TUNED | {"tune": tune}) as again:
        check(again, model)
        assert counts(again) == (0, len(times(cache)))
    assert cache.read_bytes() == before


def test_what_the_file_does_not_cover_is_measured_and_added(model, cache, tmp_path):
    known = times(cache)
    forgotten = [problem for problem, candidates in known.items() if "plain" not in candidates and "plain source" not in problem]
    assert forgotten
    path = tmp_path / "times.json"
    write(path, cache, {problem: known[problem] for problem in known if problem not in forgotten})
    with session(model, path, **TUNED) as again:
        assert counts(again) == (len(forgotten), len(known) - len(forgotten))
    assert times(path).keys() == known.keys()


def test_times_of_another_number_of_threads_do_not_count(model, cache):
    with session(model, cache, num_threads=1) as other:
        assert counts(other) == (0, 0)


def plans(session):
    """How often each plan, or tile, is in use."""
    units = [unit for plan in session._last.trail for pipeline in plan.pipelines for unit in pipeline.units]
    executions = [unit.execution for unit in units]
    names = [getattr(getattr(execution, "blocked", None), "name", None) for execution in executions]
    tiles = [f"tile {e.tiling.rows}x{e.tiling.vectors}" for e in executions if hasattr(e, "operands")]
    return Counter([*filter(None, names), *tiles])


def test_each_choice_is_honoured_in_turn(model, cache, tmp_path):
    path, known = tmp_path / "times.json", times(cache)
    for problem, candidates in known.items():
        for name in (name for name in candidates if "plain" not in name):  # plain tensors are the planner's choice, by what else they cost
            write(path, cache, known | {problem: {**candidates, name: 1}})
            with session(model, path, num_threads=2) as chosen:
                assert counts(chosen)[0] == 0
                assert plans(chosen)[name] >= 1
                check(chosen, model)


def test_plain_tensors_are_a_choice_too(model, cache, tmp_path):
    path = tmp_path / "times.json"
    known = {problem: {name: 1 if name == "plain" else 10**7 for name in candidates} for problem, candidates in times(cache).items()}
    write(path, cache, known)
    with session(model, cache, num_threads=2) as usual, session(model, path, num_threads=2) as chosen:
        assert plans(chosen).total() < plans(usual).total()
        check(chosen, model)


def test_bad_choices_change_nothing(model, cache, tmp_path, caplog):
    path = tmp_path / "times.json"
    write(path, cache, {problem: {"product 999x1": 1} for problem in times(cache)})
    with session(model, path, num_threads=2) as again:
        check(again, model)
        assert counts(again) == (0, 0)
    assert sum(record.levelno == logging.WARNING for record in caplog.records) == 1


@pytest.mark.parametrize("data", [b"", b"\0\1\2", b'{"format": "mnnx tuning"', b'{"format": "mnnx tuning", "version": 9}'])
def test_files_that_are_no_use_are_no_harm(model, tmp_path, data):
    path = tmp_path / "times.json"
    path.write_bytes(data)
    with session(model, path, num_threads=2) as again:
        check(again, model)
        assert counts(again) == (0, 0)


def test_time_for_nothing_leaves_all_to_the_estimates(model, caplog):
    with caplog.at_level(logging.INFO, "mnnx"), session(model, tune=True, tune_seconds=1e-9, num_threads=2) as hurried:
        check(hurried, model)
        assert counts(hurried) == (0, 0)
    assert "for tuning are over" in caplog.text


def test_shapes_that_come_with_a_run_are_tuned_then(session_of):
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N, 40] x) => (float[N, 50] y) <float[40, 50] w = {%s}> { y = MatMul(x, w) }'
    open_shape = session_of(text % ", ".join(["0.5"] * 2000), tune=True, tune_seconds=60)
    assert counts(open_shape) == (0, 0)
    np.testing.assert_allclose(open_shape.run({"x": np.ones((7, 40), np.float32)})["y"], np.full((7, 50), 20))
    assert counts(open_shape) == (1, 0)


def test_update_writes_what_a_session_goes_by_into_another_file(model, cache, tmp_path):
    interpreter = mnnx.Interpreter.from_file(model[0])
    interpreter.set_cache_file(cache)
    with interpreter.create_session(mnnx.ScheduleConfig(num_threads=2)) as reader:
        interpreter.set_cache_file(tmp_path / "copy.json")
        interpreter.update_cache_file(reader)
    assert times(tmp_path / "copy.json") == times(cache)


@pytest.mark.parametrize("config", [{"tune": 1}, {"tune_seconds": 0}, {"tune_seconds": "10"}, {"tune_seconds": float("nan")}])
def test_values_that_are_no_sense(config):
    with pytest.raises(InputError, match=next(iter(config))):
        mnnx.ScheduleConfig(**config)


@pytest.mark.parametrize("path", [3, "a\0b", object()])
def test_paths_that_are_none(model, path):
    with pytest.raises(InputError, match="set_cache_file"):
        mnnx.Interpreter.from_file(model[0]).set_cache_file(path)
