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

from torchyard.base.clock import from_text
from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.jobs.actions import attempt_key, job_key
from torchyard.jobs.attempts import endings, root_cause
from torchyard.jobs.files import scratch
from torchyard.jobs.records import attempt_store, progress, store
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
    """What a node must do: `control` is `stop`, or empty."""

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


def report(
    services: Services, attempt_id: str, node: int, events: Sequence[Mapping[str, Any]]
) -> int:
    """Apply a node's events in order; return the number of the next one expected.

    Events of an attempt that has ended change nothing: its job may be in the next attempt.

    Raises:
        InvalidInput: an event is missing before one of these.
    """
    with services.db.write() as connection:
        attempt = attempt_store.attempt_by_id(connection, attempt_id)
        assert attempt is not None
        reporting = _node(attempt_store.nodes_of(connection, attempt_id), node)
        expected = reporting.next_seq
        for event in events:
            seq = int(event["seq"])
            if seq > expected:
                raise InvalidInput(f"event {expected} of node {node} is missing before {seq}")
            if seq == expected:
                if attempt.ended_at is None:
                    _apply(connection, services, attempt, node, event)
                expected += 1
        attempt_store.change_node(
            connection, attempt_id, node, next_seq=expected, seen_at=services.clock.now()
        )
        job = store.job_by_id(connection, attempt.job_id)
    endings.finish(services, attempt_id)
    if events:
        services.signals.notify(job_key(job))
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
    connection: Connection,
    services: Services,
    attempt: Attempt,
    node: int,
    event: Mapping[str, Any],
) -> None:
    kind, body = str(event["kind"]), event.get("body") or {}
    job = store.job_by_id(connection, attempt.job_id)
    now = services.clock.now()
    if kind == "ranks_started":
        attempt_store.change_node(connection, attempt.id, node, state=NodeState.RUNNING.value)
        if job.status is Status.STARTING:
            progress.move(connection, job, Status.RUNNING, now)
    elif kind == "rank_exited":
        if body.get("exit_code") or body.get("signal"):
            at = from_text(str(event["at"]))
            # After a lost connection, the node that broke it may still be exiting.
            reason = root_cause.PEER_LOST if body.get("consequence") else "failed"
            _rank_failed(connection, attempt, node, at, reason)
    elif kind == root_cause.HANG:
        _request_stop(connection, attempt, root_cause.HANG)
    elif kind == "node_serving":
        attempt_store.change_node(connection, attempt.id, node, state=NodeState.SERVING.value)
        _stop_if_served(connection, attempt)
    elif kind == "node_stopping":
        # The other nodes report where their ranks stood, too.
        is_late = body.get("reason") == root_cause.TIMEOUT
        _request_stop(connection, attempt, root_cause.TIMEOUT if is_late else "failed")
    elif kind == "preflight":
        reporting = _node(attempt_store.nodes_of(connection, attempt.id), node)
        preflight = {**(reporting.preflight or {}), **body}
        attempt_store.change_node(connection, attempt.id, node, preflight=preflight)
    elif kind == "notice":
        progress.notice(connection, job, str(body.get("message", "")), now)
    elif kind == "node_finalizing":
        attempt_store.change_node(connection, attempt.id, node, state=NodeState.FINALIZING.value)
        _stop_if_served(connection, attempt)
        _finalize_if_all(connection, attempt, job, now)
    elif kind == "node_exited":
        _node_exited(connection, attempt, node, body, now)


def _rank_failed(
    connection: Connection, attempt: Attempt, node: int, at: datetime, reason: str
) -> None:
    reporting = _node(attempt_store.nodes_of(connection, attempt.id), node)
    # Ranks that die after a stop request die because of it.
    if reporting.failed_at is None and not attempt.order:
        attempt_store.change_node(connection, attempt.id, node, failed_at=at)
    _request_stop(connection, attempt, reason)


def _node_exited(
    connection: Connection, attempt: Attempt, node: int, body: Mapping[str, Any], now: datetime
) -> None:
    error = body.get("error")
    exit_code = int(body.get("exit_code") or 0)
    reporting = _node(attempt_store.nodes_of(connection, attempt.id), node)
    values: dict[str, Any] = {"state": NodeState.EXITED.value, "exit_code": exit_code}
    if error:
        told_error = root_cause.error_of(error)
        values["error"] = vars(told_error)
        if told_error.code not in _STOPPED:
            values["failed_at"] = root_cause.failed_at(told_error, reporting.failed_at or now)
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
