"""One session serves one caller at a time; different sessions run in parallel and agree to the bit."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import numpy as np
import pytest

import mnnx
from mnnx import SessionStateError
from tests.networks import SMALL, feed_for

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
MODEL = HEAD + "g (float[n] x) => (float[n] y) { a = Relu(x) y = Exp(a) }"
X = np.ones(3, np.float32)
MODEL_OF_RUNS = """
<ir_version: 10, opset_import: ["": 21]>
main (float[1, 4] x) => (float[1, 4] y) { y = Add(x, x) }
"""


@contextmanager
def running(session):
    """While a run of the session stands still in another thread; gives what it becomes, and a function that lets it go on."""
    inside, leave = threading.Event(), threading.Event()

    def stand(tensors, info):
        inside.set()
        leave.wait(20)

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(session.run_with_callbacks, stand, lambda t, i: None, {"x": X})
        assert inside.wait(20)
        yield run, leave.set


def test_a_second_thread_gets_an_error_while_a_session_runs(session_of):
    session = session_of(MODEL)
    with running(session) as (run, go_on):
        for use in (lambda: session.run({"x": X}), lambda: session.resize({"x": (4,)})):
            with pytest.raises(SessionStateError, match="in use by another thread; create one session per thread"):
                use()
        go_on()
        assert run.result() == 0
    session.run({"x": X})


@pytest.mark.parametrize("use", ["run", "release"])
def test_a_child_that_is_forked_during_a_run_has_the_session_to_itself(session_of, use):
    session = session_of(MODEL)
    expected = session.run({"x": X})["y"]
    with running(session) as (run, go_on):
        child = os.fork()
        if not child:  # pragma: no cover - it ends without the rest of the tests
            signal.alarm(20)
            if use == "run":
                os._exit(0 if np.array_equal(session.run({"x": X})["y"], expected) else 1)
            session.release()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        go_on()
        assert run.result() == 0


def test_release_waits_for_a_run(session_of):
    session = session_of(MODEL)
    with running(session) as (run, go_on), ThreadPoolExecutor(1) as pool:
        release = pool.submit(session.release)
        assert wait([release], timeout=0.2).not_done
        go_on()
        assert run.result() == 0
        release.result()
    with pytest.raises(SessionStateError, match="released"):
        session.run({"x": X})


@pytest.mark.parametrize("name", ["mobilenet-like", "transformer-like"])
def test_sessions_in_parallel_agree_to_the_bit(session_of, name):
    """4 sessions × 4 threads (2 of their own each), 200 runs."""
    make, sizes = SMALL[name]
    model = make()
    first = session_of(model, num_threads=2)
    feeds = [feed_for(model, sizes | {"n": 1 + seed % 2}, seed) for seed in range(5)]
    wanted = [first.run(feed)["y"] for feed in feeds]
    sessions = [first, *(first.interpreter.create_session(mnnx.ScheduleConfig(num_threads=2)) for _ in range(3))]

    def work(session):
        for run in range(50):
            index = run % len(feeds)
            np.testing.assert_array_equal(session.run(feeds[index])["y"], wanted[index])
        return True

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, sessions)) == [True] * 4


def test_numbers_of_threads_agree_to_the_bit(session_of):
    make, sizes = SMALL["resnet-like"]
    model = make()
    feed = feed_for(model, sizes)
    results = [session_of(model, num_threads=threads).run(feed)["y"] for threads in (1, 2, 3, 4)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_worker_threads_end_with_the_session(session_of):
    before = threading.active_count()
    session = session_of(MODEL, num_threads=3)
    session.run({"x": np.ones(100_000, np.float32)})
    session.release()
    assert threading.active_count() <= before


def test_later_runs_come_in_order_and_their_errors_out_of_the_future(session_of):
    with session_of(MODEL_OF_RUNS) as session:
        futures = [session.run_async({"x": np.full((1, 4), float(value), np.float32)}) for value in range(20)]
        wrong = session.run_async({"x": np.zeros((1, 5), np.float32)})
        after = session.run_async({"x": np.ones((1, 4), np.float32)}, outputs=["y"])
        assert [future.result()["y"][0, 0] for future in futures] == [2.0 * value for value in range(20)]
        with pytest.raises(mnnx.InputError, match="dim 1 must be 4"):
            wrong.result()
        assert after.result()["y"].tolist() == [[2.0] * 4]


def test_release_waits_for_the_later_run_under_way(session_of):
    session = session_of(MODEL_OF_RUNS)
    futures = [session.run_async({"x": np.ones((1, 4), np.float32)}) for _ in range(50)]
    session.release()
    assert all(future.cancelled() or future.result()["y"].tolist() == [[2.0] * 4] for future in futures)
    with pytest.raises(SessionStateError, match="released"):
        session.run_async({"x": np.ones((1, 4), np.float32)})


def test_a_later_run_waits_for_a_caller(session_of):
    session, pending = session_of(MODEL_OF_RUNS), []
    feed = {"x": np.ones((1, 4), np.float32)}
    session.run_with_callbacks(lambda *_: pending.append(session.run_async(feed)), lambda *_: pending[0].running() or True, feed)
    assert pending[0].result()["y"].tolist() == [[2.0] * 4]


def test_a_session_can_be_released_when_its_later_run_is_done(session_of):
    session, errors = session_of(MODEL_OF_RUNS), []
    released = threading.Event()

    def release(_future):
        try:
            session.release()
        except RuntimeError as error:
            errors.append(error)
        released.set()

    future = session.run_async({"x": np.ones((1, 4), np.float32)})
    future.add_done_callback(release)
    assert future.result()["y"].tolist() == [[2.0] * 4]
    assert released.wait(20)
    assert not errors
    with pytest.raises(SessionStateError, match="released"):
        session.run({"x": np.ones((1, 4), np.float32)})


def test_later_runs_may_be_asked_for_in_any_thread(session_of):
    others = set(threading.enumerate())
    with session_of(MODEL_OF_RUNS) as session, ThreadPoolExecutor(8) as pool:
        feeds = [{"x": np.full((1, 4), float(value), np.float32)} for value in range(80)]
        futures = list(pool.map(session.run_async, feeds))
        assert [future.result()["y"][0, 0] for future in futures] == [2.0 * value for value in range(80)]
        started = set(threading.enumerate()) - others
        assert sum(thread.name.startswith("mnnx-session") for thread in started) == 1
