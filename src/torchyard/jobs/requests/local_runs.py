"""Runs on a user's own machine, reported by a program there.

Owns: what such a run is, its token, its status, noticing that its program is gone.
Leaves: running the script, and what a client asks for it, to azureml/v1_local*.py.
Always: only its program and a cancel end it; silence counts from when this server began to
listen, and a run that was given up goes on as soon as its program reports again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from torchyard.base import clock
from torchyard.base.errors import Conflict
from torchyard.jobs import actions
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.job_events import StatusChanged
from torchyard.jobs.records.row_changes import JobColumns
from torchyard.jobs.records.types import ENDED, Job, JobError, Status
from torchyard.jobs.requests import runs
from torchyard.jobs.services import FileServices, RecordServices
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import rights
from torchyard.workspaces.types import Identity, TokenKind

TARGET = "local"
MACHINE = "torchyard.machine"
SILENT = "LocalRunSilent"
"""The error of a run whose program has been silent for too long."""

# Its program reports every 10 seconds.
MISSED_AFTER_S = 60.0
GIVEN_UP_AFTER_S = 600.0
FORGOTTEN_AFTER_S = 7 * 86_400.0
_KEY = "local_run"
_FOLDER = "local-runs"
_LIVE = (Status.PREPARING, Status.RUNNING, Status.FINALIZING)


@dataclass(frozen=True)
class LocalRunSpec:
    """What the program on the user's machine has to do.

    `${{inputs.NAME}}` in `arguments`, `command` and `input_variables` stands for where the input
    lies there. `inputs` and `environment` are as a job file has them; `interpreter` is empty where
    the environment is to be built. `limit_s` is 0 without a limit.
    """

    script: str = ""
    command: str = ""
    arguments: Sequence[str] = ()
    interpreter: str = ""
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    input_variables: Mapping[str, str] = field(default_factory=dict)
    limit_s: int = 0
    keeps_outputs: bool = True
    environment: str | Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "arguments": list(self.arguments)}


def is_local(job: Job) -> bool:
    return job.type == runs.RUN and _KEY in job.document


def spec_of(job: Job) -> LocalRunSpec:
    """What `create` stored."""
    stored = job.document[_KEY]
    names = {key.name for key in fields(LocalRunSpec)}
    return LocalRunSpec(**{key: value for key, value in stored.items() if key in names})


def variables_of(job: Job) -> dict[str, str]:
    """The environment variables of a local run's script."""
    return dict(job.document["environment_variables"])


def create(
    services: FileServices,
    workspace: str,
    name: str,
    *,
    experiment_id: int,
    owner: str,
    parent: str,
    variables: Mapping[str, str],
    spec: LocalRunSpec,
) -> Job:
    """Create the run, Preparing; return the existing one if its name is taken.

    Args:
        variables: the script's own; secrets among them are never shown.
        spec: what its program needs to know.

    Raises:
        Conflict: the name is another run's or a job's.
    """
    job = runs.create_run(
        services,
        runs.RunRequest(
            workspace,
            experiment_id=experiment_id,
            owner=owner,
            display_name="",
            started_at=None,
            parent=parent,
            tags={},
            name=name,
            status=Status.PREPARING,
            document={"environment_variables": dict(variables), _KEY: spec.to_json()},
        ),
    )
    if not is_local(job):
        raise Conflict(f"run `{name}` exists already and is not a local run", "choose another id")
    _heard_of(services, job)
    return job


def begin(services: RecordServices, job: Job, machine: str) -> str:
    """A token for the run's script, good until the run ends.

    Args:
        machine: where its program is, for people.
    """
    token = workspaces.new_token(TokenKind.RUN)
    identity = Identity(job.owner, TokenKind.RUN, job.workspace, progress.run_subject(job))
    with services.db.write() as connection:
        rights.refuse_unable(connection, job.owner, job.workspace)
        job = store.job_by_id(connection, job.id)
        properties = {**job.properties, MACHINE: machine[:255]}
        store.change_job(connection, job.id, properties=properties)
        workspaces.keep_token(connection, token, identity, services.clock.now())
    return token


