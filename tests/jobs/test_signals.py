from __future__ import annotations

import asyncio
import threading
import time

from torchyard.jobs.signals import Signals


def test_news_wakes_a_waiter_from_another_thread() -> None:
    async def scenario() -> float:
        signals = Signals()
        signals.attach(asyncio.get_running_loop())
        seen = signals.count("a")
        threading.Timer(0.05, signals.notify, ["a"]).start()
        begun = time.monotonic()
        await signals.wait("a", seen, 5)
        return time.monotonic() - begun

    assert asyncio.run(scenario()) < 2


def test_news_before_the_wait_is_not_missed() -> None:
    async def scenario() -> float:
        signals = Signals()
        signals.attach(asyncio.get_running_loop())
        seen = signals.count("a")
        signals.notify("a")
        begun = time.monotonic()
        await signals.wait("a", seen, 5)
        return time.monotonic() - begun

    assert asyncio.run(scenario()) < 1


def test_closing_lets_everyone_go() -> None:
    async def scenario() -> None:
        signals = Signals()
        signals.attach(asyncio.get_running_loop())
        waiting = asyncio.create_task(signals.wait("a", 0, 60))
        await asyncio.sleep(0)
        signals.close()
        await asyncio.wait_for(waiting, 5)
        await asyncio.wait_for(signals.wait("b", 0, 60), 5)

    asyncio.run(scenario())
