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
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from torchyard.base.documents.checks import At, By, Holds, Key, Text, Texts, Whole, Word
from torchyard.base.documents.faults import entries
from torchyard.base.documents.models import Document, File, declared, lenient, refused, rule
from torchyard.base.errors import InvalidSpec
from torchyard.instances import cron
from torchyard.instances.types import TYPE, InstanceSpec, Schedule, Trigger

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{1,22}[a-zA-Z0-9]\Z")
_FREQUENCIES = ("minute", "hour", "day", "week", "month")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MINUTES = re.compile(r"PT(?:(\d{1,5})H)?(?:(\d{1,6})M)?\Z")
_MOST_SCHEDULES = 50
_MOST = 2**31 - 1
_WRITTEN = Key("the server writes its own", "satisfied")
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


def _text(value: Any, at: At) -> str:
    return str(value or "")


def _zone(value: Any, at: At) -> str:
    name = str(value or "UTC")
    name = _WINDOWS_ZONES.get(name.lower(), name)
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidSpec(
            f"`{name[:50]}` is not a time zone", "write it as `Europe/Berlin`, or `UTC`", at=at
        ) from error
    return name


def _moment(value: Any, at: At) -> datetime | None:
    if value == "":
        return None
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    try:
        return datetime.fromisoformat(str(value).replace("Z", "")).replace(tzinfo=None)
    except ValueError as error:
        raise InvalidSpec(
            f"`{at[-1]}` is `{str(value)[:40]}`", "write it as `2026-01-31T08:30:00`", at=at
        ) from error


def _numbers(maximum: int) -> By:
    def read(value: Any, at: At) -> tuple[int, ...]:
        values = value if isinstance(value, list) else [value]
        for each in values:
            if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each <= maximum:
                raise InvalidSpec(f"`{at[-1]}` has `{each}`", f"numbers from 0 to {maximum}", at=at)
        return tuple(values)

    return By(read)


def _week_days(value: Any, at: At) -> tuple[int, ...]:
    days = value if isinstance(value, list) else [value] if value else []
    names = [str(day).lower() for day in days]
    for name in names:
        if name not in DAYS:
            raise InvalidSpec(
                f"`{name}` is not a day of the week", f"one of: {', '.join(DAYS)}", at=at
            )
    return tuple(DAYS.index(name) for name in names)


class PatternFile(Document):
    hours: tuple[int, ...] = declared((), "0 to 23; one, or a list", _numbers(23))
    minutes: tuple[int, ...] = declared((), "0 to 59; one, or a list", _numbers(59))
    week_days: tuple[int, ...] = declared((), "`monday` to `sunday`", By(_week_days))
    month_days: tuple[int, ...] = declared((), "1 to 31; one, or a list", _numbers(31))


class TriggerFile(Document):
    type: str = declared("", "`cron` or `recurrence`", Word("cron", "recurrence"))
    time_zone: str = declared("UTC", "as `Europe/Berlin`; default `UTC`", By(_zone))
    start_time: datetime | None = declared(None, "`2026-01-31T08:30:00`", By(_moment))
    end_time: datetime | None = declared(None, "`2026-01-31T08:30:00`", By(_moment))
    expression: str = declared("", "of `cron`: as `30 8 * * 1-5`", By(_text))
    frequency: str = declared(
        "", "of `recurrence`: `minute`, `hour`, `day`, `week`, `month`", Word(*_FREQUENCIES)
    )
    interval: int = declared(1, "each how many of them", Whole(1, _MOST))
    schedule: PatternFile = declared(PatternFile(), "when, see below")

    @property
    def is_cron(self) -> bool:
        return self.type == "cron" or bool(self.expression and not self.type)

    @rule("type", "expression")
    def _cron(self) -> None:
        if self.is_cron:
            cron.parse(self.expression, ("expression",))

    @rule("type", "expression", "frequency")
    def _recurrence(self) -> None:
        if not self.is_cron and not self.frequency:
            raise InvalidSpec(
                "the trigger has no `frequency`",
                f"one of: {', '.join(_FREQUENCIES)}",
                at=("frequency",),
            )

    @property
    def trigger(self) -> Trigger:
        if self.is_cron:
            return Trigger(
                self.time_zone, self.expression, start=self.start_time, end=self.end_time
            )
        when = self.schedule
        return Trigger(
            self.time_zone,
            "",
            self.frequency,
            self.interval,
            when.hours,
            when.minutes,
            when.week_days,
            when.month_days,
            self.start_time,
            self.end_time,
        )


