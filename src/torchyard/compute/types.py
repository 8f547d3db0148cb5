"""The nouns of this room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

LOCAL = "local"
SUCCEEDED, DELETING = "Succeeded", "Deleting"


@dataclass(frozen=True)
class Compute:
    """A cluster of up to `max_instances` nodes of one size. Keys and defaults are Azure ML's.

    `engine` is ours: what the nodes are. What the size promises a node is written down when the
    cluster is made: `cores`, `memory_bytes` and `gpus` are None without a size, and then a node
    is the machine itself.
    """

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
    engine: str = LOCAL
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    gpu_kind: str = ""
    owner: str = ""
    provisioning_state: str = SUCCEEDED

    @property
    def deleting(self) -> bool:
        return self.provisioning_state == DELETING


@dataclass(frozen=True)
class Node:
    """One node that exists. `attempt_id` is empty for an idle one; `since` tells from when on it
    has been idle or held; `preempted` says that its job has to leave for a dedicated one.
    """

    number: int
    made_at: datetime
    since: datetime
    attempt_id: str = ""
    preempted: bool = False

    def state(self, max_instances: int) -> str:
        """Azure ML's word for it."""
        if not self.attempt_id:
            return "idle"
        if self.preempted:
            return "preempted"
        return "running" if self.number < max_instances else "leaving"


@dataclass(frozen=True)
class Use:
    """What a cluster is doing now, in nodes; `target` is how many there shall be."""

    counts: Mapping[str, int]
    target: int

    @property
    def current(self) -> int:
        """Nodes that exist."""
        return sum(self.counts.values())

    @property
    def busy(self) -> int:
        """Nodes that jobs hold."""
        return self.current - self.counts["idle"]


@dataclass(frozen=True)
class Sample:
    """How many nodes there were from `at` on, and why it changed."""

    at: datetime
    current: int
    running: int
    target: int
    reason: str


@dataclass(frozen=True)
class Usage:
    """Of one UTC day: how long nodes existed, and how long jobs held them."""

    day: str
    node_hours: float
    busy_hours: float
