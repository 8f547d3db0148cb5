"""Turn a request into a validation or a release.

Owns: the keys of a request, checking it, storing the job and its record.
Leaves: what the request selects to validation_jobs.py and candidates.py, rounds to keeper.py.
Always: a job is stored with its record, or not at all; of an environment one release goes on at a
time; the same job's name with the same request is the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.base.errors import Conflict, DatabaseUnreachable, InvalidSpec, TorchyardError
from torchyard.compute import actions as computes
from torchyard.environments import assets
from torchyard.environments.types import EnvironmentSpec
from torchyard.jobs import actions as jobs
from torchyard.jobs.admission import choosing
from torchyard.jobs.records import names
from torchyard.jobs.records.types import Job, NewJob, Status
from torchyard.jobs.requests import parents, submission
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec import parts
from torchyard.releases.records import store
from torchyard.releases.records.types import CHANGED, RELEASE, VALIDATION, Record, Schedule, as_word
from torchyard.releases.running import candidates, validation_jobs
from torchyard.releases.vulnerabilities import audit
from torchyard.workspaces.types import Identity, TokenKind

_VALIDATION_KEYS = ("type", "name", "environment", "compute", "only", "workloads")
_RELEASE_KEYS = (*_VALIDATION_KEYS, "max_age_days", "exceptions", "dry_run")
KEYS = {VALIDATION: _VALIDATION_KEYS, RELEASE: _RELEASE_KEYS}
_MOST_DAYS = 3650

Also = Callable[[Connection, Job], None]


def read(kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The request, its keys checked one by one.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    for key in document:
        if key not in KEYS[kind]:
            raise fields.unknown_key(str(key), KEYS[kind], ())
    request = {key: document[key] for key in KEYS[kind] if key not in ("type", "name")
               and document.get(key) not in (None, "", [])}  # fmt: skip
    for key in ("environment", "compute", "workloads"):
        if not isinstance(request.get(key, ""), str):
            raise InvalidSpec(f"`{key}` is not a string", "write its name", at=[key])
    if not request.get("environment"):
        raise InvalidSpec(
            "no environment is named", "write `environment: NAME`", at=["environment"]
        )
    only = request.get("only", [])
    if not isinstance(only, list) or not all(isinstance(name, str) for name in only):
        raise InvalidSpec("`only` is not a list of names", "write `only: [fsdp2]`", at=["only"])
    days = request.get("max_age_days", audit.MAX_AGE_DAYS)
    if not isinstance(days, int) or isinstance(days, bool) or not 0 <= days <= _MOST_DAYS:
        raise InvalidSpec(
            "`max_age_days` is not a number of days", f"0 to {_MOST_DAYS}", at=["max_age_days"]
        )
    if not isinstance(request.get("dry_run", False), bool):
        raise InvalidSpec("`dry_run` is neither true nor false", "write `true`", at=["dry_run"])
    audit.read_exceptions(request.get("exceptions", []))
    return request


def create(
    services: FileServices,
    kind: str,
    workspace: str,
    document: Mapping[str, Any],
    identity: Identity,
) -> tuple[Job, bool]:
    """Store one; the job, and whether it is new.

    Raises:
        InvalidSpec: what is wrong with the request, and where.
        NotFound: there is no such environment or compute.
        Conflict: a release of the environment goes on, or the name is another job's.
    """
    request = read(kind, document)
    name = parts.name(document, "name")
    job = jobs.find_by_name(services.db, workspace, name) if name else None
    if job is not None:
        submission.require_same(job, submission.hash_of({"type": kind, **request}), identity)
        return job, False
    name = name or _name(kind, request)
    return _create_new(services, kind, workspace, name, request, identity, lambda *_: None)


def create_scheduled(services: FileServices, schedule: Schedule, next_at: datetime) -> Job | None:
    """The release that is due; None where another server, or a person, was first.

    Raises:
        TorchyardError: it can't be created; then the schedule is moved on, too, and says nothing
            of a job.
    """
    request = {**schedule.request, "environment": schedule.environment}
    name = f"release-{as_word(schedule.environment)}-{schedule.next_at:%Y%m%d-%H%M}"
    identity = Identity(schedule.owner, TokenKind.PERSON)

    def also(connection: Connection, job: Job) -> None:
        if not store.advance(connection, schedule, next_at, job.name):
            raise _Overtaken

    try:
        checked = read(RELEASE, request)
        job, _ = _create_new(services, RELEASE, schedule.workspace, name, checked, identity, also)
        return job
    except _Overtaken:
        return None
    except DatabaseUnreachable:
        raise
    except TorchyardError:
        with services.db.write() as connection:
            store.advance(connection, schedule, next_at, "")
        raise


class _Overtaken(Exception):
    """The schedule was changed meanwhile."""


def _name(kind: str, request: Mapping[str, Any]) -> str:
    word = "release" if kind == RELEASE else "validation"
    environment = str(request["environment"]).removeprefix("azureml:")
    bare = environment.partition(":")[0].partition("@")[0]
    return f"{word}-{as_word(bare)}-{names.generate()}"


def _create_new(
    services: FileServices,
    kind: str,
    workspace: str,
    name: str,
    request: dict[str, Any],
    identity: Identity,
    also: Also,
) -> tuple[Job, bool]:
    base = candidates.base_of(services.environments, workspace, str(request["environment"]))
    spec = services.environments.resolver.resolve(base.ref, workspace)
    if kind == RELEASE:
        assets.refuse_adding(services.db, workspace, base.name, identity.user)
        _refuse_old(services, workspace, base)
        candidates.to_resolve(services.environments, workspace, base, name)
    validation_jobs.of_request(services.blobs.of(workspace), request)
    compute = str(request.get("compute") or "local").removeprefix("azureml:")
    if compute.lower() != choosing.AUTO:
        computes.get(services.db, workspace, compute)
    try:
        with services.db.write() as connection:
            if kind == RELEASE:
                _refuse_second(connection, workspace, base.name)
            new = _new_job(
                connection, services.clock, workspace, kind, name, request, spec, base, identity
            )
            job = parents.add(connection, replace(new, compute=compute), spec.notices)
            store.add(
                connection,
                Record(
                    job.id, workspace, job.name, kind, base.name, base.ref, identity.user,
                    job.created_at, request,
                ),
            )  # fmt: skip
            also(connection, job)
    except IntegrityError:
        job = jobs.get(services, workspace, name)
        submission.require_same(job, submission.hash_of({"type": kind, **request}), identity)
        return job, False
    services.signals.notify(jobs.job_key(job))
    services.signals.notify(CHANGED)
    return job, True


def _refuse_old(services: FileServices, workspace: str, base: candidates.Base) -> None:
    latest = candidates.latest(services.db, services.environments, workspace, base.name)
    if latest != base.ref:
        raise Conflict(
            f"`{base.ref}` is not the newest version, which is `{latest}`",
            f"release `{base.name}`, or clone the old version under another name",
            at=["environment"],
        )


def _refuse_second(connection: Connection, workspace: str, environment: str) -> None:
    rows = store.list_in(connection, workspace, environment, RELEASE)
    by_id = parents.by_id(connection, [row.job_id for row in rows])
    for row in rows:
        job = by_id.get(row.job_id)
        if job is not None and job.name == row.job and not job.status.ended:
            raise Conflict(
                f"a release of `{environment}` goes on: job `{row.job}`",
                f"wait for it, or end it: `yard job cancel -n {row.job}`",
                code="release_goes_on",
                at=["environment"],
            )


def _new_job(
    connection: Connection,
    clock: Clock,
    workspace: str,
    kind: str,
    name: str,
    request: Mapping[str, Any],
    spec: EnvironmentSpec,
    base: candidates.Base,
    identity: Identity,
) -> NewJob:
    word = "release" if kind == RELEASE else "validation"
    title = f"{word}-{as_word(base.name)}"
    experiment = jobs.ensure_experiment(connection, clock, workspace, title)
    body = {"type": kind, **request}
    return NewJob(
        workspace=workspace,
        name=name,
        type=kind,
        experiment_id=experiment.id,
        status=Status.NOT_STARTED,
        owner=identity.user,
        display_name=f"{word} of {base.ref}",
        document=body,
        created_at=clock.now(),
        spec_hash=submission.hash_of(body),
        environment=spec,
        tags={"environment": base.name, "base": base.ref},
    )
