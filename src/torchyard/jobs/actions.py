"""What people can do with existing jobs.

Owns: reading, changing, archiving and canceling jobs.
Leaves: lists of them to requests/job_queries.py, creating them to requests/submission.py, running
them to scheduler.py and attempts/worker_reports.py, their files to files/artifacts.py.
Always: what a job is made of never changes; a name, a description and tags may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.documents import secret_variables
from torchyard.base.errors import (
    Conflict,
    InvalidInput,
    InvalidSpec,
    NotFound,
    did_you_mean,
)
from torchyard.jobs.records import (
    attempt_store,
    experiment_store,
    job_masking,
    progress,
    store,
)
from torchyard.jobs.records.job_events import Event
from torchyard.jobs.records.types import ENDED, Attempt, Experiment, Job, JobError, Status
from torchyard.jobs.services import RecordServices, Services
from torchyard.jobs.spec import own_properties
from torchyard.jobs.spec.parts import experiment_name as experiment_name_in

# What a person may change of a job, and what each value has to be.
# What the worker of an attempt is asked for; see `Attempt.order`.
STOP, KILL = "stop", "kill"

_UNLAUNCHED = frozenset({Status.NOT_STARTED, Status.PREPARING, Status.QUEUED})
_CHANGES = ("display_name", "description", "tags", "experiment_name")


def ensure_experiment(
    connection: Connection, clock: Clock, workspace: str, name: str
) -> Experiment:
    """The experiment of that name, made if need be."""
    experiment = experiment_store.find_by_name(connection, workspace, name)
    if experiment is not None:
        return experiment
    return experiment_store.add(connection, workspace, name, {}, clock.now())


def get(services: RecordServices, workspace: str, name: str) -> Job:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with services.db.read() as connection:
        job = store.job_named(connection, workspace, name)
        if job is not None:
            return job
        names = store.job_names(connection, workspace)
    hint = did_you_mean(name, names, "list jobs with `yard job list`")
    raise NotFound(
        f"job `{name}` does not exist in workspace `{workspace}`", hint, code="job_not_found"
    )


def get_all(services: RecordServices, workspace: str, names: Sequence[str]) -> list[Job]:
    """
    Raises:
        NotFound: as `get`, of the first one that does not exist.
    """
    with services.db.read() as connection:
        jobs = store.jobs_named(connection, workspace, names)
    return [jobs.get(name) or get(services, workspace, name) for name in names]


def find_by_name(db: Database, workspace: str, name: str) -> Job | None:
    """Like `get`, but None if it does not exist."""
    with db.read() as connection:
        return store.job_named(connection, workspace, name)


@dataclass(frozen=True)
class JobChanges:
    """What is to change about a job; None leaves it as it is.

    `tags` and `properties` are added to what is there, and a tag that is None is removed. An empty
    `display_name` is the job's name. An `experiment_name` that is new becomes an experiment.
    """

    display_name: str | None = None
    description: str | None = None
    tags: Mapping[str, str | None] | None = None
    properties: Mapping[str, str] | None = None
    archived: bool | None = None
    experiment_name: str = ""


def read_changes(document: Mapping[str, Any]) -> JobChanges:
    """`display_name`, `description`, `tags` and `experiment_name` of a request; null takes one of
    the first three away.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
    """
    otherwise = f"you can change {', '.join(_CHANGES)}; for anything else, clone the job"
    fields.refuse_unchangeable(document, _CHANGES, "a job", otherwise)
    return JobChanges(
        display_name=_text(document, "display_name"),
        description=_text(document, "description"),
        tags=read_tags(document["tags"]) if document.get("tags") else None,
        experiment_name=experiment_name_in(document),
    )


def change(services: Services, job: Job, changes: JobChanges) -> Job:
    """Change a job as it was read; what differs meanwhile is merged with, not lost.

    Raises:
        Conflict: a property has another value already, or is one that torchyard reads; a job that
            has not ended can't be archived; one that has begun can't move to another experiment.
    """
    moves = changes.experiment_name not in ("", job.experiment_name)
    if not moves and not _new_values(job, changes):
        return job
    with services.db.write() as connection:
        current = store.job_by_id(connection, job.id)
        values = _new_values(current, changes)
        if moves:
            values["experiment_id"] = _new_experiment(connection, services.clock, current, changes)
        if values:
            store.change_job(connection, job.id, **values)
        if "archived" in values and job.type in services.job_types:
            store.archive_children(connection, job.workspace, job.name, values["archived"])
    services.signals.notify(job_key(job))
    if moves:
        current = replace(current, experiment_name=changes.experiment_name)
    return replace(current, **values)


def _new_experiment(connection: Connection, clock: Clock, job: Job, changes: JobChanges) -> int:
    """The id of the experiment that a job moves to.

    Raises:
        Conflict: the job's script may run, and knows its experiment.
    """
    if not job.status.ended and not _is_unlaunched(connection, job):
        raise Conflict(
            f"job `{job.name}` is {job.status.value} and can't move to another experiment",
            f"wait until it ends, or run `yard job cancel -n {job.name}`",
            code="job_not_ended",
        )
    return ensure_experiment(connection, clock, job.workspace, changes.experiment_name).id


def _is_unlaunched(connection: Connection, job: Job) -> bool:
    """Whether no attempt has begun, whose script would know the experiment by its plan.

    Plans are read after the attempt is added, so they have the new name.
    """
    if not job.has_ranks or job.status not in _UNLAUNCHED:
        return False
    return not attempt_store.attempts_of(connection, job.id)


def _new_values(job: Job, changes: JobChanges) -> dict[str, Any]:
    """By column, the values that are not there yet; the job's secrets are masked in them."""
    values: dict[str, Any] = {}
    if changes.display_name is not None:
        values["display_name"] = changes.display_name or job.name
    if changes.description is not None:
        values["description"] = changes.description
    if changes.tags:
        values["tags"] = _merged(job.tags, changes.tags)
    if changes.properties:
        _check_properties(job, changes.properties)
        values["properties"] = {**changes.properties, **job.properties}
    values = job_masking.masked(job, values)
    if changes.archived is not None:
        if changes.archived and not job.status.ended:
            raise Conflict(
                f"job `{job.name}` is {job.status.value} and can't be archived",
                f"wait until it ends, or run `yard job cancel -n {job.name}`",
                code="job_not_ended",
            )
        values["archived"] = changes.archived
    return {key: value for key, value in values.items() if value != getattr(job, key)}


