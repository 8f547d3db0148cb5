"""What a worker reports about its node, by kind.

Owns: the types.
Leaves: checking a worker's JSON to report_fields.py, acting on it to worker_reports.py.
Always: an event of a kind that this server doesn't know is counted, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchyard.jobs.records.types import JobError


@dataclass(frozen=True)
class RanksStarted: ...


@dataclass(frozen=True)
class RankExited:
    """`consequence`: all there is to see is a connection that another rank broke."""

    exit_code: int
    signal: int
    consequence: bool

    @property
    def failed(self) -> bool:
        return bool(self.exit_code or self.signal)


@dataclass(frozen=True)
class RanksHang: ...


@dataclass(frozen=True)
class RanksStand:
    """Where the ranks of a node are and what they called last, as records/stalls.py keeps it.

    They stand still if `quiet_s` is more than 0; else they are about to be stopped.
    """

    stand: Mapping[str, Any]


@dataclass(frozen=True)
class RanksGoOn:
    """They had stood still."""


@dataclass(frozen=True)
class NodeServing:
    """Nothing but parameter servers still runs there."""


@dataclass(frozen=True)
class NodeStopping:
    reason: str


@dataclass(frozen=True)
class PreflightReported:
    """`findings` is shown to people as the worker's preflight wrote it."""

    findings: Mapping[str, Any]


@dataclass(frozen=True)
class NoticeReported:
    message: str


@dataclass(frozen=True)
class ServiceReported:
    """What has become of a program beside the ranks; `state` is the worker's word for it."""

    name: str
    type: str
    state: str
    message: str
    restarts: int
    port: int


@dataclass(frozen=True)
class NodeHeld:
    """The node stays until then, in seconds since 1970, though its ranks have ended."""

    until: int


@dataclass(frozen=True)
class NodeFinalizing: ...


@dataclass(frozen=True)
class NodeExited:
    """`early_exit` is its rank that left first with code 0: `rank` and the time `at`."""

    exit_code: int
    error: JobError | None
    early_exit: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class OtherReported:
    kind: str


Report = (
    RanksStarted
    | RankExited
    | RanksHang
    | RanksStand
    | RanksGoOn
    | NodeServing
    | NodeStopping
    | PreflightReported
    | NoticeReported
    | ServiceReported
    | NodeHeld
    | NodeFinalizing
    | NodeExited
    | OtherReported
)


@dataclass(frozen=True)
class WorkerEvent:
    """`seq` counts per node from 0; `at` is the node's own time. It happened `age_s` before it was
    sent, by a clock that nobody sets.
    """

    seq: int
    at: datetime
    report: Report
    age_s: float = 0.0
