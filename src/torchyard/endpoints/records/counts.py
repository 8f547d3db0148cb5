"""What the router has counted of a deployment.

Owns: `Counts`, and reading them from the answer of the router's control socket.
Leaves: counting to router/statistics.py; rates and quantiles to those who use them.
Always: what a router of another version does not say is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.endpoints.router import control
from torchyard.endpoints.router.control import RouterAway
from torchyard.endpoints.router.statistics import BUCKETS_MS

Name = tuple[str, str, str]
"""Workspace, endpoint and deployment."""
FOLDER = "router"
"""Of the router, in the home."""


@dataclass(frozen=True)
class Counts:
    """As `router.statistics.Counters`; those with an s at the end of their unit are seconds."""

    requests: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    latency: Sequence[int] = (0,) * (len(BUCKETS_MS) + 1)
    latency_sum_s: float = 0.0
    busy_s: float = 0.0
    mirrored: int = 0
    collected: int = 0
    collect_dropped: int = 0
    in_flight: int = 0
    queued: int = 0


def ask(home: Path) -> dict[Name, Counts]:
    """Of every deployment; empty while no router answers."""
    try:
        answer = control.ask(home / FOLDER, {"ask": "statistics"})
    except RouterAway:
        return {}
    counts: dict[Name, Counts] = {}
    for key, endpoint in (answer.get("endpoints") or {}).items():
        workspace, _, name = str(key).partition("/")
        for deployment, body in (endpoint.get("deployments") or {}).items():
            counts[workspace, name, deployment] = read(body)
    return counts


def read(body: Mapping[str, Any]) -> Counts:
    latency = body.get("latency") or ()
    return Counts(
        dict(body.get("requests") or {}),
        dict(body.get("refusals") or {}),
        tuple(latency) if len(latency) == len(BUCKETS_MS) + 1 else Counts.latency,
        float(body.get("latency_sum_s") or 0),
        float(body.get("busy_s") or 0),
        int(body.get("mirrored") or 0),
        int(body.get("collected") or 0),
        int(body.get("collect_dropped") or 0),
        sum((body.get("in_flight") or {}).values()),
        int(body.get("queued") or 0),
    )
