"""Turns: one holder at a time, the highest priority next, equal ones in their order."""

import threading
import time

import pytest

from mnnx.backends.cpu.turns import Turns


class Queue:
    """Threads that each want a turn, and note it in `seen` when they have it."""

    def __init__(self, turns):
        self.turns, self.seen, self.threads = turns, [], []

    def add(self, priority, name):
        before = len(self.turns._waiting)

        def take():
            turn = self.turns.ask(priority)
            self.turns.wait(turn)
            self.seen.append(name)
            self.turns.end(turn)

        self.threads.append(threading.Thread(target=take, daemon=True))
        self.threads[-1].start()
        while len(self.turns._waiting) == before:
            pass

    def join(self):
        for thread in self.threads:
            thread.join(20)
        return self.seen


def test_the_highest_priority_is_next_and_equal_ones_come_in_order():
    told = []
    turns = Turns(told.append)
    queue, first = Queue(turns), turns.ask(1)
    turns.wait(first)
    for priority, name in ((0, "a"), (1, "b"), (-3, "c"), (1, "d")):
        queue.add(priority, name)
    assert not any(told)
    queue.add(2, "e")
    assert told[-1]
    turns.end(first)
    assert queue.join() == ["e", "b", "d", "a", "c"]
    assert not told[-1]


def test_who_made_room_comes_before_equal_ones_that_came_later():
    turns = Turns(lambda wanted: None)
    queue, mine = Queue(turns), turns.ask(0)
    turns.wait(mine)
    queue.add(0, "later")
    queue.add(1, "higher")
    turns.end(mine)
    turns.wait(mine)
    assert queue.seen == ["higher"]
    turns.end(mine)
    assert queue.join() == ["higher", "later"]


def test_a_turn_that_is_given_up_is_nobodys():
    turns = Turns(lambda wanted: None)
    holder, queue = turns.ask(0), Queue(turns)
    turns.wait(holder)
    given_up = turns.ask(5)
    turns._waiting.append(given_up)  # as if what waits for it were interrupted
    queue.add(1, "a")
    turns.end(given_up)
    turns.end(holder)
    assert queue.join() == ["a"]
    turns.end(holder)  # without having it
    again = turns.ask(0)
    turns.wait(again)
    turns.end(again)


@pytest.mark.parametrize("threads", [2, 8])
def test_only_one_at_a_time(threads):
    turns, inside, most = Turns(lambda wanted: None), [], []

    def work(priority):
        for _ in range(300):
            turn = turns.ask(priority)
            turns.wait(turn)
            inside.append(priority)
            time.sleep(0)  # lets the others run
            most.append(len(inside))
            inside.pop()
            turns.end(turn)

    workers = [threading.Thread(target=work, args=(i % 3,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert max(most) == 1
    assert len(most) == 300 * threads
