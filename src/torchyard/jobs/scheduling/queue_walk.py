"""Walk through the queue once, from its first job on.

Owns: what is free and which jobs wait during the walk; which job comes next.
Leaves: the rules to admission/queue.py, SQL to admission/queue_store.py, holding nodes to
claiming.py.
Always: it decides what `queue.decide` decides, without reading jobs that cannot start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.jobs.admission import queue, queue_store, shares
from torchyard.jobs.admission.queue import Amounts, Head, Running, Waiting
from torchyard.jobs.admission.queue_store import Filter, Line, Queued, RunningAttempt

_READ_AHEAD = 50


@dataclass
class _Cursor:
    """Where the walk is in one line."""

    line: Line
    after: tuple[int, int] = (-1, 0)
    job: Queued | None = None
    has_head: bool = False
    without_owners: set[str] = field(default_factory=set)
    # The next ones, read before they are wanted; only a line without a head takes all in turn.
    ahead: deque[Queued] = field(default_factory=deque)


class Walk:
    """`next` returns the jobs that may start, one at a time; call `passed`, or one of `started`,
    `waits`, `held_back` and `drop`, for each before the next call.

    Args:
        read_ahead: how many jobs of a line are read at once while each of them may start.

    Attributes:
        held: the attempts that hold nodes, as the walk began.
        heads: the jobs that others must not delay, by their ids.
    """

    def __init__(
        self, db: Database, now: datetime, machine: Amounts, read_ahead: int = _READ_AHEAD
    ) -> None:
        self._read_ahead = read_ahead
        self._db = db
        self._now = now
        with db.read() as connection:
            self.shares = shares.read(connection, machine)
            lines = queue_store.lines(connection, self.shares.low)
            self.held: Sequence[RunningAttempt] = (
                queue_store.list_running(connection) if lines else ()
            )
        self.running = [self.shares.running(attempt, now.timestamp()) for attempt in self.held]
        self.free = dict(self.shares.capacity)
        for running in self.running:
            self.free = queue.less(self.free, running.holds) if running.holds else self.free
        # Jobs of a deleted cluster wait for a new one of its name.
        clusters = self.shares.per_node
        self._cursors = [
            _Cursor(line) for line in lines if (line.workspace, line.compute) in clusters
        ]
        self.heads: dict[int, Head] = {}
        self.jobs: dict[int, Queued] = {}

    def next(self) -> Queued | None:
        """The next job that may start now."""
        while True:
            empty = [cursor for cursor in self._cursors if not self._is_filled(cursor)]
            if empty:
                with self._db.read() as connection:
                    for cursor in empty:
                        self._fill(connection, cursor)
            # A line at its end stays so: what is free only shrinks.
            self._cursors = [cursor for cursor in self._cursors if cursor.job is not None]
            if not self._cursors:
                return None
            cursor = min(self._cursors, key=lambda cursor: queue.sort_key(self._waiting(cursor)))
            job = cursor.job
            assert job is not None
            if self._may_start(cursor):
                return job
            self.waits(job)

    def most_nodes(self, job: Queued) -> int:
        """How many nodes the job that `next` returned could have if it is elastic."""
        (cursor,) = [cursor for cursor in self._cursors if cursor.job is job]
        waiting = self._as_waiting(replace(job, node_count=1), cursor.line.low)
        return queue.most_that_may_start(
            waiting, self.free, self.heads.values(), each=waiting.needs
        )

    def passed(self, job: Queued, reason: str, devices: tuple[int, int] | None = None) -> None:
        """It was started, or was not because of `quota`, because it is `gone` or `waits`.

        Args:
            devices: nodes and GPUs of each, of an elastic job that was started.
        """
        if devices is not None and not reason:
            self.started(job, *devices)
            return
        passed = {"": self.started, "quota": self.held_back, "gone": self.drop}
        passed.get(reason, self.waits)(job)

    def started(self, job: Queued, node_count: int | None = None, gpus: int = 0) -> None:
        cursor = self._pass(job)
        if node_count is not None:
            job = replace(job, node_count=node_count, gpus=gpus)
        waiting = self._as_waiting(job, cursor.line.low)
        self.free = queue.less(self.free, waiting.needs)
        self.running.append(queue.started(waiting))
        for head in self.heads.values():
            if any(name in head.job.needs for name in waiting.needs):
                self.heads[head.job.id] = queue.head(head.job, self.free, self.running)

    def waits(self, job: Queued) -> None:
        """It cannot start now: the first such job of a line becomes its head."""
        cursor = self._pass(job)
        if cursor.has_head:
            return
        cursor.has_head = True
        waiting = self._as_waiting(job, cursor.line.low)
        self.jobs[job.id] = job
        self.heads[job.id] = queue.head(waiting, self.free, self.running)

    def held_back(self, job: Queued) -> None:
        """Its owner's quota is used up: skip the owner's jobs in this line; they delay nobody."""
        self._pass(job).without_owners.add(job.owner)

    def drop(self, job: Queued) -> None:
        """Another server has claimed it, or it has ended."""
        self._pass(job)

    def _pass(self, job: Queued) -> _Cursor:
        (cursor,) = [cursor for cursor in self._cursors if cursor.job is job]
        cursor.after, cursor.job = (job.priority_rank, job.id), None
        return cursor

    def _is_filled(self, cursor: _Cursor) -> bool:
        """Whether the next job of a line is there without asking the database."""
        if cursor.job is None and not cursor.has_head:
            while cursor.ahead and cursor.job is None:
                job = cursor.ahead.popleft()
                cursor.job = None if job.owner in cursor.without_owners else job
        return cursor.job is not None and (not cursor.has_head or self._may_start(cursor))

    def _fill(self, connection: Connection, cursor: _Cursor) -> None:
        cursor.ahead.clear()
        some = queue_store.next_in(
            connection,
            cursor.line,
            self._now,
            cursor.after,
            self._filter(cursor.line) if cursor.has_head else None,
            cursor.without_owners,
            limit=1 if cursor.has_head else self._read_ahead,
        )
        cursor.job = some[0] if some else None
        cursor.ahead.extend(some[1:])

    def _filter(self, line: Line) -> Filter:
        """What `queue.may_pass` says, in nodes of this line's cluster."""
        per_node = self.shares.per_node.get((line.workspace, line.compute), {})
        maximum = queue.most_nodes(per_node, self.free)
        nodes, longest_s = maximum, float("inf")
        for head in self.heads.values():
            if queue.concerns(head, line.low):
                assert head.spare is not None
                nodes = min(nodes, queue.most_nodes(per_node, head.spare))
                longest_s = min(longest_s, queue.longest_limit_s(head))
        longest_s = 0.0 if longest_s == float("inf") else longest_s
        return Filter(nodes, maximum, longest_s, self.free.get(shares.GPUS))

    def _may_start(self, cursor: _Cursor) -> bool:
        waiting = self._waiting(cursor)
        if not queue.fits(self.free, waiting.needs):
            return False
        return all(queue.may_pass(waiting, head) for head in self.heads.values())

    def _waiting(self, cursor: _Cursor) -> Waiting:
        assert cursor.job is not None
        return self._as_waiting(cursor.job, cursor.line.low)

    def _as_waiting(self, job: Queued, low: bool) -> Waiting:
        cluster_key = (job.workspace, job.compute)
        return Waiting(
            job.id,
            "/".join(cluster_key),
            self.shares.needs(job),
            job.priority_rank,
            job.limit_s,
            low,
        )


def running_of(walk: Walk) -> list[tuple[RunningAttempt, Running]]:
    """Every attempt that held nodes when the walk began."""
    return list(zip(walk.held, walk.running, strict=False))
