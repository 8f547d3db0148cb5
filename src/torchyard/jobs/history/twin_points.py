"""Recognise a point that two clients logged: by MLflow, and by SDK v1 with a step or without.

Owns: when two such points are the same.
Leaves: numbering what has no twin to stepless_points.py, tables to history_store.py.
Always: of two twins MLflow's stays, whichever came first; points of the same client are never
compared while both are in a tail.

Hugging Face's Trainer reports to MLflow, with steps, and to SDK v1, without; numbered behind the
others, the same values would stand in the chart a second time. So would those of a script that
gives the step to both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torchyard.jobs.history import shared_steps, stepless_points
from torchyard.jobs.history.metric_blocks import Point
from torchyard.jobs.history.stepless_points import TWINS_WITHIN_MS


class Replaced(NamedTuple):
    """A tail in which points of SDK v1 have become `twins` of MLflow's, and the other points."""

    tail: list[Point]
    others: list[Point]
    twins: list[Point]


def is_of_sdk_v1(point: Point) -> bool:
    """Whether the point waits for a number, or its step is marked."""
    return stepless_points.waits(point) or shared_steps.is_marked(point)


def without_twins(points: Sequence[Point], others: Iterable[Point]) -> list[Point]:
    """`points` without those of SDK v1 that have a twin among MLflow's of `others`."""
    if not any(map(is_of_sdk_v1, points)):
        return list(points)
    # By value, and by value and step.
    moments: dict[tuple[float, int | None], list[int]] = {}
    for point in others:
        if not is_of_sdk_v1(point):
            moments.setdefault((point.value, None), []).append(point.timestamp)
            moments.setdefault((point.value, point.step), []).append(point.timestamp)
    if not moments:
        return list(points)
    for some in moments.values():
        some.sort()
    return [
        point
        for point in points
        if not is_of_sdk_v1(point) or not _has_near(moments.get(_key(point), ()), point.timestamp)
    ]


def replace(tail: Sequence[Point], fresh: Sequence[Point]) -> Replaced:
    """Put points of `fresh` where their twins with a marked step are, so that order is kept."""
    marked: dict[tuple[float, int | None], list[tuple[int, int]]] = {}
    for index, point in enumerate(tail):
        if shared_steps.is_marked(point):
            insort(marked.setdefault(_key(point), []), (point.timestamp, index))
    replaced = Replaced(list(tail), [], [])
    for point in fresh:
        candidates = [] if is_of_sdk_v1(point) else marked.get((point.value, point.step), [])
        at = bisect_left(candidates, (point.timestamp - TWINS_WITHIN_MS, 0))
        if at < len(candidates) and candidates[at][0] <= point.timestamp + TWINS_WITHIN_MS:
            replaced.tail[candidates.pop(at)[1]] = point
            replaced.twins.append(point)
        else:
            replaced.others.append(point)
    return replaced


def _key(point: Point) -> tuple[float, int | None]:
    """What a point of SDK v1 has in common with its twin."""
    is_marked = shared_steps.is_marked(point)
    return (point.value, shared_steps.unmarked(point).step if is_marked else None)


def _has_near(moments: Sequence[int], moment: int) -> bool:
    at = bisect_left(moments, moment - TWINS_WITHIN_MS)
    return at < len(moments) and moments[at] <= moment + TWINS_WITHIN_MS