def _check_properties(job: Job, properties: Mapping[str, str]) -> None:
    for key, value in properties.items():
        if job.properties.get(key) == value:
            continue
        if key in job.properties or key.startswith(own_properties.PREFIX):
            raise Conflict(
                f"property `{key}` of job `{job.name}` can't be changed",
                "properties are fixed when the job is created; use a tag",
                at=("properties", key),
            )


def update(services: Services, workspace: str, name: str, changes: Mapping[str, Any]) -> Job:
    """Change what `read_changes` reads: tags are merged, and null takes one away.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
        NotFound: no such job.
    """
    return change(services, get(services, workspace, name), read_changes(changes))


def add_properties(
    services: Services, workspace: str, name: str, properties: Mapping[str, Any]
) -> Job:
    """Add properties to a job; existing ones stay.

    Raises:
        Conflict: a property has another value already, or is one that torchyard reads.
        NotFound: no such job.
    """
    changes = JobChanges(properties=read_properties(properties))
    return change(services, get(services, workspace, name), changes)


def archive(services: Services, workspace: str, name: str, archived: bool = True) -> Job:
    """Hide a job from lists, or restore it; it can still be found by name.

    Raises:
        NotFound: no such job.
        Conflict: it is still running.
    """
    return change(services, get(services, workspace, name), JobChanges(archived=archived))


def document(services: RecordServices, workspace: str, name: str) -> dict[str, Any]:
    """The job file that would make the job again: references pinned, snapshots kept, secrets gone.

    Raises:
        NotFound: no such job.
        Conflict: it is a run that was started outside any job.
    """
    job = get(services, workspace, name)
    if job.is_run:
        raise Conflict(
            f"`{name}` is a run without a job file", "it was started outside torchyard's jobs"
        )
    return secret_variables.masked_document(job.document)


def read_tags(tags: Any) -> dict[str, str | None]:
    """Changes of tags or properties; null takes one away.

    Raises:
        InvalidSpec: they are not a mapping of texts and numbers.
    """
    if not isinstance(tags, Mapping):
        raise InvalidSpec(
            "`tags` must be a mapping of strings",
            "for example `tags: {team: vision}`",
            at=("tags",),
        )
    changes: dict[str, str | None] = {}
    for key, value in tags.items():
        if value is None:
            changes[str(key)] = None
        elif isinstance(value, str | int | float):
            changes[str(key)] = fields.literal(value)
        else:
            raise InvalidSpec(
                f"the value of `tags.{key}` must be text or a number",
                f"for example `{key}: some text`",
                at=("tags", str(key)),
            )
    return changes