class ScheduleFile(Document):
    action: str = declared("", "`start` or `stop`", Word("start", "stop"))
    state: str = declared("", "`enabled` (the default) or `disabled`", By(_text))
    status: str = declared("", "as `state`", By(_text))
    trigger: TriggerFile = declared(TriggerFile(), "when, see below")
    schedule_id: Any = declared(None, _WRITTEN)
    provisioning_state: Any = declared(None, _WRITTEN)

    @rule("action")
    def _action(self) -> None:
        if not self.action:
            raise InvalidSpec("a schedule has no `action`", "use `start` or `stop`", at=("action",))

    @property
    def schedule(self) -> Schedule:
        is_enabled = (self.state or self.status or "enabled").lower() == "enabled"
        return Schedule(self.action, self.trigger.trigger, is_enabled)


def _rows(value: Any, at: At) -> tuple[Schedule, ...]:
    rows = value or []
    if not isinstance(rows, list) or len(rows) > _MOST_SCHEDULES:
        raise InvalidSpec(
            "`schedules.compute_start_stop` is not a list",
            f"of up to {_MOST_SCHEDULES} schedules, each with `action` and `trigger`",
            at=at,
        )
    files = entries(dict(enumerate(rows)), at, ScheduleFile.read)
    return tuple(file.schedule for file in files.values())


class SchedulesFile(Document):
    compute_start_stop: tuple[Schedule, ...] = declared(
        (), "a list of `{action, trigger}`", By(_rows)
    )


class OwnSettings(Document):
    cluster: str = declared("", "where it runs; default `local`", By(_text))
    environment: Any = declared(None, "what is installed, as of a job")


class InstanceFile(File):
    subject: ClassVar[str] = "the compute"

    name: str = declared("", "3 to 24 letters, digits and dashes", Text())
    type: Any = declared(None, "`computeinstance`")
    size: str = declared("", "shown; the cluster decides", Text(), support="satisfied")
    description: str = declared("", check=Text())
    tags: dict[str, str] = declared({}, "texts and numbers", Texts())
    location: Any = declared(None, "the server's machine", support="satisfied")
    schedules: SchedulesFile = declared(
        SchedulesFile(),
        "`{compute_start_stop: […]}`",
        By(lambda value, at: SchedulesFile.read(value or {}, at), of=SchedulesFile),
    )
    idle_time_before_shutdown_minutes: int = declared(
        0, "without use, after which it stops; 0: never", Whole(0, _MOST)
    )
    idle_time_before_shutdown: Any = declared(None, "the same as `PT30M`")
    torchyard: OwnSettings = declared(
        OwnSettings(),
        "torchyard's own",
        By(lambda value, at: OwnSettings.read(value or {}, at), of=OwnSettings),
    )
    ssh_public_access_enabled: None = declared(
        None, check=Holds(False, "`yard job shell` opens a shell")
    )
    enable_node_public_ip: None = declared(
        None, check=Holds(True, "it is reached through the server")
    )
    enable_sso: None = declared(None, check=Holds(True, "its links let people in"))
    enable_root_access: None = declared(None, check=Holds(True, "it runs as its owner's Unix user"))
    release_quota_on_stop: None = declared(None, check=Holds(False, "a stopped one holds no node"))
    enable_os_patching: None = declared(None, check=Holds(False, "the machine is its owner's"))
    ssh_settings: None = refused("`yard job shell` opens a shell in it")
    network_settings: None = refused("nodes use the machine's network")
    identity: None = refused("it runs as its owner's Unix user")
    create_on_behalf_of: None = refused("sign in as the person who is to own it")
    setup_scripts: None = refused("run them in its terminal, or give `torchyard: {environment: …}`")
    custom_applications: None = refused("start them in a job, as `services:`")

    @rule("name")
    def _name(self) -> None:
        if not _NAME.match(self.name):
            raise InvalidSpec(
                f"`{self.name[:50]}` is not a valid compute name"
                if self.name
                else "the compute has no `name`",
                "use 3 to 24 letters, digits and dashes, starting with a letter",
                at=["name"],
            )

    @rule("idle_time_before_shutdown", "idle_time_before_shutdown_minutes")
    def idle_minutes(self) -> int:
        written = self.idle_time_before_shutdown
        if not written or self.idle_time_before_shutdown_minutes:
            return self.idle_time_before_shutdown_minutes
        match = _MINUTES.match(str(written))
        if match is None:
            raise InvalidSpec(
                f"`idle_time_before_shutdown` is `{written}`",
                "write it as `PT30M`",
                at=["idle_time_before_shutdown"],
            )
        return 60 * int(match[1] or 0) + int(match[2] or 0)


def read_stored(document: Mapping[str, Any]) -> InstanceSpec:
    """Of an instance that there is, whatever its document has beside."""
    with lenient():
        return read(document)


def read(document: Any) -> InstanceSpec:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    file = InstanceFile.read(document)
    return InstanceSpec(
        name=file.name,
        size=file.size,
        description=file.description,
        tags=file.tags,
        idle_minutes=file.idle_minutes(),
        schedules=file.schedules.compute_start_stop,
        cluster=file.torchyard.cluster,
        environment=file.torchyard.environment,
    )
