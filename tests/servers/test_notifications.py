"""News between servers, on the PostgreSQL that the tests start."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventually import eventually
from postgres_server import PostgresServer
from torchyard.app import application
from torchyard.base.db import Database
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.records.wakeups import Signals
from torchyard.servers.notifications import Notifier

pytestmark = pytest.mark.postgres


class Listener:
    """One server's end of the wire, and what it heard."""

    def __init__(self, url: str) -> None:
        self.db = Database(url, shared=True)
        self.heard: list[str] = []
        self.missed = 0
        self.notifier = Notifier(self.db, self.heard.append, self._missed)
        self.notifier.start()
        until(lambda: self.missed == 1)

    def _missed(self) -> None:
        self.missed += 1

    def close(self) -> None:
        self.notifier.stop()
        self.db.close()


def until(condition: Callable[[], bool]) -> None:
    eventually(condition, "a notification")


@pytest.fixture
def listeners(postgres: PostgresServer) -> Iterator[tuple[Listener, Listener]]:
    url = postgres.new_database()
    made = Listener(url), Listener(url)
    yield made
    for listener in made:
        listener.close()


def test_only_the_other_server_is_notified(
    listeners: tuple[Listener, Listener],
) -> None:
    first, other = listeners
    for number in range(100):
        first.notifier.notify(f"job/{number % 10}")
    until(lambda: set(other.heard) == {f"job/{number}" for number in range(10)})
    other.notifier.notify("job/x")
    until(lambda: bool(first.heard))
    assert first.heard == ["job/x"]


def test_after_a_lost_connection_every_server_reads_again(
    listeners: tuple[Listener, Listener], postgres: PostgresServer
) -> None:
    first, other = listeners
    postgres.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    )
    until(lambda: first.missed == 2 and other.missed == 2)
    first.notifier.notify("job/1")
    until(lambda: other.heard == ["job/1"])


def test_news_wakes_a_waiter_at_the_other_server(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_database("template_torchyard")
    made = [
        application.build(
            tmp_path, f"http://{name}", {}, executor=FakeExecutor(), database=url, shared=True
        )
        for name in ("first", "other")
    ]
    first, other = (parts.services.signals for parts in made)
    sharings = [parts.sharing for parts in made if parts.sharing is not None]
    for sharing in sharings:
        sharing.start()
    try:
        assert asyncio.run(_woken(first, other))
    finally:
        for sharing in sharings:
            sharing.stop()
        for parts in made:
            parts.services.db.close()
    assert not (tmp_path / "server.json").exists()


async def _woken(first: Signals, other: Signals) -> bool:
    """Whether news at `first` ends a wait at `other` long before its time."""
    other.attach(asyncio.get_running_loop())
    seen = other.count("job/7")
    stop = threading.Event()

    def tell() -> None:
        while not stop.wait(0.1):
            first.notify("job/7")

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        began = time.monotonic()
        await other.wait("job/7", seen, 60)
        return time.monotonic() - began < 50
    finally:
        stop.set()
        teller.join()
