"""Runs outside jobs, and experiments: what a tracking client creates and changes.

Owns: creating and changing runs that were started outside any job; experiments.
Leaves: command jobs to jobs/actions.py; their status is theirs alone.
Always: a deleted experiment or run keeps its name and can be brought back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.errors import Conflict, NotFound
from torchyard.jobs import actions, owners
from torchyard.jobs.records import (
    dataset_inputs,
    experiment_store,
    names,
    run_requests,
    store,
)
from torchyard.jobs.records.dataset_inputs import DatasetInput
from torchyard.jobs.records.row_changes import JobColumns
from torchyard.jobs.records.types import RUN, Experiment, Job, JobError, NewJob, Status
from torchyard.jobs.requests import run_search
from torchyard.jobs.requests.run_search import View
from torchyard.jobs.services import RecordServices

# Changes of tags, or what they are for the tags that there are, asked where nobody else writes.
Tags = Mapping[str, str | None] | Callable[[Mapping[str, str]], Mapping[str, str | None]]
_IDS_A_QUERY = 500


def experiment(services: RecordServices, workspace: str, number: int) -> Experiment:
    """
    Raises:
        NotFound: no such experiment.
    """
    with services.db.read() as connection:
        return _existing_experiment(connection, workspace, number)


def _existing_experiment(connection: Connection, workspace: str, number: int) -> Experiment:
    experiment = experiment_store.by_id(connection, workspace, number)
    if experiment is None:
        raise NotFound(f"experiment `{number}` does not exist in workspace `{workspace}`")
    return experiment


def existing_experiments(db: Database, workspace: str, numbers: Collection[int]) -> Collection[int]:
    """Which of these numbers are experiments, deleted or not."""
    existing: set[int] = set()
    ids = list(numbers)
    with db.read() as connection:
        for start in range(0, len(ids), _IDS_A_QUERY):
            some = ids[start : start + _IDS_A_QUERY]
            existing |= experiment_store.existing(connection, workspace, some)
    return existing


def experiments(db: Database, workspace: str) -> Sequence[Experiment]:
    """Newest first, deleted ones too."""
    with db.read() as connection:
        return experiment_store.list_in(connection, workspace)


def experiment_named(db: Database, workspace: str, name: str) -> Experiment | None:
    """A deleted one too."""
    with db.read() as connection:
        return experiment_store.find_by_name(connection, workspace, name)


def find_experiments(db: Database, workspace: str, view: View) -> Sequence[Experiment]:
    """One page of those that fit."""
    with db.read() as connection:
        return run_search.find_experiments(connection, workspace, view)


def job_counts(db: Database, workspace: str) -> Mapping[int, tuple[int, datetime]]:
    """By experiment: how many jobs and runs it has, and when the last of them was made."""
    with db.read() as connection:
        return store.count_jobs(connection, workspace)


def create_experiment(
    services: RecordServices,
    workspace: str,
    name: str,
    tags: Mapping[str, str],
    artifact_location: str = "",
) -> Experiment:
    """
    Args:
        artifact_location: where clients shall put artifacts; empty for our own place.

    Raises:
        Conflict: the name is taken, be it by a deleted one.
    """
    with services.db.write() as connection:
        if experiment_store.find_by_name(connection, workspace, name) is not None:
            raise _taken(name)
        now = services.clock.now()
        return experiment_store.add(connection, workspace, name, dict(tags), now, artifact_location)


def change_experiment(
    services: RecordServices,
    workspace: str,
    number: int,
    *,
    name: str | None = None,
    deleted: bool | None = None,
    tags: Mapping[str, str | None] | None = None,
) -> Experiment:
    """Change what is not None; a tag that is None goes, the others are merged.

    Its runs are deleted and brought back with it.
    """
    with services.db.write() as connection:
        experiment = _existing_experiment(connection, workspace, number)
        values: dict[str, Any] = {}
        if name is not None and name != experiment.name:
            if experiment_store.find_by_name(connection, workspace, name) is not None:
                raise _taken(name)
            values["name"] = name
        if deleted is not None:
            values["deleted"] = deleted
            store.change_jobs_of(connection, number, deleted=deleted)
        if tags:
            values["tags"] = _merged(experiment.tags, tags)
        if values:
            experiment_store.change(connection, number, updated_at=services.clock.now(), **values)
        changed = experiment_store.by_id(connection, workspace, number)
    assert changed is not None
    return changed


def find_runs(
    db: Database, experiment_ids: Collection[int], view: View, implied_tags: Mapping[str, str]
) -> Sequence[Job]:
    """One page of the runs and jobs of these experiments that fit, their specs left out."""
    with db.read() as connection:
        return run_search.find_runs(connection, experiment_ids, view, implied_tags)


def add_datasets(db: Database, job: Job, inputs: Sequence[DatasetInput]) -> None:
    """Note what a run was given."""
    with db.write(f"job/{job.id}") as connection:
        dataset_inputs.add(connection, job.id, inputs)


def datasets_of(db: Database, job_ids: Collection[int]) -> Mapping[int, Sequence[DatasetInput]]:
    """What each of these runs was given; those that were given nothing are left out."""
    experiment: dict[int, list[DatasetInput]] = {}
    ids = list(job_ids)
    with db.read() as connection:
        for start in range(0, len(ids), _IDS_A_QUERY):
            experiment |= dataset_inputs.of_jobs(connection, ids[start : start + _IDS_A_QUERY])
    return experiment


def datasets_in(
    db: Database, experiment_ids: Collection[int]
) -> Sequence[tuple[int, str, str, str | None]]:
    """(experiment, name, digest, context) of every data set used there, newest run first."""
    with db.read() as connection:
        return dataset_inputs.in_experiments(connection, experiment_ids)


@dataclass(frozen=True)
class RunRequest:
    """A run that is to be created, and is not a job.

    `started_at` is None for one that is still to start; `document` is what else is stored about it
    (see local_runs.py). `name` is a new one when empty; if it is taken, the run that has
    it is returned. `made_by` is whose token was sent, where `owner` is what a client says.
    `request` is the id of the request; repeating it does not create another run.
    """

    workspace: str
    experiment_id: int
    owner: str
    display_name: str
    started_at: datetime | None
    parent: str
    tags: Mapping[str, str]
    request: str = ""
    made_by: str = ""
    name: str = ""
    status: Status = Status.RUNNING
    document: Mapping[str, Any] | None = None


def create_run(services: RecordServices, request: RunRequest) -> Job:
    """
    Raises:
        NotFound: its experiment does not exist.
    """
    workspace = request.workspace
    with services.db.write() as connection:
        experiment = _existing_experiment(connection, workspace, request.experiment_id)
        existing = store.job_named(connection, workspace, request.name) if request.name else None
        if existing is None and request.request:
            job_id = run_requests.job_made_by(connection, workspace, request.request)
            existing = None if job_id is None else store.job_by_id(connection, job_id)
        if existing is not None:
            return existing
        job = store.add_job(connection, _new_job(request, experiment, services.clock.now()))
        if request.request:
            run_requests.add(connection, workspace, request.request, job.id)
        return job


def _new_job(request: RunRequest, experiment: Experiment, now: datetime) -> NewJob:
    run_name = request.name or names.generate()
    return NewJob(
        workspace=request.workspace,
        name=run_name,
        type=RUN,
        experiment_id=experiment.id,
        status=request.status,
        owner=request.owner,
        display_name=request.display_name or run_name.rpartition("_")[0] or run_name,
        document=dict(request.document or {}),
        created_at=now,
        started_at=request.started_at,
        tags=dict(request.tags),
        properties=_properties(experiment, run_name, request.owner, request.made_by),
        parent=request.parent,
    )


def _properties(experiment: Experiment, run_name: str, owner: str, made_by: str) -> dict[str, str]:
    """Where a new run's artifacts go, and who made it, where neither goes without saying."""
    properties = {}
    if experiment.artifact_location:
        # It stays with the run, for it was told to the client. A query stays at the end.
        location, mark, query = experiment.artifact_location, "", ""
        if "://" in location:
            location, mark, query = location.partition("?")
        uri = f"{location.rstrip('/')}/{run_name}/artifacts{mark}{query}"
        properties[run_search.ARTIFACT_URI] = uri
    if made_by and made_by != owner:
        properties[owners.MADE_BY] = made_by
    return properties


