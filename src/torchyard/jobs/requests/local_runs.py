"""Runs of a script in the user's own Python, on the user's own machine.

Owns: what such a run is, its script's token, its beginning and its end.
Leaves: running the script to local_program/program.py, what that program asks to
azureml/sdk_v1/local_runs.py.
Always: only its program and a cancel end it; if the program is killed, the run stays as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.errors import Conflict
from torchyard.jobs import actions
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.types import ENDED, Job, JobError, Status
from torchyard.jobs.requests import runs
from torchyard.jobs.services import RecordServices
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import rights
from torchyard.workspaces.types import Identity, TokenKind

TARGET = "local"
_KEY = "local_run"


def definition_of(job: Job) -> Mapping[str, Any] | None:
    """What the client said of a local run; None of any other run and of a job."""
    return job.document.get(_KEY) if job.is_run else None


def is_local(job: Job) -> bool:
    return definition_of(job) is not None


def create(
    services: RecordServices,
    workspace: str,
    name: str,
    *,
    experiment_id: int,
    owner: str,
    parent: str,
    variables: Mapping[str, str],
    definition: Mapping[str, Any],
) -> Job:
    """Create the run, Starting; return the existing one if its name is taken.

    Args:
        variables: the script's own; secrets among them are never shown.
        definition: what is said of the run to those who ask.

    Raises:
        Conflict: the name is another run's or a job's.
    """
    document = {"environment_variables": dict(variables), _KEY: dict(definition)}
    request = runs.RunRequest(
        workspace,
        experiment_id=experiment_id,
        owner=owner,
        display_name="",
        started_at=None,
        parent=parent,
        tags={},
        name=name,
        status=Status.STARTING,
        document=document,
    )
    job = runs.create_run(services, request)
    if not is_local(job):
        raise Conflict(f"run `{name}` exists already and is not a local run", "choose another id")
    return job


def begin(services: RecordServices, job: Job) -> str:
    """Move the run to Running; a token for its script, good until the run ends.

    Raises:
        Conflict: it was canceled.
        Forbidden: its owner was removed, or may not run anything there any more.
    """
    token = workspaces.new_token(TokenKind.RUN)
    identity = Identity(job.owner, TokenKind.RUN, job.workspace, progress.run_subject(job))
    now = services.clock.now()
    with services.db.write() as connection:
        rights.refuse_unable(connection, job.owner, job.workspace)
        job = store.job_by_id(connection, job.id)
        if job.status in ENDED:
            raise Conflict(f"run `{job.name}` is {job.status.value}", "submit it again")
        progress.move(connection, job, Status.RUNNING, now)
        workspaces.keep_token(connection, token, identity, now)
    services.signals.notify(actions.job_key(job))
    return token


def end(
    services: RecordServices, job: Job, status: Status, exit_code: int | None, message: str
) -> Job:
    """The run as it is then: one that was canceled stays so.

    Args:
        message: why it failed.
    """
    error = JobError("script_failed", message) if status is Status.FAILED else None
    now = services.clock.now()
    with services.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        if job.status in ENDED:
            return job
        job = progress.move(connection, job, Status.RUNNING, now)
        progress.end(connection, job, status, now, exit_code=exit_code, error=error)
        job = store.job_by_id(connection, job.id)
    services.signals.notify(actions.job_key(job))
    return job
