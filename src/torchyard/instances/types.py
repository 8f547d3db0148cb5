"""The types of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

TYPE = "computeinstance"
RUNNING, STOPPED = "Running", "Stopped"
STARTING, STOPPING, FAILED = "Starting", "Stopping", "CreateFailed"
SERVICE = "jupyterlab"


@dataclass(frozen=True)
class Trigger:
    """When something happens: by `cron`, or each `interval` of `frequency` at `hours` and `minutes`
    on `week_days` (0 is Monday) and `month_days`. `start` and `end` are local times of `zone`.
    """

    zone: str = "UTC"
    cron: str = ""
    frequency: str = ""
    interval: int = 1
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()
    week_days: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class Schedule:
    """`action` is start or stop."""

    action: str
    trigger: Trigger
    enabled: bool = True


@dataclass(frozen=True)
class InstanceSpec:
    """What its document says. `cluster` is where it runs, `environment` what is installed."""

    name: str
    size: str = ""
    description: str = ""
    tags: Mapping[str, str] | None = None
    idle_minutes: int = 0
    schedules: tuple[Schedule, ...] = ()
    cluster: str = ""
    environment: Any = None


@dataclass(frozen=True)
class Instance:
    """One in the database. `state` is what is wanted of it, Running or Stopped; `job` runs it.
    `active_at` is when somebody last used it, `scheduled_at` up to when schedules were obeyed.
    """

    workspace: str
    name: str
    owner: str
    document: Mapping[str, Any]
    state: str
    message: str
    job: str
    starts: int
    created_at: datetime
    active_at: datetime
    scheduled_at: datetime
