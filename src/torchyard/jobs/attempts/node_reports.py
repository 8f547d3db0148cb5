"""Apply what a node reports.

Owns: what each event of a node changes.
Leaves: the ends of attempts to endings.py, the rendezvous and workers that have died to
worker_reports.py.
Always: a report is one transaction; one that is refused changes nothing, and a repeated one changes
nothing either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection

from torchyard.base import clock
from torchyard.base.errors import InvalidInput, NotAuthenticated
from torchyard.jobs.actions import attempt_key, job_key_of
from torchyard.jobs.attempts import endings, root_cause
from torchyard.jobs.attempts.worker_events import (
    NodeExited,
    NodeFinalizing,
    NodeHeld,
    NodeServing,
    NodeStopping,
    NoticeReported,
    PreflightReported,
    RankExited,
    RanksGoOn,
    RanksHang,
    RanksStand,
    RanksStarted,
    ServiceReported,
    WorkerEvent,
)
from torchyard.jobs.records import attempt_store, progress, stalls, store
from torchyard.jobs.records.attempt_store import error_of
from torchyard.jobs.records.row_changes import NodeColumns
from torchyard.jobs.records.types import (
    Attempt,
    AttemptNode,
    Job,
    JobError,
    NodeState,
    Stage,
    StageSpan,
    Status,
)
from torchyard.jobs.services import Services

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The error of a stopped node must not hide the failure that stopped it.
_MOST_SERVICES = 32
_STOPPED = ("stopped", "canceled", root_cause.PREEMPTED, root_cause.RESIZED)


@dataclass(frozen=True)
class Receipt:
    """What became of a report: the number of the event expected next, the attempt as it is then."""

    following: int
    attempt: Attempt


def receive(
    services: Services,
    attempt_id: str,
    node: int,
    events: Sequence[WorkerEvent],
    ran_s: float | None = None,
) -> Receipt:
    """Apply a node's events in order.

    Events of an attempt that has ended change nothing: its job may be in the next attempt.

    Args:
        ran_s: how long the command has run there, as the node measured it; None before its start.

    Raises:
        NotAuthenticated: the attempt does not exist.
        InvalidInput: an event is missing before one of these.
    """
    with services.db.write() as connection:
        reporting = _read(connection, attempt_id, events)
        following = _apply_all(reporting, node, events, ran_s, services.clock.now())
    if reporting.is_over and any(isinstance(event.report, NodeExited) for event in events):
        endings.finish(services, attempt_id)
    if events:
        services.signals.notify(job_key_of(reporting.attempt.job_id))
        services.signals.notify(attempt_key(attempt_id))
    return Receipt(following, reporting.attempt)


class _Reporting:
    """An attempt whose nodes report, as it is within the transaction.

    Attributes:
        job: None where no event can change it.
    """

    def __init__(
        self,
        connection: Connection,
        attempt: Attempt,
        nodes: list[AttemptNode],
        job: Job | None,
        open_stage: StageSpan | None,
    ) -> None:
        self._connection = connection
        self.attempt = attempt
        self.nodes = nodes
        self.job = job
        self._open_stage = open_stage

    @property
    def is_over(self) -> bool:
        """Whether all nodes have exited, and it is still to be ended."""
        exited = all(node.state is NodeState.EXITED for node in self.nodes)
        return exited and self.attempt.ended_at is None

    def change_node(self, node: int, **values: Unpack[NodeColumns]) -> None:
        attempt_store.change_node(self._connection, self.attempt.id, node, **values)
        changed: dict[str, Any] = {**values}
        if "state" in changed:
            changed["state"] = NodeState(changed["state"])
        if "error" in changed:
            changed["error"] = error_of(changed["error"])
        self.nodes[node] = replace(self.nodes[node], **changed)

    def change_state(self, node: int, state: NodeState) -> None:
        self.change_node(node, state=state.value)

    def request_stop(self, reason: str) -> None:
        if not self.attempt.order:
            attempt_store.change_attempt(
                self._connection, self.attempt.id, order="stop", order_reason=reason
            )
            self.attempt = replace(self.attempt, order="stop", order_reason=reason)

    def stop_if_served(self) -> None:
        states = {node.state for node in self.nodes}
        done = {NodeState.SERVING, NodeState.FINALIZING, NodeState.EXITED}
        if NodeState.SERVING in states and states <= done:
            self.request_stop("served")

    def worker_came(self, now: datetime) -> None:
        """The first report of any of its nodes ends the wait for machines."""
        if self.job is not None and self.job.status is Status.PROVISIONING:
            self.job, self._open_stage = progress.first_worker_came(
                self._connection, self.job, self._open_stage, now
            )

    def move(self, status: Status, now: datetime, *before: Status) -> None:
        """Move the job to a status, if it is in one of those `before`."""
        if self.job is not None and self.job.status in before:
            self.job = progress.move(self._connection, self.job, status, now)

    def notice(self, message: str, now: datetime) -> None:
        assert self.job is not None
        progress.notice(self._connection, self.job, message, now)

    def finalize_if_all(self, now: datetime) -> None:
        assert self.job is not None
        if not all(node.state in (NodeState.FINALIZING, NodeState.EXITED) for node in self.nodes):
            return
        self._open_stage = progress.next_stage(
            self._connection, self.job, self._open_stage, Stage.POST_PROCESSING, now
        )
        self.move(Status.FINALIZING, now, Status.STARTING, Status.RUNNING, Status.NOT_RESPONDING)


def _read(connection: Connection, attempt_id: str, events: Sequence[WorkerEvent]) -> _Reporting:
    """
    Raises:
        NotAuthenticated: the attempt does not exist.
    """
    attempt = attempt_store.attempt_by_id(connection, attempt_id)
    if attempt is None:
        raise NotAuthenticated("there is no such attempt")
    nodes = attempt_store.nodes_of(connection, attempt_id)
    job = open_stage = None
    if attempt.ended_at is None and (events or _may_wait(attempt, nodes)):
        job = store.job_by_id(connection, attempt.job_id)
        finalizes = any(isinstance(event.report, NodeFinalizing) for event in events)
        if finalizes or job.status is Status.PROVISIONING:
            open_stage = progress.open_stage(connection, job.id)
    return _Reporting(connection, attempt, nodes, job, open_stage)


def _may_wait(attempt: Attempt, nodes: Sequence[AttemptNode]) -> bool:
    """Whether no node of an engine's has reported an event yet."""
    return not attempt.is_local and not any(node.next_seq for node in nodes)


