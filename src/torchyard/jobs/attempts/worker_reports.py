"""Act on what workers report.

Owns: reports, the rendezvous of nodes, stop requests, workers that have died.
Leaves: starting attempts to http/scheduler.py, ending them to endings.py, the worker's files and
history to their routes.
Always: a repeated report changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.jobs.actions import attempt_key, job_key, job_key_of
from torchyard.jobs.attempts import endings, root_cause
from torchyard.jobs.attempts.worker_events import (
    NodeExited,
    NodeFinalizing,
    NodeServing,
    NodeStopping,
    NoticeReported,
    PreflightReported,
    RankExited,
    RanksHang,
    RanksStarted,
    WorkerEvent,
)
from torchyard.jobs.files import scratch
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.row_changes import NodeColumns
from torchyard.jobs.records.types import (
    Attempt,
    AttemptNode,
    Job,
    JobError,
    NodeState,
    Stage,
    Status,
)
from torchyard.jobs.services import Services

# The error of a stopped node must not hide the failure that stopped it.
_STOPPED = ("stopped", "canceled", root_cause.PREEMPTED)


@dataclass(frozen=True)
class StopRequest:
    """What a node must do: `control` is `stop`, `kill` to skip the grace period, or empty."""

    control: str
    reason: str


@dataclass(frozen=True)
class Rendezvous:
    """Where the nodes are; `ready` once all have joined and node 0 has sent its port.

    `facts` are what each node sent about itself for the others to compare, empty without any.
    """

    ready: bool
    nodes: list[str]
    port: int | None
    facts: list[dict[str, Any]]


def get(services: Services, attempt_id: str) -> tuple[Attempt, Job]:
    """
    Raises:
        NotAuthenticated: the attempt does not exist.
    """
    with services.db.read() as connection:
        attempt = attempt_store.attempt_by_id(connection, attempt_id)
        if attempt is None:
            raise NotAuthenticated("there is no such attempt")
        return attempt, store.job_by_id(connection, attempt.job_id)


def report(services: Services, attempt_id: str, node: int, events: Sequence[WorkerEvent]) -> int:
    """Apply a node's events in order; return the number of the next one expected.

    Events of an attempt that has ended change nothing: its job may be in the next attempt.

    Raises:
        InvalidInput: an event is missing before one of them.
    """
    with services.db.write() as connection:
        attempt = attempt_store.attempt_by_id(connection, attempt_id)
        assert attempt is not None
        reporting = _node(attempt_store.nodes_of(connection, attempt_id), node)
        expected = reporting.next_seq
        for event in events:
            if event.seq > expected:
                raise InvalidInput(f"event {expected} of node {node} is missing before {event.seq}")
            if event.seq == expected:
                if attempt.ended_at is None:
                    _apply(connection, services, attempt, node, event)
                expected += 1
        attempt_store.change_node(
            connection, attempt_id, node, next_seq=expected, seen_at=services.clock.now()
        )
    # Sent again, it may be the one after which a killed server could not finish.
    if any(isinstance(event.report, NodeExited) for event in events):
        endings.finish(services, attempt_id)
    if events:
        services.signals.notify(job_key_of(attempt.job_id))
        services.signals.notify(attempt_key(attempt_id))
    return expected


def stop_request(services: Services, attempt_id: str) -> StopRequest:
    with services.db.read() as connection:
        attempt = attempt_store.attempt_by_id(connection, attempt_id)
    assert attempt is not None
    return StopRequest(attempt.order, attempt.order_reason)


def join(
    services: Services,
    attempt_id: str,
    node: int,
    address: str,
    port: int | None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Record that a node has joined the rendezvous; node 0 also sends the port."""
    reporting = {"facts": dict(facts)} if facts else None
    with services.db.write() as connection:
        attempt_store.change_node(
            connection, attempt_id, node, address=address, port=port, preflight=reporting
        )
    services.signals.notify(attempt_key(attempt_id))


def rendezvous(services: Services, attempt_id: str) -> Rendezvous:
    with services.db.read() as connection:
        nodes = attempt_store.nodes_of(connection, attempt_id)
    port = nodes[0].port
    ready = port is not None and all(node.address for node in nodes)
    facts = [(node.preflight or {}).get("facts") or {} for node in nodes]
    return Rendezvous(ready, [node.address for node in nodes], port, facts)


def report_worker_death(services: Services, attempt_id: str, node: int) -> None:
    """A node's worker died: stop the others now, while what it left is delivered."""
    with services.db.write() as connection:
        attempt = attempt_store.attempt_by_id(connection, attempt_id)
        if attempt is None or attempt.ended_at is not None:
            return
        reporting = _node(attempt_store.nodes_of(connection, attempt_id), node)
        if reporting.failed_at is not None or reporting.state is NodeState.EXITED:
            return
        attempt_store.change_node(connection, attempt_id, node, failed_at=services.clock.now())
        _request_stop(connection, attempt, "failed")
    services.signals.notify(attempt_key(attempt_id))


def lose(services: Services, attempt_id: str, node: int, error: JobError | None = None) -> None:
    """Record that a node's worker is gone without a last report, or because of `error`."""
    with services.db.write() as connection:
        attempt = attempt_store.attempt_by_id(connection, attempt_id)
        if attempt is None or attempt.ended_at is not None:
            return
        reporting = _node(attempt_store.nodes_of(connection, attempt_id), node)
        if reporting.state is NodeState.EXITED:
            return
        now = services.clock.now()
        error = error or JobError(
            "worker_lost",
            f"the worker of node {node} died while it was {reporting.state.value}",
            "it may have run out of memory: see `dmesg` on that machine, and "
            f"`system_logs/node-{node}.log` among the job's files",
        )
        attempt_store.change_node(
            connection,
            attempt_id,
            node,
            state=NodeState.EXITED.value,
            exit_code=1,
            error=vars(error),
            failed_at=reporting.failed_at or now,
        )
        _request_stop(connection, attempt, "failed")
        job = store.job_by_id(connection, attempt.job_id)
    endings.finish(services, attempt_id)
    services.signals.notify(job_key(job))
    services.signals.notify(attempt_key(attempt_id))


