"""What a worker can do with its attempt.

Owns: reports, the meeting of nodes, orders, the end of an attempt.
Leaves: starting attempts to scheduler.py, the worker's files and history to their routes.
Always: a repeated report changes nothing; the earliest failure is the job's error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import from_text
from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.jobs import output_assets, progress, store
from torchyard.jobs.actions import attempt_key, job_key
from torchyard.jobs.room import Room
from torchyard.jobs.types import Attempt, AttemptNode, Job, JobError, Stage, Status

_EXITED = "exited"
_FINALIZING = "finalizing"
_RUNNING = "running"
# A stopped node's own words must not hide the failure that stopped it.
_STOPPED = ("stopped", "canceled")


@dataclass(frozen=True)
class Order:
    """What a node shall do: `stop`, or nothing (empty)."""

    order: str
    reason: str


@dataclass(frozen=True)
class Meeting:
    """Where the nodes are; `ready` once all have come and node 0 has told its port."""

    ready: bool
    nodes: list[str]
    port: int | None


def get(room: Room, attempt_id: str) -> tuple[Attempt, Job]:
    """
    Raises:
        NotAuthenticated: there is no such attempt any more.
    """
    with room.db.read() as connection:
        attempt = store.attempt_by_id(connection, attempt_id)
        if attempt is None:
            raise NotAuthenticated("there is no such attempt")
        return attempt, store.job_by_id(connection, attempt.job_id)


def report(room: Room, attempt_id: str, node: int, events: Sequence[Mapping[str, Any]]) -> int:
    """Take a node's events in their order; returns the number of the next one expected.

    Raises:
        InvalidInput: an event is not one, or one is missing before it.
    """
    with room.db.write() as connection:
        attempt = store.attempt_by_id(connection, attempt_id)
        assert attempt is not None
        told = _node(store.nodes_of(connection, attempt_id), node)
        expected = told.next_seq
        for event in events:
            seq = int(event["seq"])
            if seq > expected:
                raise InvalidInput(f"event {expected} of node {node} is missing before {seq}")
            if seq == expected:
                _apply(connection, room, attempt, node, event)
                expected += 1
        store.change_node(connection, attempt_id, node, next_seq=expected, seen_at=room.clock.now())
        ended = _end_if_done(connection, room, attempt)
        job = store.job_by_id(connection, attempt.job_id)
    if ended:
        output_assets.register(room, job.id)
    if events:
        room.signals.notify(job_key(job))
        room.signals.notify(attempt_key(attempt_id))
    if ended:
        room.bell.set()
    return expected


def order(room: Room, attempt_id: str) -> Order:
    with room.db.read() as connection:
        attempt = store.attempt_by_id(connection, attempt_id)
    assert attempt is not None
    return Order(attempt.order, attempt.order_reason)


def come(room: Room, attempt_id: str, node: int, address: str, port: int | None) -> None:
    """A node has come to the meeting; node 0 also tells the port."""
    with room.db.write() as connection:
        store.change_node(connection, attempt_id, node, address=address, port=port)
    room.signals.notify(attempt_key(attempt_id))


def meeting(room: Room, attempt_id: str) -> Meeting:
    with room.db.read() as connection:
        nodes = store.nodes_of(connection, attempt_id)
    port = nodes[0].port
    ready = port is not None and all(node.address for node in nodes)
    return Meeting(ready, [node.address for node in nodes], port)


def lose(room: Room, attempt_id: str, node: int) -> None:
    """A node's worker is gone without having said so."""
    with room.db.write() as connection:
        attempt = store.attempt_by_id(connection, attempt_id)
        if attempt is None or attempt.ended_at is not None:
            return
        told = _node(store.nodes_of(connection, attempt_id), node)
        if told.state == _EXITED:
            return
        now = room.clock.now()
        error = JobError(
            "worker_lost",
            f"the worker of node {node} died while it was {told.state}",
            "it may have been killed for memory: see `dmesg` on that machine, and "
            f"`system_logs/node-{node}.log` among the job's files",
        )
        store.change_node(
            connection,
            attempt_id,
            node,
            state=_EXITED,
            exit_code=1,
            error=vars(error),
            failed_at=told.failed_at or now,
        )
        _order_stop(connection, attempt, "failed")
        _end_if_done(connection, room, attempt)
        job = store.job_by_id(connection, attempt.job_id)
    room.signals.notify(job_key(job))
    room.signals.notify(attempt_key(attempt_id))
    room.bell.set()


