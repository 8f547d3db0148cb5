"""Recognise a point that two clients logged: once with a step, once without.

Owns: when two such points are the same.
Leaves: numbering what has no twin to stepless_points.py, tables to history_store.py.
Always: of two twins the one with the step stays, whichever came first; points of the same client
are never compared.

Hugging Face's Trainer reports to MLflow, with steps, and to SDK v1, without; numbered behind the
others, the same values would stand in the chart a second time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from torchyard.jobs.history import stepless_points
from torchyard.jobs.history.metric_blocks import Point
from torchyard.jobs.history.stepless_points import TWINS_WITHIN_MS


def without_twins(points: Sequence[Point], others: Iterable[Point]) -> list[Point]:
    """`points` without those that wait for a number and have a twin with a step among `others`."""
    if not any(stepless_points.waits(point) for point in points):
        return list(points)
    moments: dict[float, list[int]] = {}
    for point in others:
        if not stepless_points.waits(point):
            moments.setdefault(point.value, []).append(point.timestamp)
    if not moments:
        return list(points)
    for some in moments.values():
        some.sort()
    return [
        point
        for point in points
        if not stepless_points.waits(point)
        or not _has_near(moments.get(point.value, ()), point.timestamp)
    ]


def _has_near(moments: Sequence[int], moment: int) -> bool:
    at = bisect_left(moments, moment - TWINS_WITHIN_MS)
    return at < len(moments) and moments[at] <= moment + TWINS_WITHIN_MS
