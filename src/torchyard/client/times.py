"""Lengths of time: for people, as people write them, and as limits of what takes long."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from datetime import timedelta

from torchyard.base import clock
from torchyard.base.errors import InvalidInput, Timeout

Duration = int | float | str | timedelta
_UNITS_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


def seconds_between(start: str | None, end: str | None) -> float | None:
    """None when one of them is missing."""
    if not start or not end:
        return None
    return (clock.from_text(end) - clock.from_text(start)).total_seconds()


def duration(seconds: float | None) -> str:
    """A length of time for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def whole_seconds(length: Duration, name: str) -> int:
    """Read `90`, `"90s"`, `"45m"`, `"2h"`, `"1h 30m"`, `"3d"` or a timedelta; rounded up.

    Args:
        name: of the argument, for the message.

    Raises:
        InvalidInput: it is not a length of time, or not longer than 0.
    """
    if isinstance(length, timedelta):
        seconds: float = length.total_seconds()
    elif isinstance(length, str):
        seconds = _seconds_in(length.strip().lower())
    else:
        seconds = math.nan if isinstance(length, bool) else length
    if not 0 < seconds < math.inf:
        raise InvalidInput(
            f"`{name}` is not a length of time: {length!r}",
            'give seconds, or a text such as "90s", "45m", "2h" or "1h 30m"',
            at=(name,),
        )
    return math.ceil(seconds)


def _seconds_in(text: str) -> float:
    """NaN when it is none."""
    parts = _PART.findall(text)
    if not text or _PART.sub("", text) or any(unit not in _UNITS_S for _, unit in parts):
        return math.nan
    if len(parts) > 1 and any(not unit for _, unit in parts):
        return math.nan
    return sum(float(amount) * _UNITS_S[unit] for amount, unit in parts)


class Deadline:
    """When waiting ends.

    Args:
        timeout_s: seconds from now on; None for never.
        waits_for: what does not come in time: `job `x` has not ended`.
        hint: what to do then.
    """

    def __init__(
        self,
        timeout_s: float | None,
        waits_for: str,
        hint: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout_s = timeout_s
        self._waits_for = waits_for
        self._hint = hint
        self._now = now
        self._end = None if timeout_s is None else now() + timeout_s

    def within(self, seconds: float) -> float:
        """At most `seconds`, and no longer than is left; never negative."""
        return seconds if self._end is None else max(0.0, min(seconds, self._end - self._now()))

    def check(self) -> None:
        """
        Raises:
            Timeout: it is over.
        """
        if self._end is not None and self._now() >= self._end:
            raise Timeout(f"{self._waits_for} after {self._timeout_s:g} s", self._hint)
