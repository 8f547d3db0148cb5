"""Act on what workers report.

Owns: the rendezvous of nodes, stop requests, workers that have died.
Leaves: what events of nodes change to node_reports.py, starting attempts to scheduler.py,
ending them to endings.py, the worker's files and history to their routes.
Always: a repeated report changes nothing; an attempt may be deleted with its job between any two
requests of its workers, and while one waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.jobs.actions import attempt_key, job_key
from torchyard.jobs.attempts import endings
from torchyard.jobs.files import scratch
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.types import (
    Attempt,
    AttemptNode,
    Job,
    JobError,
    NodeState,
    Stage,
)
from torchyard.jobs.services import RecordServices, Services


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


def get(services: RecordServices, attempt_id: str) -> tuple[Attempt, Job]:
    """
    Raises:
        NotAuthenticated: the attempt does not exist.
    """
    with services.db.read() as connection:
        attempt = _existing(connection, attempt_id)
        return attempt, store.job_by_id(connection, attempt.job_id)


def stop_request(services: RecordServices, attempt_id: str) -> StopRequest:
    """
    Raises:
        NotAuthenticated: the attempt does not exist.
    """
    with services.db.read() as connection:
        attempt = _existing(connection, attempt_id)
    return StopRequest(attempt.order, attempt.order_reason)


def join(
    services: RecordServices,
    attempt_id: str,
    node: int,
    address: str,
    port: int | None,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Record that a node has joined the rendezvous; node 0 also sends the port.

    Raises:
        NotAuthenticated: the attempt does not exist.
    """
    reporting = {"facts": dict(facts)} if facts else None
    with services.db.write() as connection:
        _existing(connection, attempt_id)
        attempt_store.change_node(
            connection, attempt_id, node, address=address, port=port, preflight=reporting
        )
    services.signals.notify(attempt_key(attempt_id))


def rendezvous(services: RecordServices, attempt_id: str) -> Rendezvous:
    """
    Raises:
        NotAuthenticated: the attempt does not exist.
    """
    with services.db.read() as connection:
        _existing(connection, attempt_id)
        nodes = attempt_store.nodes_of(connection, attempt_id)
    port = nodes[0].port
    ready = port is not None and all(node.address for node in nodes)
    facts = [(node.preflight or {}).get("facts") or {} for node in nodes]
    return Rendezvous(ready, [node.address for node in nodes], port, facts)


def report_worker_death(services: RecordServices, attempt_id: str, node: int) -> None:
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
            seen_at=now,
        )
        _request_stop(connection, attempt, "failed")
        job = store.job_by_id(connection, attempt.job_id)
    endings.finish(services, attempt_id)
    services.signals.notify(job_key(job))
    services.signals.notify(attempt_key(attempt_id))


def put_back(
    services: Services, attempt: Attempt, reason: str, stage: Stage = Stage.SCALING
) -> None:
    """Queue the job of an attempt again that could not be started, or prepare it again.

    The attempt does not count: the next one gets its number.
    """
    with services.db.write() as connection:
        current = attempt_store.attempt_by_id(connection, attempt.id)
        if current is None or current.ended_at is not None or current.handle is not None:
            return
        job = store.job_by_id(connection, attempt.job_id)
        progress.put_back(connection, job, services.clock.now(), attempt, reason, stage)
    scratch.forget(services, attempt.id)
    services.signals.notify(job_key(job))


def _existing(connection: Connection, attempt_id: str) -> Attempt:
    attempt = attempt_store.attempt_by_id(connection, attempt_id)
    if attempt is None:
        raise NotAuthenticated("there is no such attempt")
    return attempt


def _request_stop(connection: Connection, attempt: Attempt, reason: str) -> None:
    current = attempt_store.attempt_by_id(connection, attempt.id)
    if current is not None and not current.order:
        attempt_store.change_attempt(connection, attempt.id, order="stop", order_reason=reason)


def _node(nodes: Sequence[AttemptNode], number: int) -> AttemptNode:
    if not 0 <= number < len(nodes):
        raise InvalidInput(f"the attempt has no node {number}")
    return nodes[number]
