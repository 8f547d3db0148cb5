"""Start an attempt on the nodes it holds.

Owns: passing an attempt to the executor, and storing its handle.
Leaves: the plan to planner.py, processes to executors/.
Always: an attempt that is launched twice starts once; no transaction is open meanwhile; a server
that stalled starts nothing that another one may own by now.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Connection

from torchyard.base import disk
from torchyard.base.errors import DatabaseUnreachable
from torchyard.environments.types import EnvironmentSpec
from torchyard.environments.types import from_json as environment_from_json
from torchyard.executors.executor import (
    DevicesTaken,
    EngineRefused,
    EngineUnreachable,
    Executor,
    Handle,
)
from torchyard.executors.runner_client import RunnerRefused, RunnerUnreachable
from torchyard.jobs.attempts import endings, engine_nodes, planner, worker_reports
from torchyard.jobs.files import inputs
from torchyard.jobs.records import attempt_store, isolation, store
from torchyard.jobs.records.types import Attempt, JobError
from torchyard.jobs.services import Services
from torchyard.jobs.spec import secrets
from torchyard.servers.types import LeaseLost
from torchyard.shared.plan import LaunchPlan
from torchyard.workspaces import actions as workspaces

_log = logging.getLogger(__name__)


class Launcher:
    """
    Args:
        server_url: the address at which workers reach this server.
    """

    def __init__(self, services: Services, executor: Executor, server_url: str) -> None:
        self._services = services
        self._executor = executor
        self._server_url = server_url

    def launch(self, attempt: Attempt) -> None:
        """Launch an attempt, also one that a killed server was about to launch."""
        self.launch_all([attempt])

    def launch_all(self, attempts: Sequence[Attempt]) -> timedelta:
        """As `launch`; one that fails keeps none of the others from being launched.

        Returns:
            How long the executor took.
        """
        took = timedelta()
        if not attempts:
            return took
        try:
            plans = self._plans(attempts)
        except Exception as error:
            if len(attempts) == 1 or not isolation.is_job_error(error):
                self._fail(attempts[0], error)
                return took
            return sum((self.launch_all([attempt]) for attempt in attempts), took)
        launched: list[tuple[Attempt, Handle]] = []
        failure: Exception | None = None
        started_at = self._services.clock.now()
        for attempt, plan in zip(attempts, plans, strict=True):
            try:
                self._services.membership.confirm()
                launched.append((attempt, self._executor.launch(plan)))
            except Exception as error:
                try:
                    self._fail(attempt, error)
                except Exception as not_its_own:
                    failure = not_its_own
                    break
        took = self._services.clock.now() - started_at
        self._keep(launched)
        if failure is not None:
            raise failure
        return took

    def _fail(self, attempt: Attempt, error: Exception) -> None:
        """Queue the job of an attempt again that could not be launched, or fail it.

        Raises:
            Exception: `error`, which is not the job's: the next round launches it.
        """
        if isinstance(error, (DatabaseUnreachable, LeaseLost, RunnerUnreachable)):
            raise error
        if isinstance(error, DevicesTaken):
            # If some nodes run, the next round tries to start the others.
            if not error.begun:
                worker_reports.put_back(self._services, attempt, error.message)
            return
        if isinstance(error, EngineUnreachable):
            engine_nodes.could_not_launch(self._services, attempt, error)
            return
        if isinstance(error, (RunnerRefused, EngineRefused)):
            message = f"the job could not be launched: {error.message}"
            endings.fail(self._services, attempt, JobError("launch_failed", message, error.hint))
            return
        if disk.meaning(error) is not None:
            raise error
        _log.error("attempt %s could not be launched", attempt.id, exc_info=error)
        message = f"the job could not be launched: {error}"
        endings.fail(
            self._services, attempt, JobError("launch_failed", message, "see `yard server logs`")
        )

    def recover(self, attempt: Attempt) -> Handle:
        """Start a recovery worker that delivers what dead workers left."""
        (plan,) = self._plans([attempt], recovers=True)
        self._services.membership.confirm()
        handle = self._executor.recover(plan)
        self._keep([(attempt, handle)])
        return handle

    def _keep(self, launched: Sequence[tuple[Attempt, Handle]]) -> None:
        if not launched:
            return
        with self._services.db.write() as connection:
            for attempt, handle in launched:
                attempt_store.change_attempt(connection, attempt.id, handle=handle.to_json())

    def _plans(self, attempts: Sequence[Attempt], recovers: bool = False) -> list[LaunchPlan]:
        """In the order of the attempts."""
        services = self._services
        job_ids = [attempt.job_id for attempt in attempts]
        with services.db.read() as connection:
            jobs = store.jobs_by_id(connection, job_ids)
            pinned = store.environments_of(connection, job_ids)
        environments = {id: environment_from_json(body) for id, body in pinned.items()}
        scopes = {
            name: workspaces.get(services.db, name)
            for name in {attempt.workspace for attempt in attempts}
        }
        folders: dict[str, Path] = {}
        launches = []
        for attempt in attempts:
            job, environment = jobs[attempt.job_id], environments[attempt.job_id]
            if not recovers:
                secrets.check_present(job.spec.environment_variables)
            input_plans = {} if recovers else inputs.plans(services, job)
            inputs.let_read(services, job, input_plans)
            if not recovers and environment.hash not in folders:
                folders[environment.hash] = self._folder(environment)
            folder = folders.get(environment.hash)
            workspace = scopes[attempt.workspace]
            launches.append(
                planner.Launch(workspace, job, attempt, folder, input_plans, environment.hash)
            )
        with services.db.write() as connection:
            self._check_own(connection, attempts)
            return planner.plans(connection, services, launches, self._server_url)

    def _folder(self, environment: EnvironmentSpec) -> Path:
        folder = self._services.environments.builds.use(environment)
        assert folder is not None
        self._services.client_endpoints.expect(folder)
        return folder

    def _check_own(self, connection: Connection, attempts: Sequence[Attempt]) -> None:
        """
        Raises:
            LeaseLost: another server owns one of the attempts, and may have ended it.
        """
        membership = self._services.membership
        membership.check(connection)
        ids = [attempt.id for attempt in attempts]
        owned = {
            current.id
            for current in attempt_store.attempts_with(connection, ids)
            if current.ended_at is None and membership.owns(current.server)
        }
        for attempt in attempts:
            if attempt.id not in owned:
                raise LeaseLost(
                    f"attempt `{attempt.id}` is no longer this server's", "nothing needs to be done"
                )
