"""The types of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

LOCAL = "local"
SUCCEEDED, DELETING = "Succeeded", "Deleting"


@dataclass(frozen=True)
class Compute:
    """A cluster of up to `max_instances` nodes of one size. Keys and defaults are Azure ML's.

    `engine` is ours: what runs the nodes. `cores`, `memory_bytes` and `gpus` of a node are copied
    from the size when the cluster is created; they are None without a size, and then a node is
    the machine itself.
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
    """One node that exists. `attempt_id` is empty for an idle one; `since` is when it became idle
    or held; `preempted` means that its job has to make way for a dedicated one.
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
    """A cluster's nodes by state; `target` is how many there should be."""

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
    """The number of nodes from `at` on, and why it changed."""

    at: datetime
    current: int
    running: int
    target: int
    reason: str


@dataclass(frozen=True)
class Usage:
    """How long nodes existed, and how long jobs held them, on one UTC day."""

    day: str
    node_hours: float
    busy_hours: float
