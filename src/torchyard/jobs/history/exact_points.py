"""Every point of a key, a piece at a time.

Owns: walking blocks and tail by range, offset and limit.
Leaves: SQL to chart_store.py, what is written of them to exports.py.
Always: points come in order of arrival, each once; no more than a few blocks are in memory, and no
transaction is open between two pieces.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from torchyard.base.db import Database
from torchyard.jobs.history import chart_store
from torchyard.jobs.history.chart_store import Points, Window

# Of up to 512 points each: some 400 KB.
_BLOCKS_A_LOOK = 32


def pieces(
    db: Database,
    job_id: int,
    key: str,
    window: Window,
    offset: int = 0,
    limit: int | None = None,
) -> Iterator[Points]:
    """The points of the window, without the first `offset` of them, `limit` at the most."""
    number, skip, left = 0, offset, limit
    if offset and window.open:
        number, skip = _first_block(db, job_id, key, offset)
    for points in _in_window(db, job_id, key, window, number):
        count = len(points.values)
        if skip >= count:
            skip -= count
            continue
        end = count if left is None else min(count, skip + left)
        yield _cut(points, skip, end) if skip or end < count else points
        if left is not None:
            left -= end - skip
            if not left:
                return
        skip = 0


def _first_block(db: Database, job_id: int, key: str, offset: int) -> tuple[int, int]:
    """The block that holds the point, or the number behind the last; and its place in it."""
    number = 0
    with db.read() as connection:
        for number, count in chart_store.counts(connection, job_id, key):
            if offset < count:
                return number, offset
            offset -= count
            number += 1
    return number, offset


def _in_window(
    db: Database, job_id: int, key: str, window: Window, number: int
) -> Iterator[Points]:
    while True:
        with db.read() as connection:
            head = chart_store.head(connection, job_id, key)
            if head is None:
                return
            numbers = range(number, head.blocks)
            blocks = chart_store.blocks(connection, job_id, key, window, numbers, _BLOCKS_A_LOOK)
        for _, points in blocks:
            yield _inside(points, window)
        if len(blocks) < _BLOCKS_A_LOOK:
            yield _inside(head.tail, window)
            return
        number = blocks[-1][0] + 1


def _inside(points: Points, window: Window) -> Points:
    if window.open or not points.values:
        return points
    axis = points.steps if window.by == "step" else points.timestamps
    first, last = min(axis), max(axis)
    start = first if window.start is None else window.start
    end = last if window.end is None else window.end
    if start <= first and last <= end:
        return points
    indexes = [index for index, x in enumerate(axis) if start <= x <= end]
    return Points(
        array("q", [points.timestamps[index] for index in indexes]),
        array("q", [points.steps[index] for index in indexes]),
        array("d", [points.values[index] for index in indexes]),
    )


def _cut(points: Points, start: int, end: int) -> Points:
    some = slice(start, end)
    return Points(points.timestamps[some], points.steps[some], points.values[some])
