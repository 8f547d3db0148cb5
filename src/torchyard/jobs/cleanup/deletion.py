"""Which jobs are deleted, and which must not be.

Owns: choosing jobs by name or by age, status and experiment; what holds a job; the mark.
Leaves: taking files and rows away to removal.py.
Always: a job is deleted with all its descendants or not at all; a running job stays, and so does
one whose files a data asset, a registered model or another running job needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from torchyard.base.errors import Conflict, NotFound, TorchyardError
from torchyard.data import assets, uris
from torchyard.jobs import actions, owners
from torchyard.jobs.files import outputs
from torchyard.jobs.records import experiment_store, removal_store, store
from torchyard.jobs.records.removal_store import Mark
from torchyard.jobs.records.types import COMMAND, ENDED, Job, Status
from torchyard.jobs.services import RecordServices, Services
from torchyard.models import registry
from torchyard.workspaces.types import Identity

_LIVE = [status for status in Status if status not in ENDED]


@dataclass(frozen=True)
class Choice:
    """Jobs by name, or those that meet every condition that is not empty.

    `ended_before` compares the end of a job; one without an end is compared by its beginning.
    """

    names: Sequence[str] = ()
    experiment_name: str = ""
    status: str = ""
    ended_before: datetime | None = None


@dataclass(frozen=True)
class KeptJob:
    """A job that was chosen and must stay, and why in one sentence."""

    job: Job
    reason: str
    hint: str
    code: str


@dataclass(frozen=True)
class Plan:
    """What would be deleted: jobs, children behind their parents; and what would not."""

    jobs: Sequence[Job] = ()
    kept: Sequence[KeptJob] = ()


@dataclass(frozen=True)
class _Bonds:
    """What holds jobs of one workspace: by job, who needs its files; by parent, its children."""

    needs: Mapping[str, str] = field(default_factory=dict)
    children: Mapping[str, Sequence[Job]] = field(default_factory=dict)


def plan(services: Services, workspace: str, choice: Choice, lineage: bool = False) -> Plan:
    """
    Args:
        lineage: jobs that models or data were registered from stay too, though what is
            registered has files of its own.

    Raises:
        NotFound: no such job or experiment.
        InvalidInput: no such status.
    """
    chosen = _chosen(services, workspace, choice)
    bonds = _bonds(services, workspace, lineage)
    going: dict[int, Job] = {}
    blockers = []
    for job in chosen:
        family = list(_family(job, bonds))
        blocker = next(filter(None, (_find_blocker(member, job, bonds) for member in family)), None)
        if blocker is not None:
            blockers.append(blocker)
        else:
            going.update({member.id: member for member in family})
    return Plan(list(going.values()), blockers)


def delete(
    services: Services, workspace: str, choice: Choice, asked_by: str, lineage: bool = False
) -> Plan:
    """Mark what may go; `removal.work` takes it away, now or after a restart.

    Args:
        lineage: as in `plan`.

    Raises:
        NotFound: no such job or experiment.
        Conflict: a job that is named must stay; nothing was deleted.
    """
    deletion = plan(services, workspace, choice, lineage)
    if choice.names and deletion.kept:
        first = deletion.kept[0]
        raise Conflict(first.reason, first.hint, code=first.code)
    now = services.clock.now()
    with services.db.write() as connection:
        # A tracking client may have taken one up again since.
        over = store.hide_ended(connection, [job.id for job in deletion.jobs])
        still = [job for job in deletion.jobs if job.id in over]
        marks = [Mark(job.id, workspace, job.name, now, asked_by) for job in still]
        removal_store.mark(connection, marks)
    for job in still:
        services.signals.notify(actions.job_key(job))
    return Plan(still, deletion.kept)


def delete_by(services: Services, workspace: str, choice: Choice, identity: Identity) -> Plan:
    """As `delete`, for a person, who may be limited to their own jobs.

    Raises:
        Forbidden: one of the jobs, or of those below them, is another's; nothing was deleted.
    """
    if identity.own_only:
        for job in plan(services, workspace, choice).jobs:
            owners.refuse_foreign(identity, job)
    return delete(services, workspace, choice, identity.user)


def needs(services: Services, workspace: str) -> dict[str, str]:
    """By job: in words, what needs its files."""
    reasons: dict[str, str] = {}
    for asset in assets.list_versions(services.db, workspace):
        reasons.setdefault(_owner_of(asset.uri, workspace), f"data `{asset.name}:{asset.version}`")
    with services.db.read() as connection:
        running = [
            job
            for type in (COMMAND, *services.job_types)
            for job in store.jobs_in(connection, _LIVE, type)
        ]
    for job in running:
        for path in _inputs_of(job) if job.workspace == workspace else ():
            reasons.setdefault(_owner_of(path, workspace), f"job `{job.name}`")
    for job_type in services.job_types.values():
        reasons |= job_type.needs(services, workspace)
    reasons.pop("", None)
    return reasons


def _chosen(services: RecordServices, workspace: str, choice: Choice) -> list[Job]:
    if choice.names:
        return [actions.get(services, workspace, name) for name in dict.fromkeys(choice.names)]
    status = actions.status_named(choice.status) if choice.status else None
    with services.db.read() as connection:
        experiment_ids = None
        if choice.experiment_name:
            experiment = experiment_store.find_by_name(
                connection, workspace, choice.experiment_name
            )
            if experiment is None:
                raise NotFound(
                    f"experiment `{choice.experiment_name}` does not exist in workspace "
                    f"`{workspace}`",
                    "list what exists with `yard experiment list`",
                )
            experiment_ids = [experiment.id]
        jobs = store.ended_jobs(connection, workspace, experiment_ids, choice.ended_before)
    return [job for job in jobs if status in (None, job.status)]


def _bonds(services: Services, workspace: str, lineage: bool) -> _Bonds:
    children: dict[str, list[Job]] = {}
    with services.db.read() as connection:
        for job in store.children_in(connection, workspace):
            children.setdefault(job.parent, []).append(job)
    needed = needs(services, workspace)
    if lineage:
        for asset in assets.list_versions(services.db, workspace):
            needed.setdefault(asset.job, f"data `{asset.name}:{asset.version}`")
        for model in registry.all_versions(services.db, workspace):
            needed.setdefault(model.job, f"model `{model.name}:{model.version}`")
        needed.pop("", None)
    return _Bonds(needed, children)


def _family(job: Job, bonds: _Bonds) -> Iterator[Job]:
    """The job and all below it; a circle of parents is walked once."""
    seen: set[int] = set()
    waiting = [job]
    while waiting:
        next_job = waiting.pop()
        if next_job.id not in seen:
            seen.add(next_job.id)
            yield next_job
            waiting += bonds.children.get(next_job.name, ())


def _find_blocker(job: Job, chosen: Job, bonds: _Bonds) -> KeptJob | None:
    """Why `chosen` must stay because of `job`, which is itself or one below it."""
    whose = "" if job.id == chosen.id else f", a child of `{chosen.name}`,"
    if not job.status.ended:
        return KeptJob(
            chosen,
            f"job `{job.name}`{whose} is {job.status.value} and can't be deleted",
            f"end it first: `yard job cancel -n {job.name}`",
            "job_not_ended",
        )
    if job.name in bonds.needs:
        return KeptJob(
            chosen,
            f"job `{job.name}`{whose} can't be deleted: {bonds.needs[job.name]} needs its files",
            f"{_release(bonds.needs[job.name])}, or hide the job from lists with "
            f"`yard job archive -n {job.name}`",
            "job_needed",
        )
    return None


def _release(need: str) -> str:
    """How to end the need that `needs` describes."""
    noun, _, name = need.partition(" ")
    verbs = {
        "job": "wait for it with `yard job stream",
        "pipeline": "delete it: `yard job delete",
    }
    verb = verbs.get(noun, f"delete it: `yard {noun} delete")
    return f"{verb} {name.strip('`')}`"


def _owner_of(path: str, workspace: str) -> str:
    """The job below whose own folders a path leads; empty when it does not belong to a job."""
    try:
        uri = uris.datastore(path, workspace)
    except TorchyardError:
        return ""
    return outputs.owner_of(uri)[0] if uri is not None else ""


def _inputs_of(job: Job) -> Iterator[str]:
    """As the document has them, which may be one that another package reads."""
    for value in (job.document.get("inputs") or {}).values():
        path = value.get("path") if isinstance(value, Mapping) else None
        if isinstance(path, str) and path:
            yield path
