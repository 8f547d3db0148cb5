"""The types of this package: what is kept of a validation or a release, schedules, advisories."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

VALIDATION, RELEASE = "validation", "release"
"""`Job.type` of each."""
CHANGED = "releases"
"""What `Signals` calls a new validation or release."""

# The gates, in the order in which a release passes them.
RESOLVE, BUILD, LABEL = "resolve", "build", "label"
AUDIT, VALIDATE, REGISTER = "audit", "validate", "register"
_LONGEST_WORD = 100
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def as_word(environment: str) -> str:
    """An environment's name as part of a job's or an experiment's, which have no dots."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", environment)[:_LONGEST_WORD]


@dataclass(frozen=True)
class Gate:
    """What became of one gate of a release; `message` says what was found."""

    name: str
    status: str
    message: str = ""

    def to_json(self) -> dict[str, str]:
        return dict(vars(self))


@dataclass(frozen=True)
class Record:
    """A validation or release. `job` is its job's name, `base` the version it began from.

    `request` is what was asked. `stage` is the gate that it works at; `gates` are those behind it.
    `results` is what the stages came to, for the next ones: `candidate` (an inline definition),
    `hash`, `lock`, `changes`, `audit`. `report` is that of the validation; `version` the one that
    was registered, empty until then.
    """

    job_id: int
    workspace: str
    job: str
    kind: str
    environment: str
    base: str
    owner: str
    created_at: datetime
    request: Mapping[str, Any]
    stage: str = ""
    gates: tuple[Gate, ...] = ()
    results: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True)
class Schedule:
    """A release of an environment each `every_s`; `next_at` is when the next one is due."""

    workspace: str
    environment: str
    owner: str
    every_s: int
    request: Mapping[str, Any]
    next_at: datetime
    created_at: datetime
    last_job: str = ""


@dataclass(frozen=True)
class AdvisorySet:
    """What a workspace knows of vulnerabilities; `replaced_at` is when it was sent."""

    workspace: str
    id: str
    replaced_at: datetime
    sent_by: str
    count: int
