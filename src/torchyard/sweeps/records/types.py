"""What a trial is to the other folders and to the protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any


class Outcome(str, Enum):
    """What a trial came to, as the sampler is told."""

    LIVE = ""
    COMPLETED = "completed"
    STOPPED = "stopped"  # by the policy
    FAILED = "failed"
    CANCELED = "canceled"


@dataclass(frozen=True)
class Trial:
    """One trial of a sweep: the job `name`, with these parameters.

    `values` are its objectives' in their order, empty while one is missing: of the only one the
    best that it logged, of several the last. `intervals` is how many values of the primary metric
    it logged before it ended or was stopped, `constraints` has the last values of the sampling's
    constraints. `reason` says why it was stopped, failed or has no value. One that waits at a rung
    of ASHA or Hyperband `is_paused`, `promotions` is how often it went on from one. What its job
    says is filled in by actions.trials: `status` is empty where the job was deleted.
    """

    number: int
    name: str
    parameters: Mapping[str, Any]
    created_at: datetime
    outcome: Outcome = Outcome.LIVE
    values: tuple[float, ...] = ()
    status: str = ""
    constraints: tuple[float, ...] = ()
    intervals: int = 0
    reason: str = ""
    promotions: int = 0
    is_paused: bool = False
    job_id: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