def _apply_all(
    reporting: _Reporting,
    node: int,
    events: Sequence[WorkerEvent],
    ran_s: float | None,
    now: datetime,
) -> int:
    """Apply those that are new; return the number of the event expected next."""
    if not 0 <= node < len(reporting.nodes):
        raise InvalidInput(f"the attempt has no node {node}")
    first = expected = reporting.nodes[node].next_seq
    reporting.worker_came(_moment(reporting, events[0], now) if events else now)
    for event in events:
        if event.seq > expected:
            raise InvalidInput(f"event {expected} of node {node} is missing before {event.seq}")
        expected += event.seq == expected
    # Ranks that die after a stop request die because of it, unless their own node sent it.
    was_stopped = bool(reporting.attempt.order)
    seen_at = now
    for event in events:
        if event.seq == first:
            if reporting.attempt.ended_at is None:
                at = _moment(reporting, event, now)
                _apply(reporting, node, event, at, was_stopped)
                # Of a node that has exited it is when it did.
                seen_at = at
            first += 1
    if reporting.nodes[node].state is not NodeState.EXITED:
        seen_at = now
    values: NodeColumns = {"next_seq": expected, "seen_at": seen_at}
    if ran_s is not None and reporting.attempt.ended_at is None:
        values["ran_s"] = ran_s
    reporting.change_node(node, **values)
    return expected


def _moment(reporting: _Reporting, event: WorkerEvent, now: datetime) -> datetime:
    """When it happened, however long the server was unreachable before that; not before the
    attempt, nor before its job ran.
    """
    since = reporting.attempt.created_at
    if reporting.job is not None and reporting.job.started_at is not None:
        since = max(since, reporting.job.started_at)
    age_s = min(event.age_s, max(0.0, (now - since).total_seconds()))
    return clock.earlier(now, age_s)


