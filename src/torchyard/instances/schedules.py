"""When a schedule starts or stops an instance.

Owns: which action is due since the last look.
Leaves: acting on it to keeper.py.
Always: of several that were missed the last one counts; what lies further back than a day does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from torchyard.instances import cron
from torchyard.instances.types import Schedule, Trigger

_MINUTE = timedelta(minutes=1)
_LONGEST = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1)


def due(schedules: Sequence[Schedule], since: datetime, now: datetime) -> str:
    """`start`, `stop` or empty: the last that was due after `since`, up to `now` (both aware)."""
    enabled = [schedule for schedule in schedules if schedule.enabled]
    if not enabled:
        return ""
    minute = now.replace(second=0, microsecond=0)
    earliest = max(since, now - _LONGEST)
    while minute > earliest:
        for schedule in reversed(enabled):
            if fits(schedule.trigger, minute):
                return schedule.action
        minute -= _MINUTE
    return ""


def fits(trigger: Trigger, minute: datetime) -> bool:
    """Whether it is due in that minute (aware)."""
    local = minute.astimezone(ZoneInfo(trigger.zone)).replace(tzinfo=None)
    if trigger.start is not None and local < trigger.start.replace(second=0, microsecond=0):
        return False
    if trigger.end is not None and local > trigger.end:
        return False
    if trigger.cron:
        return cron.parse(trigger.cron).fits(local)
    return _recurs(trigger, local)


def _recurs(trigger: Trigger, local: datetime) -> bool:
    start = trigger.start or _EPOCH
    if trigger.frequency == "minute":
        return int((local - start) / _MINUTE) % trigger.interval == 0
    if local.minute not in (trigger.minutes or (start.minute,)):
        return False
    if trigger.frequency == "hour":
        return int((local - start).total_seconds() // 3600) % trigger.interval == 0
    if local.hour not in (trigger.hours or (start.hour,)):
        return False
    days = (local.date() - start.date()).days
    if trigger.frequency == "day":
        return days % trigger.interval == 0
    if trigger.frequency == "week":
        weeks = (days + start.weekday()) // 7
        week_days = trigger.week_days or (start.weekday(),)
        return local.weekday() in week_days and weeks % trigger.interval == 0
    months = (local.year - start.year) * 12 + local.month - start.month
    return local.day in (trigger.month_days or (start.day,)) and months % trigger.interval == 0
