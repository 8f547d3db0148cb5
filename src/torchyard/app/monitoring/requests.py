"""Middleware that counts requests and measures how long their responses take to begin.

Owns: the counts by group of routes and status, the histogram of latencies, requests in progress.
Leaves: their text to exposition.py.
Always: the labels come from fixed sets, so no client can make the server keep more numbers; what
a request costs here is two clock readings and a few additions.

A response's latency ends with its head: streams of jobs stay open for hours.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torchyard.app.monitoring.exposition import Family, Sample, number
from torchyard.features import features

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OTHER = "other"
_OF_WORKSPACE = {
    "endpoint-metrics",
    *(noun for each in features() for nouns in each.routes for noun in nouns if noun[0] != "/"),
}
_OF_SERVER = frozenset(
    {"attempts", "users", "whoami", "audit", "disk", "gc", "server", "sign-in", "invitations"}
)
_MONITORING = frozenset({"health", "livez", "readyz", "metrics"})
_AZURE = frozenset(
    {"azureml", "azureml-above", "subscriptions", "mferp", "history", "azureml-blob"}
)


def group_of(path: str) -> str:
    """The group of routes that a path belongs to: one of about thirty words."""
    parts = path[1:200].split("/", 4)
    first = parts[0]
    if first == "v1" and len(parts) > 1:
        if parts[1] != "workspaces":
            return parts[1] if parts[1] in _OF_SERVER else OTHER
        noun = parts[3] if len(parts) > 3 else "workspaces"
        return noun if noun in _OF_WORKSPACE or noun == "workspaces" else OTHER
    if first == "mlflow" or path.startswith("/api/2.0/mlflow"):
        return "mlflow"
    if first == "ui":
        return "page"
    if first in _MONITORING:
        return "monitoring"
    return "azureml" if first in _AZURE else OTHER


class Requests:
    """The numbers of one server process; changed by its event loop's thread only."""

    def __init__(self) -> None:
        self.in_progress: Counter[str] = Counter()
        self._counts: dict[tuple[str, str], int] = {}
        self._buckets: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}

    def record(self, group: str, status: int, took_s: float) -> None:
        key = (group, str(status))
        self._counts[key] = self._counts.get(key, 0) + 1
        buckets = self._buckets.get(group)
        if buckets is None:
            buckets = self._buckets[group] = [0] * (len(BOUNDS_S) + 1)
            self._sums_s[group] = 0.0
        buckets[bisect_left(BOUNDS_S, took_s)] += 1
        self._sums_s[group] += took_s

    def families(self) -> list[Family]:
        counts = tuple(
            Sample(count, {"group": group, "status": status})
            for (group, status), count in sorted(self._counts.items())
        )
        return [
            Family(
                "torchyard_http_requests_total",
                "Requests that were answered, by group of routes and status.",
                "counter",
                counts,
            ),
            Family(
                "torchyard_http_request_duration_seconds",
                "Time from a request's head to its response's head.",
                "histogram",
                tuple(self._histograms()),
            ),
            Family(
                "torchyard_http_requests_in_progress",
                "Requests whose response has not ended, by group of routes.",
                "gauge",
                tuple(
                    Sample(count, {"group": group})
                    for group, count in sorted(self.in_progress.items())
                ),
            ),
        ]

    def _histograms(self) -> list[Sample]:
        samples = []
        for group, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*BOUNDS_S, float("inf")), buckets, strict=True):
                total += count
                samples.append(Sample(total, {"group": group, "le": number(bound)}, "_bucket"))
            samples.append(Sample(self._sums_s[group], {"group": group}, "_sum"))
            samples.append(Sample(total, {"group": group}, "_count"))
        return samples


class Measuring:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        requests = self._requests
        # Before others rewrite it.
        group, started = group_of(scope["path"]), time.perf_counter()

        is_answered = False

        async def measured(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                requests.record(group, message["status"], time.perf_counter() - started)
            await send(message)

        requests.in_progress[group] += 1
        try:
            await self._app(scope, receive, measured)
        except Exception:
            if not is_answered:
                # Starlette answers what nobody has caught outside of all middleware.
                requests.record(group, 500, time.perf_counter() - started)
            raise
        finally:
            requests.in_progress[group] -= 1
