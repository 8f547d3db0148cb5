"""Threads for one kind of work: so many at once, and the others in the order in which they came."""

from __future__ import annotations

import asyncio
import threading

import anyio.to_thread

from torchyard.base.threads import Threads


def test_no_more_than_that_many_run_at_once_and_the_rest_in_order() -> None:
    threads = Threads("test", 2)
    lock = threading.Lock()
    running: list[int] = []
    most_running = 0
    begun: list[int] = []
    released = threading.Event()

    def work(number: int) -> int:
        nonlocal most_running
        with lock:
            begun.append(number)
            running.append(number)
            most_running = max(most_running, len(running))
        released.wait()
        with lock:
            running.remove(number)
        return number

    async def run() -> list[int]:
        tasks = []
        for number in range(8):
            tasks.append(asyncio.create_task(threads.run(work, number)))
            await asyncio.sleep(0)
        while len(begun) < 2:
            await asyncio.sleep(0.01)
        # The threads that all requests share are free meanwhile.
        assert await anyio.to_thread.run_sync(lambda: list(begun)) in ([0, 1], [1, 0])
        released.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(run()) == list(range(8))
    assert most_running == 2
    assert sorted(begun[:2]) == [0, 1]
    assert begun[-1] in (6, 7)
    assert [max(begun[:end]) < end + 1 for end in range(1, 9)] == [True] * 8


def test_each_event_loop_has_its_own() -> None:
    threads = Threads("test", 1)
    for number in range(2):
        assert asyncio.run(threads.run(abs, number)) == number
