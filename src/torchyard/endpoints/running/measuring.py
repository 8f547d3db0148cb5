"""What requests of a deployment were like in the last half minute.

Owns: the time between two measurements, rates and quantiles of what the router counted between.
Leaves: counting to router/statistics.py, keeping the metrics to jobs/history/.
Always: while nobody asks there is no measurement; a router that begins at 0 again loses nothing
of what it counted since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchyard.endpoints.records.counts import Counts, Name
from torchyard.endpoints.router.statistics import BUCKETS_MS

EVERY_S = 30.0
_ERRORS = ("4xx", "5xx")
_NONE = Counts()


@dataclass(frozen=True)
class Figures:
    """Of the requests of one deployment between two measurements; `errors` are all answers that
    are not 1xx, 2xx or 3xx, the router's own among them.
    """

    requests: int
    requests_per_s: float
    errors: int
    latency_p50_ms: float
    latency_p90_ms: float
    latency_p99_ms: float


class Measurements:
    """Of all deployments; in one thread."""

    def __init__(self) -> None:
        self._before: dict[Name, tuple[float, Counts]] = {}

    def take(self, name: Name, counts: Counts, now_s: float) -> Figures | None:
        """The figures since the last measurement; None where it is not time for one, or nobody
        has asked.

        Args:
            now_s: of a monotonic clock.
        """
        began_s, before = self._before.setdefault(name, (now_s, counts))
        if now_s - began_s < EVERY_S:
            return None
        self._before[name] = (now_s, counts)
        return _between(before, counts, now_s - began_s)

    def forget_others(self, names: Sequence[Name]) -> None:
        for name in [name for name in self._before if name not in names]:
            del self._before[name]


def quantile_ms(latency: Sequence[int], share: float) -> float:
    """The latency that this share of requests did not exceed, as if requests lay evenly in their
    bucket; the last bound for what is above it, 0 without requests.

    Args:
        latency: requests by bucket of `BUCKETS_MS`, and those above.
    """
    rank, passed = share * sum(latency), 0
    if not rank:
        return 0.0
    for index, count in enumerate(latency[:-1]):
        if passed + count >= rank:
            low = BUCKETS_MS[index - 1] if index else 0.0
            return low + (BUCKETS_MS[index] - low) * (rank - passed) / count
        passed += count
    return float(BUCKETS_MS[-1])


def _between(before: Counts, after: Counts, seconds: float) -> Figures | None:
    if any(after.requests.get(key, 0) < count for key, count in before.requests.items()):
        before = _NONE  # another router
    requests = {key: count - before.requests.get(key, 0) for key, count in after.requests.items()}
    total = sum(requests.values())
    if not total:
        return None
    latency = [new - old for new, old in zip(after.latency, before.latency, strict=True)]
    return Figures(
        total,
        total / seconds,
        sum(requests.get(key, 0) for key in _ERRORS),
        quantile_ms(latency, 0.5),
        quantile_ms(latency, 0.9),
        quantile_ms(latency, 0.99),
    )
