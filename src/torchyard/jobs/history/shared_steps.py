"""Mark the points that SDK v1 logged with a step, while MLflow may still log the same ones.

Owns: what stands for such a point's step in a tail.
Leaves: which points are the same to twin_points.py, tables to history_store.py.
Always: readers and blocks get the step itself.

In a tail, such a step is moved far below all steps that anybody logs, and away from the moments
that stand for no step.
"""

from __future__ import annotations

from torchyard.jobs.history.metric_blocks import Point

_FIRST = -(2**61)
_STEPS = range(2**53)
_MARKED = range(_FIRST, _FIRST + len(_STEPS))


def mark(step: int) -> int:
    """What stands for a step that SDK v1 logged; a negative or huge one is left as it is."""
    return _FIRST + step if step in _STEPS else step


def is_marked(point: Point) -> bool:
    return point.step in _MARKED


def unmarked_step(step: int) -> int:
    return step - _FIRST if step in _MARKED else step


def unmarked(point: Point) -> Point:
    """The point with its own step."""
    return point._replace(step=point.step - _FIRST) if point.step in _MARKED else point
