"""One-use links: once, for a minute, for one service."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from torchyard.interactive.links import Holder, MemoryLinks


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.time


def test_a_code_is_good_once_and_for_its_service() -> None:
    clock = Clock()
    links = MemoryLinks(clock.now)
    holder = Holder("hash-of-adas-token", "a")
    assert links.exchange(links.code(holder), "b") is None
    code = links.code(holder)
    session = links.exchange(code, "a")
    assert session and links.exchange(code, "a") is None
    assert links.holder(session, "a") == holder
    assert links.holder(session, "b") is None and links.holder("x" + session, "a") is None


def test_codes_and_sessions_end() -> None:
    clock = Clock()
    links = MemoryLinks(clock.now)
    late = links.code(Holder("hash-of-adas-token", "a"))
    session = links.exchange(links.code(Holder("hash-of-adas-token", "a")), "a")
    assert session
    clock.time += timedelta(seconds=61)
    assert links.exchange(late, "a") is None
    clock.time += timedelta(hours=12)
    assert links.holder(session, "a") is None
