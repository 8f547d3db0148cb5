"""What the router counts, by deployment.

Owns: the counters and their JSON form, which the control socket gives out.
Leaves: utilisation, rates and quantiles to those who ask twice and subtract.
Always: counters only rise while the router runs; a new router begins at 0, which `started_at` and
the pid tell.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BUCKETS_MS = (
    0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000,
    3000, 5000, 7500, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000,
)  # fmt: skip
"""Upper bounds of the buckets of latencies; a last one has no bound."""


@dataclass
class Counters:
    """Of one deployment.

    Attributes:
        requests: answered or refused, by class of the client's status, such as `2xx`.
        refusals: of those, what the router itself said, by status.
        latency: requests by bucket of BUCKETS_MS, from the request's head to the answer's end;
            refusals don't count.
        latency_sum_s: of the same.
        busy_s: seconds of slots that had a request, of all instances together.
        mirrored: copies sent.
        mirror_skipped: copies not sent: no free slot, or a body over the limit for copies.
        collected: requests kept.
        collect_dropped: requests not kept: the disk was too slow, or failed.
        batches: joined requests that were sent to the model.
    """

    requests: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    latency: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_MS) + 1))
    latency_sum_s: float = 0.0
    busy_s: float = 0.0
    mirrored: int = 0
    mirror_skipped: int = 0
    collected: int = 0
    collect_dropped: int = 0
    batches: int = 0

    def answered(self, status: int, seconds: float) -> None:
        name = _CLASSES[status // 100] if 100 <= status < 600 else "5xx"
        self.requests[name] = self.requests.get(name, 0) + 1
        self.latency[bisect_left(BUCKETS_MS, seconds * 1000)] += 1
        self.latency_sum_s += seconds

    def refused(self, status: int) -> None:
        name, exact = _CLASSES[status // 100], str(status)
        self.requests[name] = self.requests.get(name, 0) + 1
        self.refusals[exact] = self.refusals.get(exact, 0) + 1


@dataclass(frozen=True)
class DeploymentStatistics:
    """
    Attributes:
        in_flight: requests at work by instance id, draining ones and those that have left the
            table too while they have any.
        queued: requests that wait for a free slot.
        waiting_since: Unix time since which a request waits for a first instance; else None.
    """

    counters: Counters
    in_flight: Mapping[str, int]
    queued: int
    waiting_since: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self.counters),
            "in_flight": dict(self.in_flight),
            "queued": self.queued,
            "waiting_since": self.waiting_since,
        }


_CLASSES = ("", "1xx", "2xx", "3xx", "4xx", "5xx")
