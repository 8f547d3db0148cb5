"""The nouns of this room."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

LOCAL = "local"


@dataclass(frozen=True)
class Compute:
    """A cluster of up to `max_instances` nodes of one size. Keys and defaults are Azure ML's."""

    name: str
    workspace: str
    created_at: datetime
    type: str = "amlcompute"
    size: str = ""
    tier: str = "dedicated"
    min_instances: int = 0
    max_instances: int = 4
    idle_time_before_scale_down: int = 120
    description: str = ""
    tags: dict[str, str] | None = None


@dataclass(frozen=True)
class Use:
    """What a cluster is doing now, in nodes."""

    busy: int
