"""Number the points that were logged without a step, by their order within a key.

Owns: how such a point waits in a key's tail, when its number is settled.
Leaves: tables to history_store.py, which points come without a step to protocols.
Always: a tail holds points with steps or points without, never both; those without are in the
order of their moments, and what a reader sees of them are the numbers from the count of all points
before the tail on. A point without a step is the same point when it is sent again.

Clients send such points in batches, several at once, so they do not arrive in order. In a tail, a
point's step is its moment in µs, far below all steps that anybody logs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from torchyard.jobs.history.metric_blocks import TAIL_POINTS, Point

_FIRST = -(2**62)
_MOMENTS = range(_FIRST, _FIRST + 2**53)
# What comes later than this behind the newest of its key is numbered behind what was settled.
_SETTLED_AFTER_US = 20_000_000
# A tail is rewritten whenever points are added.
_MOST_WAITING = 50_000


class Laid(NamedTuple):
    """A key's points after more were added: `finished` belong into blocks, with their steps;
    `tail` is to be stored; `numbered` are those whose steps are new, as readers see them.
    """

    finished: list[Point]
    tail: list[Point]
    numbered: list[Point]


def step_at(moment_us: int) -> int:
    """What stands for the step of a point without one, logged `moment_us` µs after 1970."""
    return _FIRST + min(max(moment_us, 0), len(_MOMENTS) - 1)


def waits(point: Point) -> bool:
    """Whether its step is a moment."""
    return is_moment(point.step)


def is_moment(step: int) -> bool:
    """Whether a step in a tail is a moment."""
    return step in _MOMENTS


def add(tail: Sequence[Point], fresh: Sequence[Point], before: int) -> Laid:
    """Add points that are not there yet.

    Args:
        before: how many points the key has in blocks.
    """
    stepped = [point for point in fresh if not waits(point)]
    waiting = [point for point in fresh if waits(point)]
    finished: list[Point] = []
    pending = list(tail)
    if stepped:
        if pending and waits(pending[0]):
            finished, pending = number_tail(pending, before), []
        pending += stepped
    if not waiting:
        if len(pending) >= TAIL_POINTS:
            finished, pending = finished + pending, []
        return Laid(finished, pending, stepped)
    if pending and not waits(pending[0]):
        finished, pending = finished + pending, []
    pending = sorted([*pending, *waiting], key=_moment)
    new_points = number_tail(pending, before + len(finished))
    settled = _settled(pending)
    return Laid(finished + new_points[:settled], pending[settled:], stepped + new_points)


def number_tail(tail: Sequence[Point], before: int) -> list[Point]:
    """A tail as readers see it, after `before` points."""
    if not tail or not waits(tail[0]):
        return list(tail)
    return [point._replace(step=before + index) for index, point in enumerate(tail)]


def number_steps(steps: array[int], before: int) -> array[int]:
    """The steps of a tail as readers see them."""
    if not steps or steps[0] not in _MOMENTS:
        return steps
    return array("q", range(before, before + len(steps)))


def _settled(tail: Sequence[Point]) -> int:
    """How many of the first are numbered for good; few would make small blocks."""
    count = bisect_left(tail, tail[-1].step - _SETTLED_AFTER_US, key=_moment)
    if len(tail) > _MOST_WAITING:
        count = max(count, len(tail) // 2)
    return count if count >= TAIL_POINTS else 0


def _moment(point: Point) -> int:
    return point.step
