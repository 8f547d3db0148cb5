"""Time, as something that can be passed in.

Owns: the present moment, its text form, how long something took.
Leaves: waiting to those who wait.
Always: every time is aware and in UTC; a length of time survives that somebody sets the clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Protocol

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class SteadyTime:
    """The reading of a clock that nobody sets: seconds since the boot named by `boot`."""

    boot: str
    seconds: float

    def to_text(self) -> str:
        return f"{self.boot} {self.seconds:.3f}"


class Moment(datetime):
    """The present moment as `Clock.now` tells it; `steady` is None for times from elsewhere."""

    steady: SteadyTime | None = None


class Clock(Protocol):
    """Tells the present moment."""

    def now(self) -> datetime: ...


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        try:
            with open(_BOOT_ID) as file:
                self._boot = file.read(8)
        except OSError:
            self._boot = ""

    def now(self) -> datetime:
        moment = Moment.now(timezone.utc)
        if self._boot:
            moment.steady = SteadyTime(self._boot, time.clock_gettime(time.CLOCK_BOOTTIME))
        return moment


class FakeClock:
    """A clock that stands until it is moved; for tests."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=timezone.utc)
        self._steady_s = 0.0

    def now(self) -> datetime:
        moment = Moment.fromtimestamp(0, timezone.utc) + (self._now - _EPOCH)
        assert isinstance(moment, Moment)
        moment.steady = SteadyTime("fake", self._steady_s)
        return moment

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._steady_s += seconds

    def set_by(self, seconds: float) -> None:
        """As when somebody sets the machine's clock: no time passes."""
        self._now += timedelta(seconds=seconds)


_EPOCH = datetime.fromtimestamp(0, timezone.utc)


def steady_text(moment: datetime) -> str:
    """The steady clock's reading at a moment, for `seconds_since`; empty for one from elsewhere."""
    steady = moment.steady if isinstance(moment, Moment) else None
    return "" if steady is None else steady.to_text()


def seconds_since(start: datetime, start_steady: str, end: datetime) -> float:
    """The seconds from `start` to `end`; by the steady clock where both were read in one boot.

    Args:
        start_steady: what `steady_text` was at the start.
    """
    boot, _, seconds = start_steady.partition(" ")
    steady = end.steady if isinstance(end, Moment) else None
    if steady is not None and steady.boot == boot:
        return max(0.0, steady.seconds - float(seconds))
    return max(0.0, (end - start).total_seconds())


def earlier(moment: datetime, seconds: float) -> datetime:
    """The moment so long before it, by both clocks."""
    before = moment - timedelta(seconds=seconds)
    if isinstance(moment, Moment) and isinstance(before, Moment) and moment.steady is not None:
        steady = moment.steady
        before.steady = SteadyTime(steady.boot, steady.seconds - seconds)
    return before


def to_text(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds, as the HTTP interface writes times."""
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def from_text(text: str) -> datetime:
    """Read what `to_text` wrote, or any ISO 8601 time with a zone."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)