def fail(room: Room, attempt: Attempt, error: JobError) -> None:
    """End an attempt that never got as far as a worker."""
    with room.db.write() as connection:
        job = store.job_by_id(connection, attempt.job_id)
        if not job.status.ended:
            now = room.clock.now()
            progress.end(connection, job, Status.FAILED, now, error=error, attempt=attempt)
    room.signals.notify(job_key(job))
    room.bell.set()


def _apply(
    connection: Connection, room: Room, attempt: Attempt, node: int, event: Mapping[str, Any]
) -> None:
    kind, body = str(event["kind"]), event.get("body") or {}
    job = store.job_by_id(connection, attempt.job_id)
    now = room.clock.now()
    if kind == "ranks_started":
        store.change_node(connection, attempt.id, node, state=_RUNNING)
        if job.status is Status.STARTING:
            progress.move(connection, job, Status.RUNNING, now)
    elif kind == "rank_exited":
        if body.get("exit_code") or body.get("signal"):
            _rank_failed(connection, attempt, node, from_text(str(event["at"])))
    elif kind == "notice":
        progress.notice(connection, job, str(body.get("message", "")), now)
    elif kind == "node_finalizing":
        store.change_node(connection, attempt.id, node, state=_FINALIZING)
        _finalize_if_all(connection, attempt, job, now)
    elif kind == "node_exited":
        _node_exited(connection, attempt, node, body, now)


def _rank_failed(connection: Connection, attempt: Attempt, node: int, at: datetime) -> None:
    told = _node(store.nodes_of(connection, attempt.id), node)
    # Ranks that die after a stop order die of the order.
    if told.failed_at is None and not attempt.order:
        store.change_node(connection, attempt.id, node, failed_at=at)
    _order_stop(connection, attempt, "failed")


def _node_exited(
    connection: Connection, attempt: Attempt, node: int, body: Mapping[str, Any], now: datetime
) -> None:
    error = body.get("error")
    exit_code = int(body.get("exit_code") or 0)
    told = _node(store.nodes_of(connection, attempt.id), node)
    values: dict[str, Any] = {"state": _EXITED, "exit_code": exit_code}
    if error:
        values["error"] = vars(
            JobError(str(error["code"]), str(error["message"]), str(error.get("hint") or ""))
        )
        if error["code"] not in _STOPPED:
            values["failed_at"] = told.failed_at or now
            _order_stop(connection, attempt, "failed")
    store.change_node(connection, attempt.id, node, **values)


def _finalize_if_all(connection: Connection, attempt: Attempt, job: Job, now: datetime) -> None:
    nodes = store.nodes_of(connection, attempt.id)
    if not all(node.state in (_FINALIZING, _EXITED) for node in nodes):
        return
    progress.start_stage(connection, job, Stage.POST_PROCESSING, now)
    if job.status in (Status.STARTING, Status.RUNNING, Status.NOT_RESPONDING):
        progress.move(connection, job, Status.FINALIZING, now)


def _order_stop(connection: Connection, attempt: Attempt, reason: str) -> None:
    current = store.attempt_by_id(connection, attempt.id)
    if current is not None and not current.order:
        store.change_attempt(connection, attempt.id, order="stop", order_reason=reason)


def _end_if_done(connection: Connection, room: Room, attempt: Attempt) -> bool:
    nodes = store.nodes_of(connection, attempt.id)
    if not all(node.state == _EXITED for node in nodes):
        return False
    job = store.job_by_id(connection, attempt.job_id)
    if job.status.ended:
        return False
    current = store.attempt_by_id(connection, attempt.id)
    assert current is not None
    culprit = _culprit(nodes)
    canceled = current.order_reason == "cancel"
    if canceled:
        status = Status.CANCELED
    else:
        status = Status.COMPLETED if culprit is None else Status.FAILED
    progress.end(
        connection,
        job,
        status,
        room.clock.now(),
        exit_code=culprit.exit_code if culprit else None if canceled else 0,
        error=culprit.error if culprit and not canceled else None,
        attempt=attempt,
    )
    return True


def _culprit(nodes: Sequence[AttemptNode]) -> AttemptNode | None:
    """The node that failed first, if one did."""
    failed = [node for node in nodes if node.failed_at is not None]
    if failed:
        return min(failed, key=lambda node: (node.failed_at, node.node))
    return next((node for node in nodes if node.exit_code), None)


def _node(nodes: Sequence[AttemptNode], number: int) -> AttemptNode:
    if not 0 <= number < len(nodes):
        raise InvalidInput(f"the attempt has no node {number}")
    return nodes[number]
