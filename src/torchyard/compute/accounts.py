"""Node-hours by UTC day: how long nodes existed, and how long jobs held them.

Owns: splitting a span of time into days, adding it up.
Leaves: when nodes are made and removed to nodes.py and scaling.py.
Always: a node counts from when it was made; while it exists its time so far is added on reading,
so figures are always current.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

from sqlalchemy import Connection

from torchyard.compute import store
from torchyard.compute.types import Compute, Node, NodeHours

Span = tuple[datetime, datetime]


def charge(
    connection: Connection,
    workspace: str,
    name: str,
    existed: Iterable[Span] = (),
    busy_spans: Iterable[Span] = (),
) -> None:
    """Record the finished spans in which nodes existed or were held."""
    store.add_use(connection, workspace, name, _sums(existed, busy_spans))


def usage(connection: Connection, compute: Compute, now: datetime) -> list[NodeHours]:
    """By day, oldest first, with the nodes that exist now."""
    nodes: list[Node] = store.nodes_in(connection, compute.workspace, compute.name)[compute.name]
    days = dict(store.use_by_day(connection, compute.workspace, compute.name))
    existing = [(node.made_at, now) for node in nodes]
    busy_spans = [(node.since, now) for node in nodes if node.attempt_id]
    for day, (node_seconds, busy_seconds) in _sums(existing, busy_spans).items():
        before = days.get(day, (0.0, 0.0))
        days[day] = (before[0] + node_seconds, before[1] + busy_seconds)
    return [
        NodeHours(day, there / 3600, busy / 3600) for day, (there, busy) in sorted(days.items())
    ]


def _sums(existed: Iterable[Span], busy_spans: Iterable[Span]) -> dict[str, tuple[float, float]]:
    sums: dict[str, tuple[float, float]] = {}
    for index, spans in enumerate((existed, busy_spans)):
        for span in spans:
            for day, seconds in by_day(*span):
                there, busy = sums.get(day, (0.0, 0.0))
                sums[day] = (there + seconds, busy) if index == 0 else (there, busy + seconds)
    return sums


def by_day(start: datetime, end: datetime) -> Iterator[tuple[str, float]]:
    """The seconds of each UTC day between two moments."""
    start, end = start.astimezone(timezone.utc), end.astimezone(timezone.utc)
    while start < end:
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        until = min(midnight, end)
        yield start.date().isoformat(), (until - start).total_seconds()
        start = until
