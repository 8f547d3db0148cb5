"""Runs that are no jobs, and experiments: what a tracking client makes and changes.

Owns: creating and changing runs that were started outside any job; experiments.
Leaves: command jobs to jobs/actions.py; their status is theirs alone.
Always: a deleted experiment or run keeps its name and can be brought back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from torchyard.base.errors import Conflict, NotFound
from torchyard.jobs import actions
from torchyard.jobs.files import owners
from torchyard.jobs.records import dataset_inputs, experiment_store, names, run_requests, store
from torchyard.jobs.records.dataset_inputs import DatasetInput
from torchyard.jobs.records.types import Experiment, Job, JobError, Status
from torchyard.jobs.requests import run_search
from torchyard.jobs.requests.run_search import View
from torchyard.jobs.services import Services

RUN = "run"
# Changes of tags, or what they are for the tags that there are, asked where nobody else writes.
Tags = Mapping[str, str | None] | Callable[[Mapping[str, str]], Mapping[str, str | None]]
_IDS_A_QUERY = 500


def experiment(services: Services, workspace: str, number: int) -> Experiment:
    """
    Raises:
        NotFound: no such experiment.
    """
    with services.db.read() as connection:
        found = experiment_store.by_id(connection, workspace, number)
    if found is None:
        raise NotFound(f"experiment `{number}` does not exist in workspace `{workspace}`")
    return found


def experiments(services: Services, workspace: str) -> Sequence[Experiment]:
    """Newest first, deleted ones too."""
    with services.db.read() as connection:
        return experiment_store.list_in(connection, workspace)


def experiment_named(services: Services, workspace: str, name: str) -> Experiment | None:
    """A deleted one too."""
    with services.db.read() as connection:
        return experiment_store.named(connection, workspace, name)


def find_experiments(services: Services, workspace: str, view: View) -> Sequence[Experiment]:
    """One page of those that fit."""
    with services.db.read() as connection:
        return run_search.find_experiments(connection, workspace, view)


def job_counts(services: Services, workspace: str) -> Mapping[int, tuple[int, datetime]]:
    """By experiment: how many jobs and runs it has, and when the last of them was made."""
    with services.db.read() as connection:
        return store.count_jobs(connection, workspace)


def environment_hashes(services: Services, workspace: str) -> set[str]:
    """The environments that jobs of the workspace asked for."""
    with services.db.read() as connection:
        return store.environment_hashes(connection, workspace)


def create_experiment(
    services: Services,
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
        if experiment_store.named(connection, workspace, name) is not None:
            raise _taken(name)
        now = services.clock.now()
        return experiment_store.add(connection, workspace, name, dict(tags), now, artifact_location)


def change_experiment(
    services: Services,
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
        found = experiment_store.by_id(connection, workspace, number)
        if found is None:
            raise NotFound(f"experiment `{number}` does not exist in workspace `{workspace}`")
        values: dict[str, Any] = {}
        if name is not None and name != found.name:
            if experiment_store.named(connection, workspace, name) is not None:
                raise _taken(name)
            values["name"] = name
        if deleted is not None:
            values["deleted"] = deleted
            store.change_jobs_of(connection, number, deleted=deleted)
        if tags:
            values["tags"] = _merged(found.tags, tags)
        if values:
            experiment_store.change(connection, number, updated_at=services.clock.now(), **values)
        changed = experiment_store.by_id(connection, workspace, number)
    assert changed is not None
    return changed


def find_runs(
    services: Services, experiment_ids: Collection[int], view: View, implied_tags: Mapping[str, str]
) -> Sequence[Job]:
    """One page of the runs and jobs of these experiments that fit, their specs left out."""
    with services.db.read() as connection:
        return run_search.find_runs(connection, experiment_ids, view, implied_tags)


def add_datasets(services: Services, job: Job, inputs: Sequence[DatasetInput]) -> None:
    """Note what a run was given."""
    with services.db.write(f"job/{job.id}") as connection:
        dataset_inputs.add(connection, job.id, inputs)


def datasets_of(
    services: Services, job_ids: Collection[int]
) -> Mapping[int, Sequence[DatasetInput]]:
    """What each of these runs was given; those that were given nothing are left out."""
    found: dict[int, list[DatasetInput]] = {}
    ids = list(job_ids)
    with services.db.read() as connection:
        for start in range(0, len(ids), _IDS_A_QUERY):
            found |= dataset_inputs.of_jobs(connection, ids[start : start + _IDS_A_QUERY])
    return found


def datasets_in(
    services: Services, experiment_ids: Collection[int]
) -> Sequence[tuple[int, str, str, str | None]]:
    """(experiment, name, digest, context) of every data set used there, newest run first."""
    with services.db.read() as connection:
        return dataset_inputs.in_experiments(connection, experiment_ids)


def create_run(
    services: Services,
    workspace: str,
    *,
    experiment_id: int,
    owner: str,
    display_name: str,
    started_at: datetime | None,
    parent: str,
    tags: Mapping[str, str],
    request: str = "",
    made_by: str = "",
    name: str = "",
    status: Status = Status.RUNNING,
    spec: Mapping[str, Any] | None = None,
) -> Job:
    """A run that is no job.

    Args:
        started_at: None for one that is only being prepared.
        spec: what is to be known of it beside all this (see local_runs.py).
        name: what it is called; a new one when empty. One that is taken is that run.
        made_by: whose token asks, where `owner` is what a client says.
        request: the id of the request that asks for it; asked again, it makes no other run.
    """
    made_up = name or names.generate()
    place = experiment(services, workspace, experiment_id)
    elsewhere = {}
    if place.artifact_location:
        # It stays with the run, for it was told to the client. A query stays at the end.
        location, mark, query = place.artifact_location, "", ""
        if "://" in location:
            location, mark, query = location.partition("?")
        uri = f"{location.rstrip('/')}/{made_up}/artifacts{mark}{query}"
        elsewhere = {run_search.ARTIFACT_URI: uri}
    if made_by and made_by != owner:
        elsewhere[owners.MADE_BY] = made_by
    values: dict[str, Any] = {
        "workspace": workspace,
        "name": made_up,
        "type": RUN,
        "experiment_id": place.id,
        "status": status.value,
        "owner": owner,
        "display_name": display_name or made_up.rpartition("_")[0] or made_up,
        "spec": dict(spec or {}),
        "spec_hash": "",
        "environment": None,
        "environment_hash": "",
        "compute": "",
        "node_count": 0,
        "processes_per_node": 0,
        "created_at": services.clock.now(),
        "started_at": started_at,
        "tags": dict(tags),
        "properties": elsewhere,
        "parent": parent,
        "attempt": 0,
        "deleted": False,
        "archived": False,
        "description": "",
    }
    with services.db.write() as connection:
        if name and (taken := store.job_named(connection, workspace, name)) is not None:
            return taken
        if not request:
            return store.job_by_id(connection, store.add_job(connection, values))
        known = run_requests.job_made_by(connection, workspace, request)
        if known is None:
            known = store.add_job(connection, values)
            run_requests.keep(connection, workspace, request, known)
        return store.job_by_id(connection, known)


def change_run(
    services: Services,
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
        values: dict[str, Any] = {}
        if display_name is not None:
            values["display_name"] = display_name
        if status is not None:
            assert job.type == RUN, f"{job.name} is a job"
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
