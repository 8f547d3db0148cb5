"""Workers that have gone silent.

Owns: when a job is NotResponding, and when it fails for that.
Leaves: workers that have exited to monitoring.py, which asks the executor.
Always: silence counts from when this server began to listen, since a server that was down or
suspended received nothing; a job that reports again goes on as before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from datetime import datetime, timedelta

from torchyard.executors.executor import EngineUnreachable, Executor, Handle
from torchyard.jobs.actions import job_key
from torchyard.jobs.attempts import engine_nodes, takeover, worker_reports
from torchyard.jobs.records import attempt_store, isolation, progress, round_store, store
from torchyard.jobs.records.types import Attempt, AttemptNode, JobError, NodeState, Status
from torchyard.jobs.services import Services
from torchyard.shared.plurals import plural

_log = logging.getLogger(__name__)
# A worker reports every 5 seconds.
MISSED_AFTER_S = 30.0
# Of another machine nothing but its silence says that it has died: its engine is asked then.
PROBED_AFTER_S = 6.0
# A worker that has not reported yet may not have begun: its node runs a site's prolog, or is busy.
_BEGINS_WITHIN_S = 60.0
GIVEN_UP_AFTER_S = 600.0
# Of an attempt that is told to end: its other nodes, and its job, wait for nothing else.
_ENDING_GIVEN_UP_AFTER_S = 30.0


class Heartbeats:
    """Notices when workers go silent; one per server.

    Args:
        pending: by attempt, the nodes that can't report, for they have no machine yet.
    """

    def __init__(
        self,
        services: Services,
        executor: Executor,
        pending: Mapping[str, frozenset[int]] | None = None,
        missed_after_s: float = MISSED_AFTER_S,
        given_up_after_s: float = GIVEN_UP_AFTER_S,
    ) -> None:
        self._services = services
        self._executor = executor
        self._pending = {} if pending is None else pending
        self._missed_after_s = missed_after_s
        self._given_up_after_s = given_up_after_s
        self._listening_since = self._checked_at = services.clock.now()

    def check(self) -> None:
        """One round over the attempts with a node that is silent, or was in the last round."""
        now = self._services.clock.now()
        if not 0 <= (now - self._checked_at).total_seconds() < self._missed_after_s:
            # A server that was suspended for so long received nothing meanwhile; or somebody has
            # set the clock, and what was reported before says nothing any more.
            self._listening_since = now
        self._checked_at = now
        shortest_s = min(self._missed_after_s, PROBED_AFTER_S)
        since = now - timedelta(seconds=shortest_s)
        with self._services.db.read() as connection:
            attempt_ids = round_store.to_listen_to(connection, since, now)
            every = attempt_store.open_attempts(connection) if attempt_ids else []
            running = takeover.owned(
                self._services.membership,
                [attempt for attempt in every if attempt.id in attempt_ids],
            )
            nodes = {
                attempt.id: attempt_store.nodes_of(connection, attempt.id) for attempt in running
            }
        isolation.isolate_failures(
            (attempt for attempt in running if attempt.handle is not None),
            lambda attempt: self._check(attempt, nodes[attempt.id], now),
        )

    def _silent_of(
        self, attempt: Attempt, nodes: Sequence[AttemptNode], now: datetime
    ) -> dict[int, float]:
        pending = self._pending.get(attempt.id, frozenset())
        limit_s = self._missed_after_s
        if not attempt.is_local:
            limit_s = min(limit_s, PROBED_AFTER_S)
        return self._silent([node for node in nodes if node.node not in pending], now, limit_s)

    def _silent(
        self, nodes: Sequence[AttemptNode], now: datetime, limit_s: float
    ) -> dict[int, float]:
        """Seconds of silence, by node, of the nodes that missed heartbeats."""
        silences = {
            node.node: (now - self._heard_at(node, now)).total_seconds()
            for node in nodes
            if node.state is not NodeState.EXITED
        }
        return {node: s for node, s in silences.items() if s >= limit_s}

    def _heard_at(self, node: AttemptNode, now: datetime) -> datetime:
        # A report may have arrived since `now` was read, or by a server whose clock is ahead; a
        # time further to come is from before the clock was set back.
        ahead_s = (node.seen_at - now).total_seconds()
        seen_at = node.seen_at if ahead_s < self._missed_after_s else self._listening_since
        return max(seen_at, self._listening_since)

    def _check(self, attempt: Attempt, nodes: Sequence[AttemptNode], now: datetime) -> None:
        silent = self._silent_of(attempt, nodes, now)
        limit_s = self._given_up_after_s
        if attempt.order and not attempt.is_local:
            limit_s = min(limit_s, _ENDING_GIVEN_UP_AFTER_S)
        given_up = [node for node, s in silent.items() if s >= limit_s]
        begun = {
            node.node
            for node in nodes
            if node.next_seq or silent.get(node.node, 0.0) >= _BEGINS_WITHIN_S
        }
        lost = {} if attempt.is_local or not silent else self._lost_machines(attempt, silent, begun)
        if given_up:
            self._give_up(attempt, given_up, silent)
        elif lost:
            self._lose_machines(attempt, lost, {node.node for node in nodes if node.next_seq})
        else:
            missed = {node: s for node, s in silent.items() if s >= self._missed_after_s}
            self._show(attempt, missed, now)

    def _lost_machines(
        self, attempt: Attempt, silent: dict[int, float], begun: Set[int]
    ) -> Mapping[int, str]:
        assert attempt.handle is not None
        handle = Handle.from_json(attempt.handle)
        try:
            return self._services.engines.probe(handle, sorted(silent), begun)
        except EngineUnreachable:
            return {}

    def _lose_machines(self, attempt: Attempt, lost: Mapping[int, str], heard: Set[int]) -> None:
        for node, because in lost.items():
            worker_reports.report_worker_death(self._services, attempt.id, node)
            error = engine_nodes.loss(node, lost)
            if error is not None and node not in heard:
                error = engine_nodes.unheard(self._services, attempt, error)
            _log.warning("attempt %s: node %d: %s", attempt.id, node, because)
            worker_reports.lose(self._services, attempt.id, node, error)

    def _show(self, attempt: Attempt, silent: dict[int, float], now: datetime) -> None:
        services = self._services
        with services.db.read() as connection:
            status = store.job_by_id(connection, attempt.job_id).status
        is_due = {Status.RUNNING: bool(silent), Status.NOT_RESPONDING: not silent}
        if not is_due.get(status):
            return
        with services.db.write() as connection:
            job = store.job_by_id(connection, attempt.job_id)
            if job.status is not status:
                return
            if silent:
                progress.notice(connection, job, self._missed(attempt, silent), now)
                progress.move(connection, job, Status.NOT_RESPONDING, now)
            else:
                progress.move(connection, job, Status.RUNNING, now)
        services.signals.notify(job_key(job))

    def _missed(self, attempt: Attempt, silent: dict[int, float]) -> str:
        names = ", ".join(map(str, sorted(silent)))
        # An engine has limits of its own, most of them shorter.
        earlier = "" if attempt.is_local else ", or as soon as the cluster gives its machine up"
        return (
            f"the worker of {plural('node', len(silent))} {names} has not reported for "
            f"{max(silent.values()):.0f} s; the job fails after {self._given_up_after_s:g} s"
            f"{earlier}"
        )

    def _give_up(self, attempt: Attempt, given_up: list[int], silent: dict[int, float]) -> None:
        assert attempt.handle is not None
        # Its processes may still exist, suspended or cut off: they must not resume by themselves.
        try:
            self._executor.stop(Handle.from_json(attempt.handle), 0.0)
        except EngineUnreachable as unreachable:
            # Its workers learn that the attempt has ended as soon as they reach this server.
            _log.warning("attempt %s could not be stopped: %s", attempt.id, unreachable.message)
        for node in given_up:
            error = JobError(
                "not_responding",
                f"the worker of node {node} has not reported for {silent[node]:.0f} s",
                "check that the machine is running and reaches the server",
            )
            worker_reports.lose(self._services, attempt.id, node, error)
