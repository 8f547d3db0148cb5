"""What people can do with validations, audits, releases and their schedules.

Owns: creating, reading and listing them, the audit and the bill of materials of a version,
schedules.
Leaves: requests to running/creation.py, rounds to running/keeper.py, canceling to job_types.py,
vulnerabilities to vulnerabilities/.
Always: a validation or release is a job: it is listed, canceled, and told of by messages as any
job is; its report outlives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from torchyard.base import fields
from torchyard.base.clock import from_text, to_text
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound
from torchyard.environments import assets
from torchyard.environments.assembly import Environments
from torchyard.environments.types import WHEELS_BYTES
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import parents
from torchyard.jobs.services import FileServices, RecordServices
from torchyard.releases.records import store
from torchyard.releases.records.types import RELEASE, Record, Schedule
from torchyard.releases.running import candidates, creation, stages
from torchyard.releases.vulnerabilities import advisories, locked
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

_LEAST_S, _MOST_S = 3600, 366 * 86400
_AUDIT_KEYS = ("max_age_days", "exceptions", "version")


def create(
    services: FileServices,
    kind: str,
    workspace: str,
    environment: str,
    document: Mapping[str, Any],
    identity: Identity,
) -> dict[str, Any]:
    """Begin a validation or release of an environment.

    Raises:
        InvalidSpec: what is wrong with the request, and where.
        NotFound: there is no such environment.
        Conflict: a release of it goes on.
    """
    version = str(document.get("version") or "")
    reference = f"{environment}:{version}" if version else environment
    rest = {key: value for key, value in document.items() if key != "version"}
    job, _ = creation.create(
        services, kind, workspace, {**rest, "environment": reference}, identity
    )
    return show(services.db, workspace, job.name)


def show(db: Database, workspace: str, job: str) -> dict[str, Any]:
    """
    Raises:
        NotFound: there is no such validation or release.
    """
    # The job before the record: one that has ended has its report in the record by then.
    its_job = jobs.find_by_name(db, workspace, job)
    with db.read() as connection:
        record = store.of_job(connection, workspace, job)
    if record is None:
        raise NotFound(
            f"job `{job}` is not a validation or release", "list them: `yard environment releases`"
        )
    return to_json(record, its_job)


def list_in(
    db: Database, workspace: str, environment: str = "", kind: str = ""
) -> list[dict[str, Any]]:
    """The newest first, without their workloads and findings."""
    with db.read() as connection:
        rows = store.list_in(connection, workspace, environment, kind)
        by_id = parents.by_id(connection, [row.job_id for row in rows])
    return [_summary(row, by_id.get(row.job_id)) for row in rows]


def to_json(record: Record, job: Job | None) -> dict[str, Any]:
    """
    Args:
        job: the one of that name, if it is not deleted.
    """
    results = record.results
    return {
        **_summary(record, job),
        "request": dict(record.request),
        "gates": [gate.to_json() for gate in record.gates],
        "changes": list(results.get("changes") or ()),
        "changelog": candidates.in_words(results.get("changes") or ()),
        "contents": results.get("contents"),
        "audit": results.get("audit"),
        "report": dict(record.report) or None,
    }


def _summary(record: Record, job: Job | None) -> dict[str, Any]:
    is_its_own = job is not None and (job.id, job.name) == (record.job_id, record.job)
    there = job if is_its_own else None
    report = record.report
    error = there.error if there is not None else None
    return {
        "job": record.job,
        "kind": record.kind,
        "environment": record.environment,
        "base": record.base,
        "version": record.version,
        "owner": record.owner,
        "created_at": to_text(record.created_at),
        "status": there.status.value if there is not None else "deleted",
        "error": None if error is None else {"message": error.message, "hint": error.hint},
        "stage": record.stage,
        "passed": report.get("passed"),
        "failed": report.get("failed"),
        "skipped": report.get("skipped"),
    }


def audit(
    services: FileServices, workspace: str, environment: str, document: Mapping[str, Any]
) -> dict[str, Any]:
    """The audit of a built version.

    Raises:
        InvalidInput: it was never built, or the workspace has no advisories.
        InvalidSpec: a key is wrong.
    """
    for key in document:
        if key not in _AUDIT_KEYS:
            raise fields.unknown_key(str(key), _AUDIT_KEYS, ())
    version = str(document.get("version") or "")
    ref, text, layer_names, _ = _lock_of(services.environments, workspace, environment, version)
    other_fields = {key: value for key, value in document.items() if key != "version"}
    request = creation.read(RELEASE, {**other_fields, "environment": environment})
    return {
        "environment": ref,
        **stages.audit_of(services, workspace, text, layer_names, request),
    }


def bill_of_materials(
    services: FileServices, workspace: str, environment: str, version: str
) -> dict[str, Any]:
    """A version in CycloneDX.

    Raises:
        InvalidInput: it was never built.
    """
    ref, text, layer_names, platform = _lock_of(
        services.environments, workspace, environment, version
    )
    name, _, exact = ref.rpartition(":")
    with services.db.read() as connection:
        rows = store.list_in(connection, workspace, name, RELEASE)
    built = [row.results.get("built_at") for row in rows if row.version == exact]
    made_at = from_text(str(built[0])) if built and built[0] else services.clock.now()
    packages = locked.packages(text, layer_names)
    return locked.bill_of_materials(name, exact, platform, packages, text, made_at)


def _lock_of(
    environments: Environments, workspace: str, environment: str, version: str
) -> tuple[str, str, tuple[str, ...], str]:
    """Reference, lock, layers and platform of a version.

    Raises:
        InvalidInput: it was never built.
    """
    reference = f"{environment}:{version}" if version else environment
    spec = environments.resolver.resolve(reference, workspace, enforce_policy=False)
    last = environments.records.last(spec.hash)
    if last is None or not last.lock:
        raise InvalidInput(
            f"environment `{spec.ref}` was never built here, so it is not known what it holds",
            f"build it: `yard environment build {reference}`",
            code="never_built",
        )
    return spec.ref, last.lock, spec.layers, spec.platform


def forget_wheels(db: Database, workspace: str, environment: str, user: str) -> dict[str, Any]:
    """Let `yard gc` remove what is kept for archived versions; `versions`, `size_bytes`.

    Raises:
        NotFound: the workspace has no such environment.
    """
    archived = assets.forget_wheels(db, workspace, environment, user)
    return {
        "versions": [asset.version for asset in archived],
        "size_bytes": sum(int(asset.properties.get(WHEELS_BYTES) or 0) for asset in archived),
    }


def put_advisories(
    services: RecordServices, workspace: str, document: Mapping[str, Any], user: str
) -> dict[str, Any]:
    """Take a piece of the workspace's advisories; see vulnerabilities/advisories.py."""
    return advisories.take(services.db, services.clock, workspace, document, user)


