"""Attempts whose nodes are machines of another engine.

Owns: what an engine's word about nodes means for an attempt and its job: pending, lost, ended,
taken back for another job or for a limit; engines that do not answer.
Leaves: asking for nodes to launching.py, silent workers to heartbeats.py, what workers report to
node_reports.py.
Always: an engine that does not answer changes nothing, and the next round asks again; pending nodes
are not silent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from torchyard.compute import actions as computes
from torchyard.compute import machines
from torchyard.executors.executor import EngineCause, EngineUnreachable, Executor, Handle
from torchyard.executors.executor import Status as ExecutorStatus
from torchyard.jobs.actions import attempt_key, job_key_of
from torchyard.jobs.attempts import endings, root_cause, worker_reports
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.types import Attempt, JobError, NodeState, Status
from torchyard.jobs.services import RecordServices, Services

_log = logging.getLogger(__name__)
_GRACE_S = 10.0
# How long workers have to exit after the end of their attempt.
_END_S = 15.0
# How long the end of an attempt waits for an engine that does not answer.
_CAUSE_WAIT_S = 60.0
# What workers report that an engine has ended: they don't know why.
_ENDED_BY_OTHERS = ("stopped", "terminated", "killed", "worker_lost", "node_lost", "node_unusable")
_RESUMES = "the job resumes in the same run: save checkpoints, and load the last one at the start"


class EngineNodes:
    """What engines said of the attempts that one server watches.

    Attributes:
        pending: by attempt, the nodes that have no machine yet.
    """

    def __init__(self, services: Services, executor: Executor) -> None:
        self._services = services
        self._executor = executor
        self.pending: dict[str, frozenset[int]] = {}
        self._stopped: set[str] = set()
        self._killed: set[str] = set()

    def watch(self, attempt: Attempt) -> bool:
        """One look at an attempt that was launched; whether its cause of an end is known."""
        assert attempt.handle is not None
        handle = Handle.from_json(attempt.handle)
        try:
            status = self._executor.status(handle)
            pending = frozenset(k for k, state in enumerate(status.nodes) if state == "pending")
            # What an engine says may be older than what a worker reported.
            pending -= self._reported(attempt, pending)
            if attempt.order and pending and attempt.id not in self._stopped:
                # Its workers learn of a stop by themselves; a node without one doesn't.
                self._executor.stop(handle, 0.0 if attempt.order == "kill" else _GRACE_S)
                self._stopped.add(attempt.id)
        except EngineUnreachable as error:
            _log.warning("attempt %s: %s", attempt.id, error.message)
            note_waiting(self._services, attempt, error.message)
            return self._heard_s(attempt) > _CAUSE_WAIT_S
        if status.cause is not None and status.cause.code == root_cause.PREEMPTED:
            self._preempt(attempt, status.cause)
        elif status.cause is not None:
            self._explain(attempt, dict.fromkeys(range(len(status.nodes)), _error(status.cause)))
        elif status.state == "lost":
            self._explain_losses(attempt, status)
        self._note_pending(attempt, pending, len(status.nodes))
        note_waiting(self._services, attempt, status.reason if pending else "")
        for node, state in enumerate(status.nodes):
            if state in ("ending", "lost"):
                worker_reports.report_worker_death(self._services, attempt.id, node)
            if state in ("exited", "lost"):
                lost = loss(node, status.lost_because) if state == "lost" else None
                if status.cause is not None:
                    lost = _error(status.cause)
                worker_reports.lose(self._services, attempt.id, node, lost)
        is_heard = self._heard_s(attempt) >= status.age_s
        is_settled = status.settled or not self._ended_by_others(attempt)
        return status.cause is not None or (is_heard and is_settled)

    def is_outdated(self, attempt: Attempt) -> bool:
        """Whether it waits for machines by a plan that is no longer right: since it was made,
        machines have joined or moved, some were drained, or take jobs again.
        """
        if attempt.order or len(self.pending.get(attempt.id, ())) < attempt.node_count:
            return False
        text = self._services.launches.read(attempt.id)
        settings = json.loads(text)["engine_settings"] if text else {}
        if "drained" not in settings:
            return False
        compute = str(settings["head"]).removeprefix(f"{attempt.workspace}.")
        with self._services.db.read() as connection:
            drained = machines.drained(connection, attempt.workspace, compute)
            joined = machines.joined(connection, attempt.workspace, compute)
        return drained != list(settings["drained"]) or joined != settings.get("joined")

    def end(self, attempt: Attempt) -> None:
        """It has ended, and some of its nodes have not: they get a while, and then are killed."""
        assert attempt.ended_at is not None and attempt.handle is not None
        ended_s = (self._services.clock.now() - attempt.ended_at).total_seconds()
        if ended_s > _END_S and attempt.id not in self._killed:
            self._executor.stop(Handle.from_json(attempt.handle), 0.0)
            self._killed.add(attempt.id)

    def forget(self, attempt: Attempt) -> None:
        """It is over: nothing of it stays with its engine, or for its nodes to ask for.

        Raises:
            EngineUnreachable: the next round tries again.
        """
        if attempt.handle is not None:
            self._services.engines.release(Handle.from_json(attempt.handle))
        self.drop(attempt)

    def drop(self, attempt: Attempt) -> None:
        """As `forget`, without asking its engine, which did not answer for long."""
        self._services.launches.remove(attempt.id)
        self.pending.pop(attempt.id, None)
        self._stopped.discard(attempt.id)
        self._killed.discard(attempt.id)

    def _ended_by_others(self, attempt: Attempt) -> bool:
        """Whether one of its nodes reported that something outside of it has ended it."""
        with self._services.db.read() as connection:
            nodes = attempt_store.nodes_of(connection, attempt.id)
        return any(node.error and node.error.code in _ENDED_BY_OTHERS for node in nodes)

    def _reported(self, attempt: Attempt, pending: frozenset[int]) -> frozenset[int]:
        """Which of these nodes had a machine before, and so are silent if they don't report."""
        if not pending:
            return pending
        with self._services.db.read() as connection:
            nodes = attempt_store.nodes_of(connection, attempt.id)
        reported = (node.node for node in nodes if node.state is not NodeState.LAUNCHED)
        return frozenset(reported) & pending

    def _heard_s(self, attempt: Attempt) -> float:
        """How many seconds ago its nodes reported last."""
        with self._services.db.read() as connection:
            nodes = attempt_store.nodes_of(connection, attempt.id)
        heard_at = max(node.seen_at for node in nodes)
        return (self._services.clock.now() - heard_at).total_seconds()

    def _preempt(self, attempt: Attempt, cause: EngineCause) -> None:
        """The engine ends it for another job: it ends like one that we preempted."""
        services = self._services
        with services.db.write() as connection:
            current = attempt_store.attempt_by_id(connection, attempt.id)
            if not _is_open(current):
                return
            message = f"attempt {attempt.number} was preempted: {cause.message}"
            error = JobError(root_cause.PREEMPTED, message, cause.hint or _RESUMES)
            attempt_store.change_attempt(
                connection,
                attempt.id,
                order="stop",
                order_reason=root_cause.PREEMPTED,
                error=vars(error),
            )
            computes.preempt(connection, attempt.id)
            job = store.job_by_id(connection, attempt.job_id)
            progress.notice(connection, job, message, services.clock.now())
        services.signals.notify(job_key_of(attempt.job_id))
        services.signals.notify(attempt_key(attempt.id))

    def _explain(self, attempt: Attempt, causes: Mapping[int, JobError]) -> None:
        """Let nodes that only know that they were ended say why."""
        with self._services.db.write() as connection:
            current = attempt_store.attempt_by_id(connection, attempt.id)
            if not _is_open(current):
                return
            for node in attempt_store.nodes_of(connection, attempt.id):
                error = causes.get(node.node)
                if error and node.error and node.error.code in _ENDED_BY_OTHERS:
                    values = vars(error)
                    attempt_store.change_node(connection, attempt.id, node.node, error=values)

    def _explain_losses(self, attempt: Attempt, status: ExecutorStatus) -> None:
        """An engine that has lost nodes may have ended them, and their workers have reported that:
        a controller of Slurm that has forgotten a job ends what runs of it.
        """
        with self._services.db.read() as connection:
            nodes = attempt_store.nodes_of(connection, attempt.id)
        codes = {node.error.code for node in nodes if node.error is not None}
        if codes and codes.issubset(_ENDED_BY_OTHERS):
            losses = {node: loss(node, status.lost_because) for node in range(len(status.nodes))}
            self._explain(attempt, {node: error for node, error in losses.items() if error})

    def _note_pending(self, attempt: Attempt, pending: frozenset[int], count: int) -> None:
        before = self.pending.get(attempt.id, frozenset(range(count)))
        self.pending[attempt.id] = pending
        came = before - pending
        if not came:
            return
        now = self._services.clock.now()
        with self._services.db.write() as connection:
            nodes = attempt_store.nodes_of(connection, attempt.id)
            for node in nodes:
                if node.node in came and node.state is NodeState.LAUNCHED:
                    # It could not report before.
                    attempt_store.change_node(connection, attempt.id, node.node, seen_at=now)


