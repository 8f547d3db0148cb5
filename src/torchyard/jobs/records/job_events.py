"""The events of a job, and what they say by kind.

Owns: events, their kinds, and their JSON as it is stored and streamed to clients.
Leaves: when an event is written to progress.py, its row to store.py.
Always: an event's JSON holds exactly the fields of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from torchyard.jobs.records.types import Stage, Status


@dataclass(frozen=True)
class StatusChanged:
    kind: ClassVar[str] = "status"
    status: Status

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status.value}


@dataclass(frozen=True)
class StageChanged:
    """A stage starts or ends.

    `waited_for` says what keeps the job in it. `build_log_offset` is set when it waits for the
    build of its environment: where, in bytes, that build begins in the log; `builds_ahead` are
    built before it. A start has the reading of the steady clock, an end the seconds that the stage
    took by it.
    """

    kind: ClassVar[str] = "stage"
    stage: Stage
    state: Literal["start", "end"]
    waited_for: str = ""
    build_log_offset: int | None = None
    steady: str = ""
    took_s: float | None = None
    builds_ahead: int = 0

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "stage": self.stage.value,
            "state": self.state,
            "waited_for": self.waited_for,
        }
        if self.build_log_offset is not None:
            body["build_log_offset"] = self.build_log_offset
        if self.steady:
            body["steady"] = self.steady
        if self.took_s is not None:
            body["took_s"] = self.took_s
        if self.builds_ahead:
            body["builds_ahead"] = self.builds_ahead
        return body


@dataclass(frozen=True)
class Notice:
    """Something that the user is told about how the job is run."""

    kind: ClassVar[str] = "notice"
    message: str

    def to_json(self) -> dict[str, Any]:
        return {"message": self.message}


@dataclass(frozen=True)
class OtherEvent:
    """Of a kind that a newer server wrote; it is passed on as it is."""

    kind: str
    body: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return dict(self.body)


EventBody = StatusChanged | StageChanged | Notice | OtherEvent


def from_json(kind: str, body: Mapping[str, Any]) -> EventBody:
    """An event's body as it was stored."""
    if kind == StatusChanged.kind:
        return StatusChanged(Status(body["status"]))
    if kind == StageChanged.kind:
        return StageChanged(
            Stage(body["stage"]),
            body["state"],
            body.get("waited_for", ""),
            body.get("build_log_offset"),
            body.get("steady", ""),
            body.get("took_s"),
            body.get("builds_ahead", 0),
        )
    if kind == Notice.kind:
        return Notice(body["message"])
    return OtherEvent(kind, body)


@dataclass(frozen=True)
class Event:
    """One fact of a job; `seq` counts per job from 1."""

    seq: int
    at: datetime
    body: EventBody

    @property
    def kind(self) -> str:
        return self.body.kind


def notices_of(events: Sequence[Event]) -> list[str]:
    """What the user was told, oldest first."""
    return [event.body.message for event in events if isinstance(event.body, Notice)]


def build_log_offset(event: Event) -> int | None:
    """Where the build begins in its log that the job waits for from this event on."""
    return event.body.build_log_offset if isinstance(event.body, StageChanged) else None