def change_run(
    services: RecordServices,
    workspace: str,
    name: str,
    *,
    display_name: str | None = None,
    status: Status | None = None,
    ended_at: datetime | None = None,
    deleted: bool | None = None,
    tags: Tags | None = None,
    error: JobError | None = None,
) -> Job:
    """Change what is not None; a tag that is None goes, the others are merged.

    `status` moves freely, for a tracking client may take up a run that has ended; a command
    job's status is its scheduler's, and asking to change it is our own mistake.
    """
    job = actions.get(services, workspace, name)
    with services.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        values: JobColumns = {}
        if display_name is not None:
            values["display_name"] = display_name
        if status is not None:
            assert job.is_run, f"{job.name} is a job"
            values["status"] = status.value
            values["ended_at"] = ended_at or services.clock.now() if status.ended else None
        if deleted is not None:
            values["deleted"] = deleted
        if tags:
            values["tags"] = _merged(job.tags, tags(job.tags) if callable(tags) else tags)
        if error is not None:
            values["error"] = vars(error)
        if values:
            store.change_job(connection, job.id, **values)
        return store.job_by_id(connection, job.id)


def _merged(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**old, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _taken(name: str) -> Conflict:
    return Conflict(
        f"experiment `{name}` exists already", "use it, or restore it if it was deleted"
    )