def put_back(services: Services, attempt: Attempt, reason: str) -> None:
    """Queue the job of an attempt again that could not be started.

    The attempt does not count: the next one gets its number.
    """
    with services.db.write() as connection:
        current = attempt_store.attempt_by_id(connection, attempt.id)
        if current is None or current.ended_at is not None or current.handle is not None:
            return
        job = store.job_by_id(connection, attempt.job_id)
        progress.put_back(connection, job, services.clock.now(), attempt, reason)
    scratch.forget(services, attempt.id)
    services.signals.notify(job_key(job))


def _apply(
    connection: Connection, services: Services, attempt: Attempt, node: int, event: WorkerEvent
) -> None:
    job = store.job_by_id(connection, attempt.job_id)
    now = services.clock.now()
    match event.report:
        case RanksStarted():
            _change_state(connection, attempt, node, NodeState.RUNNING)
            if job.status is Status.STARTING:
                progress.move(connection, job, Status.RUNNING, now)
        case RankExited(failed=True, consequence=consequence):
            # After a lost connection, the node that broke it may still be exiting.
            reason = root_cause.PEER_LOST if consequence else "failed"
            _rank_failed(connection, attempt, node, event.at, reason)
        case RanksHang():
            _request_stop(connection, attempt, root_cause.HANG)
        case NodeServing():
            _change_state(connection, attempt, node, NodeState.SERVING)
            _stop_if_served(connection, attempt)
        case NodeStopping("signal"):
            # Nobody here asked for that: it is this node's failure, and it came first.
            _rank_failed(connection, attempt, node, event.at, "failed")
        case NodeStopping(reason):
            # The other nodes report where their ranks stood, too.
            is_late = reason == root_cause.TIMEOUT
            _request_stop(connection, attempt, root_cause.TIMEOUT if is_late else "failed")
        case PreflightReported(findings):
            current = _node(attempt_store.nodes_of(connection, attempt.id), node)
            preflight = {**(current.preflight or {}), **findings}
            attempt_store.change_node(connection, attempt.id, node, preflight=preflight)
        case NoticeReported(message):
            progress.notice(connection, job, message, now)
        case NodeFinalizing():
            _change_state(connection, attempt, node, NodeState.FINALIZING)
            _stop_if_served(connection, attempt)
            _finalize_if_all(connection, attempt, job, now)
        case NodeExited(exit_code, error):
            _node_exited(connection, attempt, node, exit_code, error, now)


def _change_state(connection: Connection, attempt: Attempt, node: int, state: NodeState) -> None:
    attempt_store.change_node(connection, attempt.id, node, state=state.value)


def _rank_failed(
    connection: Connection, attempt: Attempt, node: int, at: datetime, reason: str
) -> None:
    reporting = _node(attempt_store.nodes_of(connection, attempt.id), node)
    # Ranks that die after a stop request die because of it.
    if reporting.failed_at is None and not attempt.order:
        attempt_store.change_node(connection, attempt.id, node, failed_at=at)
    _request_stop(connection, attempt, reason)


def _node_exited(
    connection: Connection,
    attempt: Attempt,
    node: int,
    exit_code: int,
    error: JobError | None,
    now: datetime,
) -> None:
    current = _node(attempt_store.nodes_of(connection, attempt.id), node)
    values: NodeColumns = {"state": NodeState.EXITED.value, "exit_code": exit_code}
    if error is not None:
        values["error"] = vars(error)
        if error.code not in _STOPPED:
            values["failed_at"] = root_cause.failed_at(error, current.failed_at or now)
        # Whatever ended it: the other nodes would wait for it.
        _request_stop(connection, attempt, "failed")
    attempt_store.change_node(connection, attempt.id, node, **values)


def _stop_if_served(connection: Connection, attempt: Attempt) -> None:
    states = {attempt_node.state for attempt_node in attempt_store.nodes_of(connection, attempt.id)}
    done = {NodeState.SERVING, NodeState.FINALIZING, NodeState.EXITED}
    if NodeState.SERVING in states and states <= done:
        _request_stop(connection, attempt, "served")


def _finalize_if_all(connection: Connection, attempt: Attempt, job: Job, now: datetime) -> None:
    nodes = attempt_store.nodes_of(connection, attempt.id)
    if not all(node.state in (NodeState.FINALIZING, NodeState.EXITED) for node in nodes):
        return
    progress.start_stage(connection, job, Stage.POST_PROCESSING, now)
    if job.status in (Status.STARTING, Status.RUNNING, Status.NOT_RESPONDING):
        progress.move(connection, job, Status.FINALIZING, now)


def _request_stop(connection: Connection, attempt: Attempt, reason: str) -> None:
    current = attempt_store.attempt_by_id(connection, attempt.id)
    if current is not None and not current.order:
        attempt_store.change_attempt(connection, attempt.id, order="stop", order_reason=reason)


def _node(nodes: Sequence[AttemptNode], number: int) -> AttemptNode:
    if not 0 <= number < len(nodes):
        raise InvalidInput(f"the attempt has no node {number}")
    return nodes[number]
