"""Cron expressions of five fields: minute, hour, day of the month, month, day of the week.

Owns: reading one, whether a minute fits it.
Leaves: time zones and actions to schedules.py.
Always: as in crontab(5), a day fits by its day of the month or its day of the week where both are
restricted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from torchyard.base.errors import InvalidSpec

_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST = 200


@dataclass(frozen=True)
class Cron:
    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: frozenset[int]
    months: frozenset[int]
    week_days: frozenset[int]
    any_month_day: bool
    any_week_day: bool

    def fits(self, minute: datetime) -> bool:
        """Whether it is due in that minute of its own time zone."""
        if minute.minute not in self.minutes or minute.hour not in self.hours:
            return False
        if minute.month not in self.months:
            return False
        by_month = minute.day in self.month_days
        by_week = minute.isoweekday() % 7 in self.week_days
        if self.any_month_day or self.any_week_day:
            return by_month and by_week
        return by_month or by_week


def parse(expression: str, at: tuple[str | int, ...] = ()) -> Cron:
    """
    Raises:
        InvalidSpec: it is not such an expression.
    """
    words = expression.split() if len(expression) <= _LONGEST else []
    try:
        if len(words) != 5:
            raise ValueError("it has not five fields")
        sets = [_field(word, number) for number, word in enumerate(words)]
    except ValueError as error:
        raise InvalidSpec(
            f"`{expression[:80]}` is not a cron expression: {error}",
            "write minute, hour, day of the month, month and day of the week: `30 8 * * 1-5`",
            at=at,
        ) from error
    week_days = frozenset(day % 7 for day in sets[4])
    starts = [word.startswith("*") for word in words]
    return Cron(sets[0], sets[1], sets[2], sets[3], week_days, starts[2], starts[4])


def _field(word: str, number: int) -> frozenset[int]:
    least, maximum = _RANGES[number]
    values: set[int] = set()
    for part in word.split(","):
        span, slash, step_text = part.partition("/")
        step = int(step_text) if slash else 1
        if step < 1:
            raise ValueError(f"`{part}`")
        if span == "*":
            first, last = least, maximum
        elif "-" in span:
            first, last = (_value(text, number) for text in span.split("-", 1))
        else:
            first = _value(span, number)
            last = maximum if slash else first
        if not least <= first <= last <= maximum:
            raise ValueError(f"`{part}` is out of range")
        values.update(range(first, last + 1, step))
    return frozenset(values)


def _value(text: str, number: int) -> int:
    names = {3: _MONTHS, 4: _DAYS}.get(number, ())
    if text.lower() in names:
        return names.index(text.lower()) + (number == 3)
    return int(text)