def read_properties(properties: Any) -> dict[str, str]:
    """Properties to add; null says nothing.

    Raises:
        InvalidSpec: they are not a mapping of texts and numbers.
    """
    return _merged({}, read_tags(properties))


def _merged(old: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    values = {**old, **changes}
    return {key: value for key, value in values.items() if value is not None}


def environment(db: Database, job: Job) -> dict[str, Any]:
    """The environment as it was pinned when the job was created; empty for a run without one."""
    with db.read() as connection:
        return store.environment_of(connection, job.id) or {}


def environment_hash(db: Database, job: Job) -> str:
    """The hash of the environment as it was pinned; empty for a run that is not a job."""
    with db.read() as connection:
        return store.environment_hash_of(connection, job.id)


def requested_environment(db: Database, job: Job) -> str:
    """The name by which the job requested its environment, where that is another's; else empty."""
    return str(environment(db, job).get("requested", ""))


def events(db: Database, job: Job, after: int = 0) -> list[Event]:
    with db.read() as connection:
        return store.events_after(connection, job.id, after)


def cancel(
    services: Services,
    workspace: str,
    name: str,
    why: JobError | None = None,
    kill: bool = False,
) -> Job:
    """Stop a job; one that has ended stays as it is.

    Args:
        kill: end its ranks at once, without their grace period; also after a cancel without it.
        why: becomes the job's error, if it was not canceled by a user.
    """
    job = get(services, workspace, name)
    if job.type in services.job_types:
        return services.job_types[job.type].cancel(services, job, why, kill)
    now = services.clock.now()
    with services.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        if job.status in ENDED or (job.status is Status.CANCEL_REQUESTED and not kill):
            return job
        tries = attempt_store.attempts_of(connection, job.id)
        running = [attempt for attempt in tries if attempt.ended_at is None]
        if running:
            progress.move(connection, job, Status.CANCEL_REQUESTED, now)
            _request_stop(connection, running[-1], job, kill, why)
        else:
            progress.end(connection, job, Status.CANCELED, now, error=why)
        job = store.job_by_id(connection, job.id)
    services.signals.notify(job_key(job))
    for attempt in running:
        services.signals.notify(attempt_key(attempt.id))
    services.wakeup.set()
    return job


def _request_stop(
    connection: Connection, attempt: Attempt, job: Job, kill: bool, why: JobError | None
) -> None:
    error = why
    if job.status is Status.CANCEL_REQUESTED:
        error = why or attempt.error
    attempt_store.change_attempt(
        connection,
        attempt.id,
        order=KILL if kill else STOP,
        order_reason="cancel",
        error=None if error is None else vars(error),
    )


def job_key(job: Job) -> str:
    """What `Signals` calls a job."""
    return job_key_of(job.id)


def job_key_of(job_id: int) -> str:
    """`job_key` of the job with that number."""
    return f"job/{job_id}"


def attempt_key(attempt_id: str) -> str:
    """What `Signals` calls an attempt."""
    return f"attempt/{attempt_id}"


def _text(document: Mapping[str, Any], key: str) -> str | None:
    """A text to change; null empties it, None says nothing."""
    if key not in document:
        return None
    value, limit = document[key], 255 if key == "display_name" else 10_000
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > limit:
        raise InvalidSpec(f"`{key}` must be text", f"of up to {limit} characters", at=(key,))
    return value


def wanted_tags(tags: Sequence[str]) -> dict[str, str | None]:
    """Each `key` or `key=value`; a tag that is None may have any value.

    Raises:
        InvalidInput: one is neither.
    """
    filters: dict[str, str | None] = {}
    for tag in tags:
        key, equals, value = tag.partition("=")
        if not key or '"' in key:
            raise InvalidInput(f"`{tag}` is not a tag", "write `key` or `key=value`")
        filters[key] = value if equals else None
    return filters


def status_named(text: str) -> Status:
    """
    Raises:
        InvalidSpec: there is none of that name, in whatever case.
    """
    for status in Status:
        if status.value.lower() == text.lower():
            return status
    names = [status.value for status in Status]
    raise InvalidSpec(
        f"`{text}` is not a job status",
        did_you_mean(text, names),
    )
