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
from typing import Annotated, Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from torchyard.base.documents.models import (
    At,
    By,
    Document,
    File,
    Holds,
    Key,
    Refused,
    Text,
    Texts,
    Whole,
    Word,
    entries,
    rule,
)
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
    hours: Annotated[tuple[int, ...], _numbers(23), Key("0 to 23; one, or a list")] = ()
    minutes: Annotated[tuple[int, ...], _numbers(59), Key("0 to 59; one, or a list")] = ()
    week_days: Annotated[tuple[int, ...], By(_week_days), Key("`monday` to `sunday`")] = ()
    month_days: Annotated[tuple[int, ...], _numbers(31), Key("1 to 31; one, or a list")] = ()


class TriggerFile(Document):
    type: Annotated[str, Word("cron", "recurrence"), Key("`cron` or `recurrence`")] = ""
    time_zone: Annotated[str, By(_zone), Key("as `Europe/Berlin`; default `UTC`")] = "UTC"
    start_time: Annotated[datetime | None, By(_moment), Key("`2026-01-31T08:30:00`")] = None
    end_time: Annotated[datetime | None, By(_moment), Key("`2026-01-31T08:30:00`")] = None
    expression: Annotated[str, By(_text), Key("of `cron`: as `30 8 * * 1-5`")] = ""
    frequency: Annotated[
        str, Word(*_FREQUENCIES), Key("of `recurrence`: `minute`, `hour`, `day`, `week`, `month`")
    ] = ""
    interval: Annotated[int, Whole(1, _MOST), Key("each how many of them")] = 1
    schedule: Annotated[PatternFile, Key("when, see below")] = PatternFile()

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
    action: Annotated[str, Word("start", "stop"), Key("`start` or `stop`")] = ""
    state: Annotated[str, By(_text), Key("`enabled` (the default) or `disabled`")] = ""
    status: Annotated[str, By(_text), Key("as `state`")] = ""
    trigger: Annotated[TriggerFile, Key("when, see below")] = TriggerFile()
    schedule_id: Annotated[Any, _WRITTEN] = None
    provisioning_state: Annotated[Any, _WRITTEN] = None

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
    compute_start_stop: Annotated[
        tuple[Schedule, ...], By(_rows), Key("a list of `{action, trigger}`")
    ] = ()


class OwnSettings(Document):
    cluster: Annotated[str, By(_text), Key("where it runs; default `local`")] = ""
    environment: Annotated[Any, Key("what is installed, as of a job")] = None


class InstanceFile(File):
    subject: ClassVar[str] = "the compute"

    name: Annotated[str, Text(), Key("3 to 24 letters, digits and dashes")] = ""
    type: Annotated[Any, Key("`computeinstance`")] = None
    size: Annotated[str, Text(), Key("shown; the cluster decides", "satisfied")] = ""
    description: Annotated[str, Text(), Key()] = ""
    tags: Annotated[dict[str, str], Texts(), Key("texts and numbers")] = Field(default_factory=dict)
    location: Annotated[Any, Key("the server's machine", "satisfied")] = None
    schedules: Annotated[
        SchedulesFile,
        By(lambda value, at: SchedulesFile.read(value or {}, at), of=SchedulesFile),
        Key("`{compute_start_stop: […]}`"),
    ] = SchedulesFile()
    idle_time_before_shutdown_minutes: Annotated[
        int, Whole(0, _MOST), Key("without use, after which it stops; 0: never")
    ] = 0
    idle_time_before_shutdown: Annotated[Any, Key("the same as `PT30M`")] = None
    torchyard: Annotated[
        OwnSettings,
        By(lambda value, at: OwnSettings.read(value or {}, at), of=OwnSettings),
        Key("torchyard's own"),
    ] = OwnSettings()
    ssh_public_access_enabled: Annotated[None, Holds(False, "`yard job shell` opens a shell")] = (
        None
    )
    enable_node_public_ip: Annotated[None, Holds(True, "it is reached through the server")] = None
    enable_sso: Annotated[None, Holds(True, "its links let people in")] = None
    enable_root_access: Annotated[None, Holds(True, "it runs as its owner's Unix user")] = None
    release_quota_on_stop: Annotated[None, Holds(False, "a stopped one holds no node")] = None
    enable_os_patching: Annotated[None, Holds(False, "the machine is its owner's")] = None
    ssh_settings: Annotated[None, Refused("`yard job shell` opens a shell in it")] = None
    network_settings: Annotated[None, Refused("nodes use the machine's network")] = None
    identity: Annotated[None, Refused("it runs as its owner's Unix user")] = None
    create_on_behalf_of: Annotated[None, Refused("sign in as the person who is to own it")] = None
    setup_scripts: Annotated[
        None, Refused("run them in its terminal, or give `torchyard: {environment: …}`")
    ] = None
    custom_applications: Annotated[None, Refused("start them in a job, as `services:`")] = None

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
