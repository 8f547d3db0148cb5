"""Threads for one kind of work: so many at once, and the others in the order in which they came."""

from __future__ import annotations

import asyncio
import threading

import anyio.to_thread

from torchyard.base.threads import Threads


def test_no_more_than_that_many_run_at_once_and_other_work_goes_on() -> None:
    threads = Threads("test", 2)
    lock = threading.Lock()
    running: list[int] = []
    counts: list[int] = []
    released = threading.Event()

    def work(number: int) -> int:
        with lock:
            running.append(number)
            counts.append(len(running))
        released.wait()
        with lock:
            running.remove(number)
        return number

    async def run() -> list[int]:
        tasks = [asyncio.create_task(threads.run(work, number)) for number in range(8)]
        while len(counts) < 2:
            await asyncio.sleep(0.01)
        # The threads that all requests share are free meanwhile.
        assert await anyio.to_thread.run_sync(lambda: len(running)) == 2
        released.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(run()) == list(range(8))
    assert max(counts) == 2


def test_the_first_to_come_is_the_first() -> None:
    threads = Threads("test", 1)
    begun: list[int] = []

    async def run() -> None:
        await asyncio.gather(*(threads.run(begun.append, number) for number in range(20)))

    asyncio.run(run())
    assert begun == list(range(20))


def test_each_event_loop_has_its_own() -> None:
    threads = Threads("test", 1)
    for number in range(2):
        assert asyncio.run(threads.run(abs, number)) == number
