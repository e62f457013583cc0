"""Sessions that share a ThreadTeam: the same results, in turns, without threads of their own."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from mnnx import InputError, ScheduleConfig, SessionStateError, ThreadTeam
from tests.networks import SMALL, feed_for

HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
LOOP = f"""
{HEAD} main (int64 n, float[5000] x) => (float[5000] y)
{{ y = Loop(n, , x) <body = b (int64 i, bool c, float[5000] s) => (bool d, float[5000] t)
    {{ d = Identity(c) u = Sin(s) t = Add(u, s) }}> }}
"""
GATHER = f"{HEAD} main (float[4] x, int64[2] i) => (float[2] y) {{ y = Gather(x, i) }}"
LONG = {"n": np.array(20_000), "x": np.ones(5000, np.float32)}  # a good part of a second
SHORT = LONG | {"n": np.array(3)}


def test_sessions_of_several_models_agree_to_the_bit(session_of):
    """4 models × 2 sessions of different priorities on one team of 2, each in a thread of its own."""
    with ThreadTeam(2) as team:
        cases = []
        for name, (make, sizes) in SMALL.items():
            model = make()
            own = session_of(model, num_threads=2)
            feed = feed_for(model, sizes)
            shared = [own.interpreter.create_session(ScheduleConfig(team=team, priority=priority)) for priority in (0, len(name))]
            cases += [(session, feed, own.run(feed)["y"]) for session in shared]
            own.release()
        before = threading.active_count()

        def work(case):
            session, feed, wanted = case
            return all(np.array_equal(session.run(feed)["y"], wanted) for _ in range(25))

        with ThreadPoolExecutor(len(cases)) as pool:
            assert all(pool.map(work, cases))
        assert threading.active_count() == before + 1  # the team's
        assert all(session.info()["num_threads"] == 2 for session, _, _ in cases)
    assert threading.active_count() == before


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_makes_room_for_one_of_a_higher_priority(session_of, threads):
    with ThreadTeam(threads) as team:
        low = session_of(LOOP, team=team)
        high = low.interpreter.create_session(ScheduleConfig(team=team, priority=1))
        wanted = low.run(SHORT)["y"]
        long = low.run_async(LONG)
        while not long.running():
            pass
        for _ in range(5):
            np.testing.assert_array_equal(high.run(SHORT)["y"], wanted)
        assert not long.done()
        assert long.result()["y"].shape == (5000,)
        np.testing.assert_array_equal(low.run(SHORT)["y"], wanted)


@pytest.mark.parametrize("name", SMALL)
def test_runs_that_make_room_all_the_time_go_on_where_they_were(session_of, name):
    make, sizes = SMALL[name]
    model = make()
    with ThreadTeam(2) as team:
        low = session_of(model, team=team)
        feed = feed_for(model, sizes)
        wanted = low.run(feed)["y"]
        team.opened(None)._memory[48] = 1  # as if somebody always waited: every slice is a turn of its own
        for _ in range(20):
            np.testing.assert_array_equal(low.run(feed)["y"], wanted)
            team.opened(None)._memory[48] = 1


def test_an_error_leaves_the_team_to_others(session_of):
    with ThreadTeam(2) as team:
        session = session_of(GATHER, team=team)
        other = session.interpreter.create_session(ScheduleConfig(team=team))
        x, good, bad = np.arange(4, dtype=np.float32), np.array([3, 1]), np.array([0, 4])
        for _ in range(3):
            with pytest.raises(InputError, match="4"):
                session.run({"x": x, "i": bad})
            assert other.run({"x": x, "i": good})["y"].tolist() == [3, 1]
            assert session.run({"x": x, "i": good})["y"].tolist() == [3, 1]


def test_a_released_session_leaves_the_team_to_others(session_of):
    with ThreadTeam(2) as team:
        first = session_of(LOOP, team=team)
        second = first.interpreter.create_session(ScheduleConfig(team=team))
        wanted = first.run(SHORT)["y"]
        first.release()
        np.testing.assert_array_equal(second.run(SHORT)["y"], wanted)


def test_a_released_team_ends_after_its_turn_and_says_so(session_of):
    team = ThreadTeam(2)
    session = session_of(LOOP, team=team)
    session.run(SHORT)
    long = session.run_async(LONG)
    while not long.running():
        pass
    team.release()
    team.release()
    with pytest.raises(SessionStateError, match="the ThreadTeam of this session was released"):
        long.result()  # a loop comes back to Python now and then
    with pytest.raises(SessionStateError, match="the ThreadTeam of this session was released"):
        session.run(SHORT)
    with pytest.raises(SessionStateError, match="the ThreadTeam was released; make another one"):
        session.interpreter.create_session(ScheduleConfig(team=team))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_forked_while_others_have_their_turns_has_the_team_to_itself(session_of):
    with ThreadTeam(2) as team:
        session = session_of(LOOP, team=team)
        other = session.interpreter.create_session(ScheduleConfig(team=team, priority=3))
        wanted = session.run(SHORT)["y"]
        runs = [session.run_async(LONG), other.run_async(LONG)]
        child = os.fork()
        if not child:  # pragma: no cover - it ends without the rest of the tests
            signal.alarm(20)
            mine = session.interpreter.create_session(ScheduleConfig(team=team))
            os._exit(0 if np.array_equal(mine.run(SHORT)["y"], wanted) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert all(run.result()["y"].shape == (5000,) for run in runs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_forked_while_another_thread_opens_the_team_can_open_it():
    with ThreadTeam(2) as team:
        opening, forked = threading.Event(), threading.Event()

        def make():
            opening.set()
            assert forked.wait(20)
            return SimpleNamespace(release=lambda: None)

        opener = threading.Thread(target=team.opened, args=(make,))
        opener.start()
        assert opening.wait(20)
        child = os.fork()
        if not child:  # pragma: no cover - it ends without the rest of the tests
            signal.alarm(20)
            os._exit(0 if team.opened(lambda: "mine") == "mine" else 1)
        forked.set()
        opener.join()
        assert os.waitpid(child, 0)[1] == 0


def test_an_interrupted_wait_gives_its_turn_up(session_of):
    """SIGINT reaches the main thread while it waits for the team."""
    with ThreadTeam(2) as team:
        session = session_of(LOOP, team=team)
        mine = session.interpreter.create_session(ScheduleConfig(team=team))
        wanted = mine.run(SHORT)["y"]
        turns = team.opened(None).turns
        holder = turns.ask(0)
        turns.wait(holder)

        def interrupt():
            while not turns._waiting:
                pass
            os.kill(os.getpid(), signal.SIGINT)

        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            mine.run(SHORT)
        helper.join()
        turns.end(holder)
        np.testing.assert_array_equal(mine.run(SHORT)["y"], wanted)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"team": 2}, "ScheduleConfig.team must be a ThreadTeam; it is 2"),
        ({"team": ThreadTeam(2), "num_threads": 2}, "has its own num_threads and cpu_ids: give them to the ThreadTeam"),
        ({"team": ThreadTeam(2), "cpu_ids": [0]}, "has its own num_threads and cpu_ids: give them to the ThreadTeam"),
        ({"team": ThreadTeam(2), "priority": 1.5}, "ScheduleConfig.priority must be an int; it is 1.5"),
        ({"priority": 1}, "ScheduleConfig.priority orders the sessions of a team: give it a ThreadTeam too"),
        ({"inter_op_threads": 0}, r"ScheduleConfig.inter_op_threads must be 1 … 256; it is 0"),
        ({"inter_op_threads": True}, r"ScheduleConfig.inter_op_threads must be 1 … 256; it is True"),
    ],
)
def test_configs_that_make_no_sense(config, message):
    with pytest.raises(InputError, match=message):
        ScheduleConfig(**config)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_threads": -1}, "ThreadTeam.num_threads must be 0 .all CPUs. … 256; it is -1"),
        ({"cpu_ids": 3}, "ThreadTeam.cpu_ids must be a sequence of CPU numbers, 0 or more; it is 3"),
    ],
)
def test_teams_that_make_no_sense(given, message):
    with pytest.raises(InputError, match=message):
        ThreadTeam(**given)


def test_a_team_for_a_cpu_that_there_isnt(session_of):
    with pytest.raises(InputError, match="may not run on CPU 9999"):
        session_of(GATHER, team=ThreadTeam(2, cpu_ids=[9999]))
