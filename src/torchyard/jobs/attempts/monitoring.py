"""Watch running attempts, and clean up after ended ones.

Owns: noticing workers that have exited, removing what attempts left on their nodes.
Leaves: what a lost worker means to worker_reports.py, silent workers to heartbeats.py.
Always: a node's files are removed only after its workers have exited and its run history is stored.
"""

from __future__ import annotations

import logging
import time

from torchyard.base import disk
from torchyard.base.errors import DatabaseUnreachable
from torchyard.executors.executor import EngineUnreachable, Executor, Handle
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.jobs.attempts import endings, takeover, worker_history, worker_reports
from torchyard.jobs.attempts.engine_nodes import EngineNodes
from torchyard.jobs.attempts.heartbeats import GIVEN_UP_AFTER_S
from torchyard.jobs.attempts.launching import Launcher
from torchyard.jobs.attempts.output_registration import Finisher
from torchyard.jobs.files import scratch
from torchyard.jobs.records import attempt_store, isolation, round_store
from torchyard.jobs.records.types import Attempt
from torchyard.jobs.services import Services

_log = logging.getLogger(__name__)
_RECORD_EVERY_S = 0.25


class Watcher:
    """Watches the attempts of one server.

    Attributes:
        broken_history: by attempt, the nodes whose folders stay because their history cannot be
            read: nothing waits for these.
    """

    def __init__(self, services: Services, executor: Executor, launcher: Launcher) -> None:
        self._services = services
        self._finisher = Finisher(services)
        self._executor = executor
        self._launcher = launcher
        self._recovered: set[str] = set()
        self.engine_nodes = EngineNodes(services, executor)
        self.broken_history: dict[str, set[int]] = {}

    def close(self) -> None:
        self._finisher.close()

    def watch(self) -> None:
        with self._services.db.read() as connection:
            attempts = attempt_store.open_attempts(connection)
            done = set(round_store.all_nodes_exited(connection))
        owned = takeover.owned(self._services.membership, attempts)
        isolation.isolate_failures(owned, lambda attempt: self._watch(attempt, attempt.id in done))

    def _watch(self, attempt: Attempt, is_done: bool) -> None:
        if attempt.handle is None:
            self._launcher.launch(attempt)
            return
        if not attempt.is_local:
            # Before it ends: a node that was told to end does not know by whom, and for what.
            is_done = self.engine_nodes.watch(attempt) and is_done
            if self.engine_nodes.is_outdated(attempt):
                self._launcher.launch(attempt)
        # Usually ended already, unless its outputs are still to be registered, or the server was
        # killed between the last report and the end.
        if is_done and endings.is_long(self._services.db, attempt):
            self._finisher.finish(attempt.id)
        elif is_done:
            endings.finish(self._services, attempt.id, cause_known=True)
        if attempt.is_local:
            self._watch_local(attempt, Handle.from_json(attempt.handle))

    def _watch_local(self, attempt: Attempt, handle: Handle) -> None:
        status = self._executor.status(handle)
        for node, state in enumerate(status.nodes):
            if state in ("ending", "lost"):
                worker_reports.report_worker_death(self._services, attempt.id, node)
        if status.state == "lost" and attempt.id not in self._recovered:
            # No worker reports on it any more: a recovery worker delivers what is left.
            self._recovered.add(attempt.id)
            status = self._executor.status(self._launcher.recover(attempt))
        for node, state in enumerate(status.nodes):
            # A worker exits only after its last report was received, so one that has exited
            # while the store says otherwise is lost.
            if state in ("exited", "lost"):
                self._take_history(attempt, node)
                worker_reports.lose(self._services, attempt.id, node)

    def clean(self) -> None:
        """Remove what ended attempts left on the nodes, once their workers have exited."""
        with self._services.db.read() as connection:
            left = attempt_store.unclean_attempts(connection)
        cleared: list[Attempt] = []
        recorded_at = time.monotonic()

        def clean(attempt: Attempt) -> None:
            nonlocal recorded_at
            if self._clean(attempt):
                cleared.append(attempt)
            # Removing may take long, and jobs that are to be retried wait for it.
            if time.monotonic() - recorded_at > _RECORD_EVERY_S:
                self._record(cleared)
                recorded_at = time.monotonic()

        try:
            isolation.isolate_failures(takeover.owned(self._services.membership, left), clean)
        finally:
            self._record(cleared)

    def _record(self, cleared: list[Attempt]) -> None:
        if cleared:
            if scratch.record_clear(self._services.db, cleared):
                self._services.wakeup.set()
            cleared.clear()

    def _clean(self, attempt: Attempt) -> bool:
        """Whether nothing of it is left on its nodes."""
        if not attempt.is_local:
            return self._clean_elsewhere(attempt)
        if not self._has_exited(attempt):
            return False
        taken = [self._take_history(attempt, node) for node in range(attempt.node_count)]
        if all(taken):
            scratch.clear(self._services, attempt)
        return all(taken)

    def _clean_elsewhere(self, attempt: Attempt) -> bool:
        """Its nodes clean up by themselves; what their engine holds for it is let go."""
        try:
            if not self._has_exited(attempt):
                # A machine that is gone can't learn that its attempt has ended.
                self.engine_nodes.end(attempt)
                return False
            self.engine_nodes.forget(attempt)
        except EngineUnreachable as error:
            _log.warning("attempt %s: %s", attempt.id, error.message)
            if not self._is_given_up(attempt):
                return False
            self.engine_nodes.drop(attempt)
        return True

    def _has_exited(self, attempt: Attempt) -> bool:
        """Whether its workers have exited."""
        if attempt.handle is None:
            return True
        status = self._executor.status(Handle.from_json(attempt.handle))
        if status.over or status.seen:
            return status.over
        return self._is_given_up(attempt)

    def _is_given_up(self, attempt: Attempt) -> bool:
        # A worker on an unreachable machine exits once it learns that its attempt has ended; one
        # that could not learn it in all this time was given up.
        assert attempt.ended_at is not None
        unheard = self._services.clock.now() - attempt.ended_at
        return unheard.total_seconds() >= GIVEN_UP_AFTER_S

    def _take_history(self, attempt: Attempt, node: int) -> bool:
        """Store a node's run history; False if its folder has to stay."""
        if node in self.broken_history.get(attempt.id, ()):
            return False
        try:
            worker_history.take_left(self._services, attempt, node)
        except (DatabaseUnreachable, RunnerUnreachable):
            raise
        except Exception as error:
            if disk.meaning(error) is not None:
                return False  # there may be space the next time
            # The job's end must not wait for it; a later version of the server tries again.
            _log.exception(
                "could not read the history that node %d of attempt %s left", node, attempt.id
            )
            self.broken_history.setdefault(attempt.id, set()).add(node)
            return False
        return True