def report(
    services: FileServices,
    job: Job,
    status: Status,
    exit_code: int | None = None,
    error: JobError | None = None,
) -> Job:
    """Record what the run's program reports, which is also a heartbeat.

    Returns the run as it is now: one that was canceled stays so, and its program is to end.
    """
    now = services.clock.now()
    with services.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        if job.status in ENDED and not _is_given_up(job):
            return job
        if status in ENDED:
            if job.status is not Status.FINALIZING:
                _move(connection, job, Status.RUNNING, now)
                job = store.job_by_id(connection, job.id)
            progress.end(connection, job, status, now, exit_code=exit_code, error=error)
        elif status is not job.status:
            _move(connection, job, status, now)
        job = store.job_by_id(connection, job.id)
    _heard_of(services, job)
    services.signals.notify(actions.job_key(job))
    return job


class LocalRunMonitor:
    """Notices when the programs of local runs go silent; one per server.

    Args:
        forgotten_after_s: a run that was given up keeps its token for so long, and no longer.
    """

    def __init__(
        self, services: FileServices, forgotten_after_s: float = FORGOTTEN_AFTER_S
    ) -> None:
        self._services = services
        self._forgotten_after_s = forgotten_after_s
        self._since = self._checked_at = services.clock.now()

    def check(self) -> None:
        """One round: mark silent runs as NotResponding, later as Failed."""
        now = self._services.clock.now()
        if (now - self._checked_at).total_seconds() >= MISSED_AFTER_S:
            # A server that was suspended for so long received nothing meanwhile.
            self._since = now
        self._checked_at = now
        for file in _folder(self._services.home).glob("*.json"):
            self._check(file, now)

    def _check(self, file: Path, now: datetime) -> None:
        try:
            heard_at = file.stat().st_mtime
        except FileNotFoundError:
            return
        silent_s = now.timestamp() - max(heard_at, self._since.timestamp())
        if silent_s < MISSED_AFTER_S:
            return
        run = json.loads(file.read_text(encoding="utf-8"))
        with self._services.db.write() as connection:
            job = store.job_named(connection, run["workspace"], run["name"])
            if job is None or (job.status in ENDED and not _is_given_up(job)):
                file.unlink(missing_ok=True)
                return
            if silent_s >= self._forgotten_after_s:
                workspaces.drop_tokens(connection, TokenKind.RUN, progress.run_subject(job))
                file.unlink(missing_ok=True)
            elif silent_s >= GIVEN_UP_AFTER_S and job.status not in ENDED:
                error = vars(_silent(job, silent_s))
                store.change_job(connection, job.id, error=error)
                # Not `progress.end`: its script's token is good should it report again.
                progress.move(connection, job, Status.FAILED, now)
            elif job.status in _LIVE:
                _move(connection, job, Status.NOT_RESPONDING, now)
            else:
                return
        self._services.signals.notify(actions.job_key(job))


def _move(connection: Connection, job: Job, status: Status, now: datetime) -> None:
    """As `progress.move`, and back from an end that was only thought to be one."""
    values: JobColumns = {"status": status.value, "ended_at": None, "error": None}
    if status is Status.RUNNING and job.started_at is None:
        values["started_at"] = now
        values["started_steady"] = clock.steady_text(now)
    store.change_job(connection, job.id, **values)
    store.add_event(connection, job.id, now, StatusChanged(status))


def _is_given_up(job: Job) -> bool:
    return job.error is not None and job.error.code == SILENT


def _silent(job: Job, silent_s: float) -> JobError:
    where = f" on `{job.properties[MACHINE]}`" if MACHINE in job.properties else ""
    return JobError(
        SILENT,
        f"the run's program{where} has not reported for {silent_s / 60:.0f} minutes",
        "it was killed, its machine is off, or it cannot reach the server; its log is "
        "`azureml-setup/torchyard.log` in the run's folder there",
    )


def _folder(home: Path) -> Path:
    return home / _FOLDER


def _heard_of(services: FileServices, job: Job) -> None:
    file = _folder(services.home) / f"{job.id}.json"
    if job.status in ENDED:
        file.unlink(missing_ok=True)
        return
    if not file.exists():
        file.parent.mkdir(mode=0o700, exist_ok=True)
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps({"workspace": job.workspace, "name": job.name}))
        draft.replace(file)
    moment = services.clock.now().timestamp()
    os.utime(file, (moment, moment))