def _apply(
    reporting: _Reporting, node: int, event: WorkerEvent, now: datetime, was_stopped: bool
) -> None:
    match event.report:
        case RanksStarted():
            reporting.change_state(node, NodeState.RUNNING)
            reporting.move(Status.RUNNING, now, Status.STARTING)
        case RankExited(failed=True, consequence=consequence):
            # After a lost connection, the node that broke it may still be exiting.
            reason = root_cause.PEER_LOST if consequence else "failed"
            _rank_failed(reporting, node, event.at, reason, was_stopped)
        case RanksHang():
            reporting.request_stop(root_cause.HANG)
        case RanksStand(stand):
            _set(reporting, node, stalls.STAND, stand)
            if stand["quiet_s"] and (message := stalls.message_of(reporting.nodes)):
                reporting.notice(message, now)
        case RanksGoOn():
            _set(reporting, node, stalls.STAND, {})
        case NodeServing():
            reporting.change_state(node, NodeState.SERVING)
            reporting.stop_if_served()
        case NodeStopping("signal"):
            # Nobody here asked for that: it is this node's failure, and it came first.
            _rank_failed(reporting, node, event.at, "failed", was_stopped)
        case NodeStopping(reason):
            # The other nodes report where their ranks stood, too.
            is_late = reason == root_cause.TIMEOUT
            reporting.request_stop(root_cause.TIMEOUT if is_late else "failed")
        case PreflightReported(findings):
            preflight = {**(reporting.nodes[node].preflight or {}), **findings}
            reporting.change_node(node, preflight=preflight)
        case NoticeReported(message):
            reporting.notice(message, now)
        case ServiceReported(name=name) as report:
            _note(reporting, node, "services", {name: vars(report)})
            if report.state == "Failed":
                reporting.notice(f"service `{name}` of node {node} failed: {report.message}", now)
        case NodeHeld(until):
            _note(reporting, node, "held", {"until": until})
        case NodeFinalizing():
            reporting.change_state(node, NodeState.FINALIZING)
            reporting.stop_if_served()
            reporting.finalize_if_all(now)
        case NodeExited(exit_code, error, early_exit):
            if early_exit is not None:
                _note(reporting, node, "early_exit", early_exit)
            _node_exited(reporting, node, exit_code, error, now)


def _set(reporting: _Reporting, node: int, key: str, value: Mapping[str, Any]) -> None:
    before = reporting.nodes[node].interactive or {}
    reporting.change_node(node, interactive={**before, key: dict(value)})


def _note(reporting: _Reporting, node: int, key: str, values: Mapping[str, Any]) -> None:
    before = reporting.nodes[node].interactive or {}
    after = {**(before.get(key) or {}), **values}
    if len(after) <= _MOST_SERVICES:
        _set(reporting, node, key, after)


def _rank_failed(
    reporting: _Reporting, node: int, at: datetime, reason: str, was_stopped: bool
) -> None:
    if reporting.nodes[node].failed_at is None and not was_stopped:
        reporting.change_node(node, failed_at=at)
    reporting.request_stop(reason)


def _node_exited(
    reporting: _Reporting, node: int, exit_code: int, error: JobError | None, now: datetime
) -> None:
    values: NodeColumns = {"state": NodeState.EXITED.value, "exit_code": exit_code}
    counted = reporting.nodes[node]
    is_lost = counted.state is NodeState.EXITED and counted.error is not None
    if is_lost and error is not None and error.code in _STOPPED:
        return  # it was stopped because it counted as lost, and why it did stays the reason
    if error is not None:
        values["error"] = vars(error)
        if error.code not in _STOPPED:
            before = reporting.nodes[node].failed_at
            values["failed_at"] = root_cause.failed_at(error, before or now)
        # However it ended, the other nodes would wait for it.
        reporting.request_stop("failed")
    reporting.change_node(node, **values)
