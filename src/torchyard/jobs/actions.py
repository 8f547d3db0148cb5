"""What people can do with jobs that exist.

Owns: reading, listing, changing, archiving and cancelling jobs.
Leaves: creating them to requests/submission.py, running them to http/scheduler.py and
attempts/worker_reports.py, their files to files/artifacts.py.
Always: what a job is made of never changes; a name, a description and tags may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from torchyard.base.errors import Conflict, InvalidInput, InvalidSpec, NotFound, nearest
from torchyard.jobs.records import attempt_store, experiment_store, job_masking, progress, store
from torchyard.jobs.records.types import ENDED, Event, Experiment, Job, JobError, Status
from torchyard.jobs.services import Services
from torchyard.jobs.spec import own_properties, secrets
from torchyard.jobs.spec import values as spec_values

# What a person may change of a job, and what each value has to be.
_CHANGES = ("display_name", "description", "tags")


def ensure_experiment(
    connection: Connection, services: Services, workspace: str, name: str
) -> Experiment:
    """The experiment of that name, made if need be."""
    found = experiment_store.named(connection, workspace, name)
    if found is not None:
        return found
    return experiment_store.add(connection, workspace, name, {}, services.clock.now())


def get(services: Services, workspace: str, name: str) -> Job:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with services.db.read() as connection:
        job = store.job_named(connection, workspace, name)
        if job is not None:
            return job
        near = nearest(name, store.job_names(connection, workspace))
    hint = f"did you mean `{near}`?" if near else "list what exists with `yard job list`"
    raise NotFound(
        f"job `{name}` does not exist in workspace `{workspace}`", hint, code="job_not_found"
    )


def named(services: Services, workspace: str, name: str) -> Job | None:
    """As `get`, and None where there is none."""
    with services.db.read() as connection:
        return store.job_named(connection, workspace, name)


def list_in(
    services: Services,
    workspace: str,
    *,
    experiment_name: str = "",
    status: str = "",
    archived: bool | None = None,
    parent: str = "",
    tags: Sequence[str] = (),
    before: int | None = None,
    limit: int = 50,
    type: str = "",
) -> list[Job]:
    """Newest first, `limit` at the most; `before` is the id of the last one seen.

    Args:
        archived: True for archived ones only, None for both kinds.
        type: as `Job.type`; all when empty.
        tags: each `key` or `key=value`; a job has all of them.

    Raises:
        InvalidInput: no such status.
        NotFound: no such experiment or parent.
    """
    wanted = status_named(status) if status else None
    if parent:
        get(services, workspace, parent)
    with services.db.read() as connection:
        experiment_ids = None
        if experiment_name:
            found = experiment_store.named(connection, workspace, experiment_name)
            if found is None:
                raise NotFound(
                    f"experiment `{experiment_name}` does not exist in workspace `{workspace}`",
                    "`yard job list` shows the experiment of every job",
                )
            experiment_ids = [found.id]
        return store.list_jobs(
            connection,
            workspace,
            experiment_ids=experiment_ids,
            status=wanted,
            archived=archived,
            parent=parent or None,
            tags=_wanted_tags(tags),
            before=before,
            limit=limit,
            type=type,
        )


def update(services: Services, workspace: str, name: str, changes: Mapping[str, Any]) -> Job:
    """Change `display_name`, `description` or `tags`: merged, and null takes one away.

    Raises:
        InvalidSpec: another key, or a value of the wrong kind.
        NotFound: no such job.
    """
    for key in changes:
        if key not in _CHANGES:
            near = nearest(str(key), _CHANGES)
            raise InvalidSpec(
                f"`{key}` of a job can't be changed",
                f"did you mean `{near}`?"
                if near
                else f"what can be: {', '.join(_CHANGES)}; for anything else, clone the job",
                at=(str(key),),
            )
    values: dict[str, Any] = {}
    for key in ("display_name", "description"):
        if key in changes:
            values[key] = _text(changes[key], key)
    job = get(services, workspace, name)
    if values.get("display_name") == "":
        values["display_name"] = job.name
    with services.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        if changes.get("tags"):
            values["tags"] = merged(job.tags, changes["tags"])
        if values:
            store.change_job(connection, job.id, **job_masking.masked(job, values))
        job = store.job_by_id(connection, job.id)
    services.signals.notify(job_key(job))
    return job


def add_properties(
    services: Services, workspace: str, name: str, properties: Mapping[str, Any]
) -> Job:
    """Say more of a job; what it says already stays.

    Raises:
        Conflict: a property has another value already, or is one that torchyard reads.
        NotFound: no such job.
    """
    job = get(services, workspace, name)
    given = merged({}, properties)
    with services.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        new = {key: value for key, value in given.items() if job.properties.get(key) != value}
        for key in new:
            if key in job.properties or key.startswith(own_properties.PREFIX):
                raise Conflict(
                    f"property `{key}` of job `{name}` can't be changed",
                    "properties stay as they were when the job was made; use a tag",
                    at=("properties", key),
                )
        if not new:
            return job
        values = {"properties": {**new, **job.properties}}
        store.change_job(connection, job.id, **job_masking.masked(job, values))
        return store.job_by_id(connection, job.id)


def archive(services: Services, workspace: str, name: str, archived: bool = True) -> Job:
    """Leave a job out of lists, or bring it back; it is found by its name as before.

    Raises:
        NotFound: no such job.
        Conflict: it is still running.
    """
    job = get(services, workspace, name)
    if archived and not job.status.ended:
        raise Conflict(
            f"job `{name}` is {job.status.value} and can't be archived",
            f"wait for its end, or `yard job cancel -n {name}`",
            code="job_not_ended",
        )
    with services.db.write() as connection:
        store.change_job(connection, job.id, archived=archived)
        return store.job_by_id(connection, job.id)


def document(services: Services, workspace: str, name: str) -> dict[str, Any]:
    """The job file that would make the job again: references pinned, snapshots kept, secrets gone.

    Raises:
        NotFound: no such job.
        Conflict: it is a run that was started outside any job.
    """
    job = get(services, workspace, name)
    if job.type != "command":
        raise Conflict(
            f"`{name}` is a run without a job file", "it was started outside torchyard's jobs"
        )
    return secrets.masked_document(job.document)


def merged(old: Mapping[str, str], changes: Any) -> dict[str, str]:
    """Tags or properties with changes; null takes one away.

    Raises:
        InvalidSpec: the changes are no mapping of texts and numbers.
    """
    if not isinstance(changes, Mapping):
        raise InvalidSpec(
            "`tags` must be a mapping of texts", "for example `tags: {team: vision}`", at=("tags",)
        )
    kept: dict[str, str] = dict(old)
    for key, value in changes.items():
        if value is None:
            kept.pop(str(key), None)
        elif isinstance(value, str | int | float):
            kept[str(key)] = spec_values.literal(value)
        else:
            raise InvalidSpec(
                f"the value of `tags.{key}` must be text or a number",
                f"write `{key}: some words`",
                at=("tags", str(key)),
            )
    return kept


def events(services: Services, job: Job, after: int = 0) -> list[Event]:
    with services.db.read() as connection:
        return store.events_after(connection, job.id, after)


def cancel(services: Services, workspace: str, name: str, why: JobError | None = None) -> Job:
    """Stop a job; one that has ended stays as it is.

    Args:
        why: becomes its error, where it was not its user who wanted it.
    """
    job = get(services, workspace, name)
    now = services.clock.now()
    with services.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        if job.status in ENDED or job.status is Status.CANCEL_REQUESTED:
            return job
        tries = attempt_store.attempts_of(connection, job.id)
        running = [attempt for attempt in tries if attempt.ended_at is None]
        if running:
            progress.move(connection, job, Status.CANCEL_REQUESTED, now)
            told = None if why is None else vars(why)
            attempt_store.change_attempt(
                connection, running[-1].id, order="stop", order_reason="cancel", error=told
            )
        else:
            progress.end(connection, job, Status.CANCELED, now, error=why)
        job = store.job_by_id(connection, job.id)
    services.signals.notify(job_key(job))
    for attempt in running:
        services.signals.notify(attempt_key(attempt.id))
    services.bell.set()
    return job


def job_key(job: Job) -> str:
    """What `Signals` calls a job."""
    return f"job/{job.id}"


def attempt_key(attempt_id: str) -> str:
    """What `Signals` calls an attempt."""
    return f"attempt/{attempt_id}"


def _text(value: Any, key: str) -> str:
    limit = 255 if key == "display_name" else 10_000
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > limit:
        raise InvalidSpec(f"`{key}` must be text", f"of up to {limit} characters", at=(key,))
    return value


def _wanted_tags(tags: Sequence[str]) -> dict[str, str | None]:
    wanted: dict[str, str | None] = {}
    for tag in tags:
        key, equals, value = tag.partition("=")
        if not key or '"' in key:
            raise InvalidInput(f"`{tag}` is no tag to look for", "write `key` or `key=value`")
        wanted[key] = value if equals else None
    return wanted


def status_named(text: str) -> Status:
    """
    Raises:
        InvalidSpec: there is none of that name, in whatever case.
    """
    for status in Status:
        if status.value.lower() == text.lower():
            return status
    known = [status.value for status in Status]
    near = nearest(text, known)
    raise InvalidSpec(
        f"`{text}` is no status of a job",
        f"did you mean `{near}`?" if near else f"one of: {', '.join(known)}",
    )