def schedule(
    services: FileServices,
    workspace: str,
    environment: str,
    document: Mapping[str, Any],
    identity: Identity,
) -> dict[str, Any]:
    """Release an environment each `every_s` seconds, from now on.

    Raises:
        InvalidSpec: what is wrong, and where.
        NotFound: there is no such environment.
        Forbidden: the environment has a schedule of another's, and nobody said `take_over`.
    """
    document, takes_over = ownership.without_take_over(document)
    every_s = document.get("every_s")
    if not isinstance(every_s, int) or isinstance(every_s, bool):
        every_s = 0
    if not _LEAST_S <= every_s <= _MOST_S:
        raise InvalidSpec(
            "a release is due at least once a year and at most once an hour",
            "write `14d`, as the documents promise",
            at=["every_s"],
        )
    rest = {key: value for key, value in document.items() if key != "every_s"}
    request = creation.read(RELEASE, {**rest, "environment": environment})
    base = candidates.base_of(services.environments, workspace, environment)
    candidates.to_resolve(services.environments, workspace, base, "")
    request = {key: value for key, value in request.items() if key != "environment"}
    now = services.clock.now()
    new = Schedule(
        workspace, base.name, identity.user, every_s, request,
        now + timedelta(seconds=every_s), now,
    )  # fmt: skip
    with services.db.write() as connection:
        old = store.schedule_of(connection, workspace, base.name)
        if old is not None:
            ownership.owner_after(
                connection,
                ownership.RELEASE_SCHEDULE_CODE,
                workspace,
                identity.user,
                old.owner,
                _subject(old),
                is_asked=takes_over,
                is_needed=True,
            )
        store.put_schedule(connection, new)
    return schedule_json(new)


def unschedule(db: Database, workspace: str, environment: str, user: str) -> None:
    """
    Raises:
        NotFound: it has no schedule.
        Forbidden: it is another's.
    """
    with db.write() as connection:
        old = store.schedule_of(connection, workspace, environment)
        if old is not None:
            ownership.refuse(
                connection,
                ownership.RELEASE_SCHEDULE,
                workspace,
                user,
                old.owner,
                _subject(old),
            )
        store.drop_schedule(connection, workspace, environment)
    if old is None:
        raise NotFound(
            f"environment `{environment}` has no schedule of releases",
            f"make one: `yard environment release {environment} --every 14d`",
        )


def _subject(schedule: Schedule) -> str:
    return f"the schedule of releases of `{schedule.environment}`"


def schedules(db: Database, workspace: str) -> list[dict[str, Any]]:
    with db.read() as connection:
        return [schedule_json(each) for each in store.list_schedules(connection, workspace)]


def schedule_json(each: Schedule) -> dict[str, Any]:
    return {
        "environment": each.environment,
        "every_s": each.every_s,
        "next_at": to_text(each.next_at),
        "owner": each.owner,
        "last_job": each.last_job,
        "request": dict(each.request),
    }


def forget(db: Database, workspace: str) -> None:
    """Drop all records of a workspace that was deleted."""
    with db.write() as connection:
        store.delete_all(connection, workspace)