def note_waiting(services: RecordServices, attempt: Attempt, reason: str) -> None:
    """Write down what an attempt's nodes wait for; empty once they have machines."""
    if reason == attempt.waiting_for:
        return
    with services.db.write() as connection:
        current = attempt_store.attempt_by_id(connection, attempt.id)
        if current is None or current.ended_at is not None or current.waiting_for == reason:
            return
        attempt_store.change_attempt(connection, attempt.id, waiting_for=reason)
    services.signals.notify(job_key_of(attempt.job_id))


def could_not_launch(services: Services, attempt: Attempt, error: EngineUnreachable) -> None:
    """Its engine does not answer: the next round tries again, unless the job was canceled."""
    with services.db.read() as connection:
        status = store.job_by_id(connection, attempt.job_id).status
    if status is Status.CANCEL_REQUESTED:
        # Should the engine have started it after all, the nodes are told that it has ended.
        endings.fail(services, attempt, JobError("engine_unreachable", error.message, error.hint))
        return
    note_waiting(services, attempt, error.message)


def _is_open(attempt: Attempt | None) -> bool:
    """Whether it may have ended, or be ending, for what its engine did."""
    if attempt is None or attempt.ended_at is not None:
        return False
    return attempt.order_reason in root_cause.OF_ITSELF


def _error(cause: EngineCause) -> JobError:
    return JobError(cause.code, cause.message, cause.hint)


def unheard(services: Services, attempt: Attempt, error: JobError) -> JobError:
    """The error of a node that was lost before it ever reported: what it could not reach, perhaps.

    Args:
        error: of the loss.
    """
    text = services.launches.read(attempt.id)
    urls = json.loads(text)["server_urls"] if text else []
    if not urls:
        return error
    return JobError(
        error.code,
        f"{error.message}, and it has never reached the server at {', '.join(urls)}",
        f"try `curl -k {urls[0]}/livez` there, and open this TCP port of the server to the nodes",
    )


def loss(node: int, lost_because: Mapping[int, str]) -> JobError | None:
    """The error of a node whose machine is gone; None where nothing is said of it."""
    because = lost_because.get(node)
    if because is None:
        return None
    machine, separator, reason = because.partition(": ")
    where = f"node {node} ({machine}): {reason}" if separator else f"node {node}: {because}"
    return JobError(
        "node_lost",
        where,
        "a retry policy tries the job again on other machines: `torchyard: {retry: "
        "{max_attempts: 3}}`",
    )
