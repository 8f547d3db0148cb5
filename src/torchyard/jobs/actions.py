"""What people can do with jobs.

Owns: creating, reading and cancelling jobs.
Leaves: running them to scheduler.py and attempts.py, their files to artifacts.py.
Always: a job is written whole with its first event, or not at all; the same name with the same
body is the same job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from torchyard.base.errors import Conflict, InvalidSpec, NotFound, TorchyardError, nearest
from torchyard.compute import actions as computes
from torchyard.environments.types import EnvironmentSpec
from torchyard.jobs import names, progress, spec, store
from torchyard.jobs.room import Room
from torchyard.jobs.types import ENDED, Event, Experiment, Job, Status
from torchyard.workspaces.types import Identity

_SNAPSHOT = "snapshot:"
_LOCAL = "local:"


@dataclass(frozen=True)
class Checked:
    """A job file that was understood: its spec and the environment it will have."""

    spec: spec.JobSpec
    environment: EnvironmentSpec


def check(room: Room, workspace: str, document: Any, *, uploaded: bool = True) -> Checked:
    """Everything that can be said about a job file without running it.

    Args:
        uploaded: False takes `local:` where a folder has yet to be uploaded.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    job = spec.read(document)
    _fits(room, workspace, job)
    environment = _same_place("environment", lambda: room.environments.resolve(job.environment))
    if job.code:
        _same_place("code", lambda: _snapshot_exists(room, job.code, uploaded))
    for name, given in job.inputs.items():
        if given.type != "literal":
            path = given.path
            _same_place(
                ("inputs", name, "path"), lambda path=path: _snapshot_exists(room, path, uploaded)
            )
    return Checked(job, environment)


def create(
    room: Room, workspace: str, document: Mapping[str, Any], identity: Identity
) -> tuple[Job, bool]:
    """Write a job down; the scheduler takes it from there.

    Returns the job, and whether it is new.

    Raises:
        InvalidSpec: what is wrong, and where.
        Conflict: the name is taken by another job.
    """
    checked = check(room, workspace, document)
    body = {key: value for key, value in document.items() if key not in ("name", "$schema")}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    name = checked.spec.name or names.generate()
    try:
        with room.db.write() as connection:
            job_id = _insert(connection, room, workspace, name, checked, body, digest, identity)
            job = store.job_by_id(connection, job_id)
    except IntegrityError:
        return _existing(room, workspace, name, digest), False
    room.bell.set()
    return job, True


def _insert(
    connection: Connection,
    room: Room,
    workspace: str,
    name: str,
    checked: Checked,
    body: dict[str, Any],
    digest: str,
    identity: Identity,
) -> int:
    now, job = room.clock.now(), checked.spec
    experiment = ensure_experiment(connection, room, workspace, job.experiment_name)
    parent = identity.subject.partition("/")[2] if identity.subject else ""
    job_id = store.add_job(
        connection,
        {
            "workspace": workspace,
            "name": name,
            "type": "command",
            "experiment_id": experiment.id,
            "status": Status.NOT_STARTED.value,
            "owner": identity.user,
            "display_name": job.display_name or name,
            "spec": body,
            "spec_hash": digest,
            "environment": checked.environment.to_json(),
            "compute": job.compute,
            "node_count": job.instance_count,
            "processes_per_node": job.process_count_per_instance,
            "created_at": now,
            "tags": job.tags,
            "properties": job.properties,
            "parent": parent,
            "attempt": 0,
            "deleted": False,
        },
    )
    store.add_event(connection, job_id, now, "status", {"status": Status.NOT_STARTED.value})
    for message in checked.environment.notices:
        store.add_event(connection, job_id, now, "notice", {"message": message})
    return job_id


def _existing(room: Room, workspace: str, name: str, digest: str) -> Job:
    job = get(room, workspace, name)
    if job.spec_hash != digest:
        raise Conflict(
            f"job `{name}` exists in workspace `{workspace}` with another content",
            "give this one another `name`, or none",
            code="job_exists",
            at=("name",),
        )
    return job


def ensure_experiment(connection: Connection, room: Room, workspace: str, name: str) -> Experiment:
    """The experiment of that name, made if need be."""
    found = store.experiment_named(connection, workspace, name)
    if found is not None:
        return found
    return store.add_experiment(connection, workspace, name, {}, room.clock.now())


def get(room: Room, workspace: str, name: str) -> Job:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with room.db.read() as connection:
        job = store.job_named(connection, workspace, name)
        if job is not None:
            return job
        near = nearest(name, store.job_names(connection, workspace))
    hint = f"did you mean `{near}`?" if near else "list what exists with `yard job list`"
    raise NotFound(
        f"job `{name}` does not exist in workspace `{workspace}`", hint, code="job_not_found"
    )


