"""Start an attempt on the nodes it holds.

Owns: passing an attempt to the executor, and storing its handle.
Leaves: the plan to planner.py, processes to executors/.
Always: an attempt that is launched twice starts once; no transaction is open meanwhile; a server
that stalled starts nothing that another one may own by now; a job whose environment or data went
away while it was queued is prepared again.
"""

from __future__ import annotations

import logging
from pathlib import Path

from sqlalchemy import Connection

from torchyard.base import disk
from torchyard.base.errors import DatabaseUnreachable, Forbidden, NotFound
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
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.records.types import Attempt, CommandJob, JobError, Stage
from torchyard.jobs.services import Services
from torchyard.jobs.spec import secrets
from torchyard.servers.types import LeaseLost
from torchyard.shared.plan import InputPlan, LaunchPlan
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import rights

_log = logging.getLogger(__name__)


class _NotPrepared(Exception):
    """What was there when the job was queued is gone, as in a home that was restored."""


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
        try:
            plan = self._plan(attempt)
            self._services.membership.confirm()
            handle = self._executor.launch(plan)
        except Exception as error:
            self._fail(attempt, error)
            return
        self._keep(attempt, handle)

    def _fail(self, attempt: Attempt, error: Exception) -> None:
        """Queue the job of an attempt again that could not be launched, or fail it.

        Raises:
            Exception: `error`, which is not the job's: the next round launches it.
        """
        if isinstance(error, (DatabaseUnreachable, LeaseLost, RunnerUnreachable)):
            raise error
        if isinstance(error, _NotPrepared):
            worker_reports.put_back(self._services, attempt, str(error), Stage.PREPARING)
            return
        if isinstance(error, DevicesTaken):
            # If some nodes run, the next round tries to start the others.
            if not error.begun:
                worker_reports.put_back(self._services, attempt, error.message)
            return
        if isinstance(error, EngineUnreachable):
            engine_nodes.could_not_launch(self._services, attempt, error)
            return
        if isinstance(error, Forbidden):
            endings.fail(self._services, attempt, JobError(error.code, error.message, error.hint))
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
        plan = self._plan(attempt, recovers=True)
        self._services.membership.confirm()
        handle = self._executor.recover(plan)
        self._keep(attempt, handle)
        return handle

    def _keep(self, attempt: Attempt, handle: Handle) -> None:
        with self._services.db.write() as connection:
            attempt_store.change_attempt(connection, attempt.id, handle=handle.to_json())

    def _plan(self, attempt: Attempt, recovers: bool = False) -> LaunchPlan:
        services = self._services
        with services.db.read() as connection:
            job = store.command_job_by_id(connection, attempt.job_id)
            environment = environment_from_json(store.environment_of(connection, job.id))
        workspace = workspaces.get(services.db, attempt.workspace)
        if not recovers:
            secrets.check_present(job.spec.environment_variables)
        input_plans = {} if recovers else self._inputs(job)
        inputs.let_read(services, job, input_plans)
        folder = None if recovers else self._folder(environment)
        launch = planner.Launch(workspace, job, attempt, folder, input_plans, environment.hash)
        with services.db.write() as connection:
            self._check_own(connection, attempt)
            if not recovers:
                rights.refuse_unable(connection, job.owner, job.workspace)
            return planner.plan(connection, services, launch, self._server_url)

    def _inputs(self, job: CommandJob) -> dict[str, InputPlan]:
        try:
            return inputs.plans(self._services.fetcher, job)
        except NotFound as error:
            raise _NotPrepared(error.message) from error

    def _folder(self, environment: EnvironmentSpec) -> Path:
        folder = self._services.environments.builds.use(environment)
        if folder is None:
            raise _NotPrepared("its environment is no longer there, and is built again")
        self._services.client_endpoints.expect(folder)
        return folder

    def _check_own(self, connection: Connection, attempt: Attempt) -> None:
        """
        Raises:
            LeaseLost: another server owns the attempt, and may have ended it.
        """
        membership = self._services.membership
        membership.check(connection)
        current = attempt_store.attempt_by_id(connection, attempt.id)
        if current is None or current.ended_at is not None or not membership.owns(current.server):
            raise LeaseLost(
                f"attempt `{attempt.id}` is no longer this server's", "nothing needs to be done"
            )
