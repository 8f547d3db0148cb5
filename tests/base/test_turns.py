"""A lock that is got in turn."""

from __future__ import annotations

import threading

from torchyard.base.turns import Turns


def test_the_thread_that_holds_it_may_take_it_again() -> None:
    turns = Turns()
    with turns, turns:
        pass
    with turns:
        pass


def test_whoever_comes_back_at_once_waits_behind_the_others() -> None:
    turns, order = Turns(), list[str]()
    is_waiting = threading.Event()

    def other() -> None:
        is_waiting.set()
        with turns:
            order.append("other")

    with turns:
        thread = threading.Thread(target=other)
        thread.start()
        assert is_waiting.wait(60)
        while not turns._waiting:
            pass
    with turns:
        order.append("back")
    thread.join(60)
    assert order == ["other", "back"]


def test_one_thread_at_a_time_is_inside() -> None:
    turns, inside, most = Turns(), [0], [0]

    def work() -> None:
        for _ in range(200):
            with turns:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]