def list_in(
    room: Room,
    workspace: str,
    *,
    experiment_name: str = "",
    status: str = "",
    before: int | None = None,
    limit: int = 50,
) -> list[Job]:
    """Newest first, `limit` at the most; `before` is the id of the last one seen.

    Raises:
        InvalidInput: no such status.
        NotFound: no such experiment.
    """
    wanted = _status(status) if status else None
    with room.db.read() as connection:
        experiment_ids = None
        if experiment_name:
            found = store.experiment_named(connection, workspace, experiment_name)
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
            before=before,
            limit=limit,
        )


def events(room: Room, job: Job, after: int = 0) -> list[Event]:
    with room.db.read() as connection:
        return store.events_after(connection, job.id, after)


def why_waiting(room: Room, job: Job) -> str:
    """In one sentence, why a queued job has no nodes yet; empty when it isn't waiting."""
    if job.status is not Status.QUEUED:
        return ""
    with room.db.read() as connection:
        ahead = store.count_ahead(connection, job)
    compute = computes.get(room.db, job.workspace, job.compute)
    busy = computes.use(room.db, compute).busy
    if not ahead and busy + job.node_count <= compute.max_instances:
        return ""  # the scheduler's next look takes it
    nodes = "1 node" if job.node_count == 1 else f"{job.node_count} nodes"
    sentence = f"needs {nodes}; {busy} of {compute.max_instances} nodes of `{job.compute}` are busy"
    if ahead:
        sentence += f", and {ahead} earlier {'job waits' if ahead == 1 else 'jobs wait'}"
    return sentence


def cancel(room: Room, workspace: str, name: str) -> Job:
    """Stop a job; one that has ended stays as it is."""
    job = get(room, workspace, name)
    now = room.clock.now()
    with room.db.write() as connection:
        job = store.job_by_id(connection, job.id)
        if job.status in ENDED or job.status is Status.CANCEL_REQUESTED:
            return job
        tries = store.attempts_of(connection, job.id)
        running = [attempt for attempt in tries if attempt.ended_at is None]
        if running:
            progress.move(connection, job, Status.CANCEL_REQUESTED, now)
            store.change_attempt(connection, running[-1].id, order="stop", order_reason="cancel")
        else:
            progress.end(connection, job, Status.CANCELED, now)
        job = store.job_by_id(connection, job.id)
    room.signals.notify(job_key(job))
    for attempt in running:
        room.signals.notify(attempt_key(attempt.id))
    room.bell.set()
    return job


def job_key(job: Job) -> str:
    """What `Signals` calls a job."""
    return f"job/{job.id}"


def attempt_key(attempt_id: str) -> str:
    """What `Signals` calls an attempt."""
    return f"attempt/{attempt_id}"


def _fits(room: Room, workspace: str, job: spec.JobSpec) -> None:
    compute = _same_place("compute", lambda: computes.get(room.db, workspace, job.compute))
    if job.instance_count > compute.max_instances:
        raise InvalidSpec(
            f"the job needs {job.instance_count} nodes; compute `{compute.name}` has at the most "
            f"{compute.max_instances}",
            f"raise it: `yard compute create -n {compute.name} --max-instances "
            f"{job.instance_count}`, or ask for fewer nodes",
            code="too_many_nodes",
            at=("resources", "instance_count"),
        )


def _snapshot_exists(room: Room, path: str, uploaded: bool) -> None:
    if not uploaded and path.startswith(_LOCAL):
        return
    if not path.startswith(_SNAPSHOT):
        raise InvalidSpec(
            f"`{path}` is not served as a source of files",
            "name a file or a folder beside the job file",
        )
    room.blobs.snapshot(path.removeprefix(_SNAPSHOT))


def _same_place(at: str | tuple[str | int, ...], act: Any) -> Any:
    """Run `act`; an error of it is told as one at that place of the document."""
    place = (at,) if isinstance(at, str) else at
    try:
        return act()
    except TorchyardError as error:
        raise InvalidSpec(
            error.message, error.hint, code=error.code, at=(*place, *error.at)
        ) from error


def _status(text: str) -> Status:
    for status in Status:
        if status.value.lower() == text.lower():
            return status
    known = [status.value for status in Status]
    near = nearest(text, known)
    raise InvalidSpec(
        f"`{text}` is no status of a job",
        f"did you mean `{near}`?" if near else f"one of: {', '.join(known)}",
    )
