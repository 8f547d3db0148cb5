"""The types of this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from torchyard.shared.plan import LOCAL as LOCAL

SUCCEEDED, DELETING = "Succeeded", "Deleting"
# An agent reports every 10 seconds.
_AWAY_AFTER = timedelta(seconds=35)
# A machine installs Ray before its agent reports for the first time.
_JOINS_WITHIN = timedelta(minutes=30)


def head_key(workspace: str, compute: str) -> str:
    """The Ray head that torchyard starts for a cluster, also as the name of its folder."""
    return f"{workspace}.{compute}"


@dataclass(frozen=True)
class Compute:
    """A cluster of up to `max_instances` nodes of one size. Keys and defaults are Azure ML's.

    `engine` is ours: what runs the nodes, as `engine_settings` say. `cores`, `memory_bytes` and
    `gpus` of a node are copied from the size when the cluster is created; they are None without a
    size, and then a node is the machine itself.
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
    engine_settings: Mapping[str, Any] | None = None

    @property
    def is_local(self) -> bool:
        """Whether its nodes are processes of the server's machine."""
        return self.engine == LOCAL

    @property
    def settings(self) -> Mapping[str, Any]:
        """What its engine is told; see engine_settings.py. `head` names the Ray head that
        torchyard starts for it.
        """
        settings = self.engine_settings or {}
        if settings.get("start"):
            return {**settings, "head": head_key(self.workspace, self.name)}
        return settings

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
    """The number of nodes from `at` on, and why it changed; `machines` is how many its engine has,
    None where it is local or was not asked yet.
    """

    at: datetime
    current: int
    running: int
    target: int
    reason: str
    machines: int | None = None


@dataclass(frozen=True)
class NodeHours:
    """How long nodes existed, and how long jobs held them, on one UTC day."""

    day: str
    node_hours: float
    busy_hours: float


@dataclass(frozen=True)
class JoinedMachine:
    """A machine that somebody has joined to a cluster with `yard node join`.

    Only jobs of its `owner` run there, unless it `takes_everybody`. `facts` is what its agent
    found: hostname, cpus, memory_bytes, gpus, gpu_kind, system, version, runner.
    """

    workspace: str
    compute: str
    name: str
    owner: str
    address: str
    facts: Mapping[str, Any]
    draining: bool
    joined_at: datetime
    seen_at: datetime

    @property
    def takes_everybody(self) -> bool:
        """Whether jobs run there as the Unix accounts of their people, and so everybody's may."""
        return bool(self.facts.get("runner"))

    def state(self, now: datetime) -> str:
        """joining until its agent reports; then joined, draining, or away when it is silent."""
        silence = now - self.seen_at
        if self.seen_at == self.joined_at and silence < _JOINS_WITHIN:
            return "joining"
        if silence > _AWAY_AFTER:
            return "away"
        return "draining" if self.draining else "joined"
