"""A compute instance's YAML document.

Owns: the keys, their values, the messages when one is wrong.
Leaves: when a schedule is due to schedules.py, running it to actions.py.
Always: keys are those of Azure ML's computeInstance, `torchyard` is ours; a key that has no effect
here is refused by name, unless its value holds here anyway.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from torchyard.base import fields
from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec
from torchyard.instances import cron
from torchyard.instances.types import TYPE, InstanceSpec, Schedule, Trigger

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{1,22}[a-zA-Z0-9]\Z")
_KEYS = (
    "$schema", "name", "type", "size", "description", "tags", "location", "schedules",
    "idle_time_before_shutdown_minutes", "idle_time_before_shutdown", "torchyard",
)  # fmt: skip
_SATISFIED = {
    "ssh_public_access_enabled": (False, "`yard job shell` opens a shell"),
    "enable_node_public_ip": (True, "it is reached through the server"),
    "enable_sso": (True, "its links let people in"),
    "enable_root_access": (True, "it runs as its owner's Unix user"),
    "release_quota_on_stop": (False, "a stopped one holds no node"),
    "enable_os_patching": (False, "the machine is its owner's"),
}
_REFUSED = {
    "ssh_settings": "`yard job shell` opens a shell in it",
    "network_settings": "nodes use the machine's network",
    "identity": "it runs as its owner's Unix user",
    "create_on_behalf_of": "sign in as the person who is to own it",
    "setup_scripts": "run them in its terminal, or give `torchyard: {environment: …}`",
    "custom_applications": "start them in a job, as `services:`",
}
_OWN = ("cluster", "environment")
_FREQUENCIES = ("minute", "hour", "day", "week", "month")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MINUTES = re.compile(r"PT(?:(\d{1,5})H)?(?:(\d{1,6})M)?\Z")
_MOST_SCHEDULES = 50
# What Azure's documents use most; any name of the IANA database is understood, too.
_WINDOWS_ZONES = {
    "utc": "UTC",
    "gmt standard time": "Europe/London",
    "w. europe standard time": "Europe/Berlin",
    "central europe standard time": "Europe/Budapest",
    "romance standard time": "Europe/Paris",
    "eastern standard time": "America/New_York",
    "central standard time": "America/Chicago",
    "mountain standard time": "America/Denver",
    "pacific standard time": "America/Los_Angeles",
    "china standard time": "Asia/Shanghai",
    "tokyo standard time": "Asia/Tokyo",
    "india standard time": "Asia/Kolkata",
    "aus eastern standard time": "Australia/Sydney",
}


def is_instance(document: Mapping[str, Any]) -> bool:
    return str(document.get("type") or "").lower() == TYPE


@faults.all_at_once
def read(document: Mapping[str, Any]) -> InstanceSpec:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    for key in document:
        _check_key(str(key), document[key])
    expressions.refuse(document)
    name = fields.text(document, "name", ())
    if not _NAME.match(name):
        raise InvalidSpec(
            f"`{name[:50]}` is not a valid compute name" if name else "the compute has no `name`",
            "use 3 to 24 letters, digits and dashes, starting with a letter",
            at=["name"],
        )
    settings = fields.mapping(document.get("torchyard") or {}, "`torchyard`")
    for key in settings:
        if key not in _OWN:
            raise fields.unknown_key(f"torchyard.{key}", [f"torchyard.{name}" for name in _OWN])
    return InstanceSpec(
        name=name,
        size=fields.text(document, "size", ()),
        description=fields.text(document, "description", ()),
        tags=fields.texts(document, "tags"),
        idle_minutes=_idle_minutes(document),
        schedules=_schedules(document),
        cluster=str(settings.get("cluster") or ""),
        environment=settings.get("environment"),
    )


def _check_key(key: str, value: Any) -> None:
    if key in _KEYS:
        return
    if key in _SATISFIED:
        holds, reason = _SATISFIED[key]
        if value not in (holds, None):
            raise InvalidSpec(f"`{key}: {value}` is not served: {reason}", "leave it out", at=[key])
        return
    if key in _REFUSED:
        if value:
            raise InvalidSpec(f"`{key}` is not served", _REFUSED[key], at=[key])
        return
    raise fields.unknown_key(key, _KEYS)


def _idle_minutes(document: Mapping[str, Any]) -> int:
    written = document.get("idle_time_before_shutdown")
    minutes = fields.count(document, "idle_time_before_shutdown_minutes", default=0)
    if written and not minutes:
        match = _MINUTES.match(str(written))
        if match is None:
            raise InvalidSpec(
                f"`idle_time_before_shutdown` is `{written}`",
                "write it as `PT30M`",
                at=["idle_time_before_shutdown"],
            )
        minutes = 60 * int(match[1] or 0) + int(match[2] or 0)
    return int(minutes)


def _schedules(document: Mapping[str, Any]) -> tuple[Schedule, ...]:
    body = fields.mapping(document.get("schedules") or {}, "`schedules`")
    for key in body:
        if key != "compute_start_stop":
            raise fields.unknown_key(f"schedules.{key}", ["schedules.compute_start_stop"])
    rows = body.get("compute_start_stop") or []
    if not isinstance(rows, list) or len(rows) > _MOST_SCHEDULES:
        raise InvalidSpec(
            "`schedules.compute_start_stop` is not a list",
            f"of up to {_MOST_SCHEDULES} schedules, each with `action` and `trigger`",
            at=["schedules", "compute_start_stop"],
        )
    return tuple(_schedule(row, number) for number, row in enumerate(rows))


def _schedule(row: Any, number: int) -> Schedule:
    at = ("schedules", "compute_start_stop", number)
    body = fields.mapping(row, "a schedule")
    action = str(body.get("action") or "").lower()
    if action not in ("start", "stop"):
        raise InvalidSpec(
            f"`action` of a schedule is `{action}`", "use `start` or `stop`", at=(*at, "action")
        )
    state = str(body.get("state") or body.get("status") or "enabled").lower()
    trigger = fields.mapping(body.get("trigger") or {}, "`trigger`")
    return Schedule(action, _trigger(trigger, (*at, "trigger")), state == "enabled")


def _trigger(body: Mapping[str, Any], at: tuple[str | int, ...]) -> Trigger:
    kind = str(body.get("type") or ("cron" if body.get("expression") else "recurrence")).lower()
    zone = _zone(str(body.get("time_zone") or "UTC"), at)
    start, end = _moment(body, "start_time", at), _moment(body, "end_time", at)
    if kind == "cron":
        expression = str(body.get("expression") or "")
        cron.parse(expression, (*at, "expression"))
        return Trigger(zone, expression, start=start, end=end)
    if kind != "recurrence":
        raise InvalidSpec(
            f"`{kind}` is not a trigger", "use `cron` or `recurrence`", at=(*at, "type")
        )
    frequency = str(body.get("frequency") or "").lower()
    if frequency not in _FREQUENCIES:
        raise InvalidSpec(
            f"`frequency` is `{frequency}`", f"one of: {', '.join(_FREQUENCIES)}", at=at
        )
    interval = fields.count(body, "interval", at, default=1, least=1)
    pattern = fields.mapping(body.get("schedule") or {}, "`schedule`")
    return Trigger(
        zone,
        "",
        frequency,
        int(interval),
        _numbers(pattern, "hours", 23, at),
        _numbers(pattern, "minutes", 59, at),
        _week_days(pattern, at),
        _numbers(pattern, "month_days", 31, at),
        start,
        end,
    )


def _numbers(
    body: Mapping[str, Any], key: str, maximum: int, at: tuple[str | int, ...]
) -> tuple[int, ...]:
    value = body.get(key)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
            raise InvalidSpec(
                f"`{key}` has `{value}`", f"numbers from 0 to {maximum}", at=(*at, "schedule", key)
            )
    return tuple(values)


def _week_days(body: Mapping[str, Any], at: tuple[str | int, ...]) -> tuple[int, ...]:
    value = body.get("week_days") or []
    names = [str(day).lower() for day in (value if isinstance(value, list) else [value])]
    for name in names:
        if name not in DAYS:
            raise InvalidSpec(
                f"`{name}` is not a day of the week", f"one of: {', '.join(DAYS)}", at=at
            )
    return tuple(DAYS.index(name) for name in names)


def _zone(name: str, at: tuple[str | int, ...]) -> str:
    name = _WINDOWS_ZONES.get(name.lower(), name)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidSpec(
            f"`{name[:50]}` is not a time zone",
            "write it as `Europe/Berlin`, or `UTC`",
            at=(*at, "time_zone"),
        ) from error
    return name


def _moment(body: Mapping[str, Any], key: str, at: tuple[str | int, ...]) -> datetime | None:
    value = body.get(key)
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    try:
        return datetime.fromisoformat(str(value).replace("Z", "")).replace(tzinfo=None)
    except ValueError as error:
        raise InvalidSpec(
            f"`{key}` is `{str(value)[:40]}`", "write it as `2026-01-31T08:30:00`", at=(*at, key)
        ) from error
