"""Time, as something that can be passed in.

Owns: the present moment and its text form.
Leaves: waiting to those who wait.
Always: every time is aware and in UTC.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Protocol


class Clock(Protocol):
    """Tells the present moment."""

    def now(self) -> datetime: ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc)


class FakeClock:
    """A clock that stands until it is moved; for tests."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


def to_text(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds, as the HTTP interface writes times."""
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def from_text(text: str) -> datetime:
    """Read what `to_text` wrote, or any ISO 8601 time with a zone."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)
