from __future__ import annotations

import asyncio
import threading

from torchyard.jobs.records.wakeups import Signals


def test_news_wakes_a_waiter_from_another_thread() -> None:
    async def scenario() -> None:
        signals = Signals()
        signals.attach(asyncio.get_running_loop())
        seen = signals.count("a")
        threading.Timer(0.05, signals.notify, ["a"]).start()
        await asyncio.wait_for(signals.wait("a", seen, 600), 60)

    asyncio.run(scenario())


def test_news_before_the_wait_is_not_missed() -> None:
    async def scenario() -> None:
        signals = Signals()
        signals.attach(asyncio.get_running_loop())
        seen = signals.count("a")
        signals.notify("a")
        await asyncio.wait_for(signals.wait("a", seen, 600), 60)

    asyncio.run(scenario())


def test_closing_lets_everyone_go() -> None:
    async def scenario() -> None:
        signals = Signals()
        signals.attach(asyncio.get_running_loop())
        waiting = asyncio.create_task(signals.wait("a", 0, 600))
        await asyncio.sleep(0)
        signals.close()
        await asyncio.wait_for(waiting, 60)
        await asyncio.wait_for(signals.wait("b", 0, 600), 60)

    asyncio.run(scenario())


def test_keys_of_long_ago_are_forgotten_and_no_news_is_missed() -> None:
    async def scenario() -> None:
        signals = Signals()
        signals.attach(asyncio.get_running_loop())
        signals.notify("told")
        seen = {key: signals.count(key) for key in ("told", "quiet")}
        waiting = [
            asyncio.create_task(signals.wait(key, count, 600)) for key, count in seen.items()
        ]
        await asyncio.sleep(0)
        for number in range(25_000):
            signals.notify(f"attempt/{number}")
        assert len(signals._counts) <= 10_000
        # Those who waited, and those who are about to, look once more.
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        for key, count in seen.items():
            await asyncio.wait_for(signals.wait(key, count, 600), 60)
        # From then on they wait for news of their own.
        now = signals.count("told")
        signals.notify("another")
        assert signals.count("told") == now
        signals.notify("told")
        assert signals.count("told") != now

    asyncio.run(scenario())


def test_a_signal_handler_may_close_while_its_thread_is_at_work_on_them() -> None:
    signals = Signals()

    class _Interrupted(dict[str, int]):
        def get(self, *arguments: object) -> int:
            signals.close()
            return 0

    signals._counts = _Interrupted()  # where Python runs the handler of SIGTERM
    counting = threading.Thread(target=signals.count, args=("job/1",), daemon=True)
    counting.start()
    counting.join(60)
    assert signals.closed and not counting.is_alive()
