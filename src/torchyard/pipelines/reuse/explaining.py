"""Why a job ran: which earlier one it is compared with, and what differs.

Owns: the choice of the earlier one, what is said where nothing differs.
Leaves: the differences themselves to differences.py.
Always: what is said of a step is what its recipe was when it was decided.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import NotFound
from torchyard.environments.conda import conda_packages
from torchyard.environments.packages import lock
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import COMMAND, Job, parse_job
from torchyard.jobs.requests import job_queries
from torchyard.jobs.services import Services
from torchyard.pipelines.records import step_store
from torchyard.pipelines.records.step_store import Outcome, StepRow
from torchyard.pipelines.reuse import differences, made, recipes
from torchyard.pipelines.reuse.differences import Difference, Environment
from torchyard.pipelines.reuse.recipes import Recipe

_MOST_EARLIER = 50
# As pip and conda write them.
_PACKAGE = re.compile(r"(?P<name>\w[\w.-]*)\s*(?:==?)?(?P<version>.*)")


@dataclass(frozen=True)
class Explanation:
    """Of one step, or of the job itself where `step` is empty.

    `is_reused` says that it did not run; `other` is the job that it was made by or is compared
    with, empty for none. `reasons` are sentences without a full stop.
    """

    step: str
    job: str
    is_reused: bool
    other: str
    reasons: tuple[str, ...]
    differences: tuple[Difference, ...] = ()


def pipeline(services: Services, job: Job, rows: Sequence[StepRow]) -> list[Explanation]:
    """What became of each step, and why."""
    before = [
        each.id
        for each in job_queries.list_in(
            services,
            job.workspace,
            experiment_name=job.experiment_name,
            before=job.id,
            limit=_MOST_EARLIER,
            types=[step_store.TYPE],
        )
        if each.owner == job.owner
    ]
    settings = job.document.get("settings") or {}
    forced = str(settings.get("force_rerun", False)).lower() == "true"
    return [_step(services, job, row, before, forced) for row in rows]


def _step(
    services: Services, job: Job, row: StepRow, before: Sequence[int], forced: bool
) -> Explanation:
    if row.reused_from:
        text = f"reused from job `{row.child_name}` of pipeline `{row.reused_from}`"
        return Explanation(row.name, row.child_name, True, row.child_name, (text,))
    if not row.key:
        waits = row.reason or "its inputs are not there yet"
        return Explanation(row.name, row.child_name, False, "", (waits,))
    reasons = []
    if forced:
        reasons.append("the pipeline has `force_rerun`")
    if not row.is_deterministic:
        reasons.append("the step is not deterministic")
    with services.db.read() as connection:
        found = step_store.earlier_named(connection, before, row.name)
        recipe = step_store.recipe_of(connection, job.id, row.number)
        if not found:
            text = (
                f"no earlier pipeline of `{job.owner}` in experiment `{job.experiment_name}` has "
                "run this step"
            )
            return Explanation(row.name, row.child_name, False, "", (*reasons, text))
        # The one that is nearest: an equal one that could not be reused, or the last.
        pipeline_id, other = next((each for each in found if each[1].key == row.key), found[0])
        earlier = step_store.recipe_of(connection, pipeline_id, other.number)
    if other.key == row.key:
        reasons += [] if reasons else [_unusable(services, job, other)]
        return Explanation(row.name, row.child_name, False, other.child_name, tuple(reasons))
    of_jobs = (other.child_name, row.child_name)
    found_differences = _between(services, job.workspace, of_jobs, earlier, recipe)
    reasons += [each.text for each in found_differences]
    return Explanation(
        row.name, row.child_name, False, other.child_name, tuple(reasons), found_differences
    )


def _unusable(services: Services, pipeline: Job, other: StepRow) -> str:
    """Why the job of a step with the same recipe was not reused."""
    if other.outcome is not Outcome.COMPLETED:
        verb = "ran at the same time" if other.outcome is Outcome.LIVE else other.outcome.value
        return f"job `{other.child_name}` with the same inputs {verb}"
    try:
        job = jobs.get(services, pipeline.workspace, other.child_name)
    except NotFound:
        return f"job `{other.child_name}` with the same inputs was deleted"
    fault = made.find_fault(services, job)
    return fault or f"what job `{job.name}` made with the same inputs was not there then"


def _between(
    services: Services, workspace: str, of_jobs: tuple[str, str], before: Recipe, after: Recipe
) -> tuple[Difference, ...]:
    found = differences.between(
        before,
        after,
        lambda id: _files(services, workspace, id),
        lambda old, new: _environments(services, workspace, of_jobs, (old, new)),
    )
    return tuple(found)


def _files(services: Services, workspace: str, snapshot: str) -> Mapping[str, str]:
    found = services.blobs.of(workspace).snapshot(snapshot).files
    return {each.path: f"{each.sha256} {each.mode}" for each in found}


def _environments(
    services: Services, workspace: str, of_jobs: tuple[str, str], hashes: tuple[str, str]
) -> tuple[Environment, Environment]:
    locked = [_locked(services, each) for each in hashes]
    is_told = all(locked) and locked[0] != locked[1]
    found = [jobs.find_by_name(services.db, workspace, name) for name in of_jobs]
    asked = [jobs.environment(services.db, job) if job else {} for job in found]
    if not all(asked):
        asked = [{}, {}]  # one alone can't be compared
    before, after = (
        Environment(
            str(each.get("python") or ""),
            str((each.get("image") or {}).get("name") or ""),
            lock if is_told else _asked_packages(each),
        )
        for each, lock in zip(asked, locked, strict=True)
    )
    return before, after


def _locked(services: Services, environment: str) -> dict[str, str]:
    """The versions in its lock; empty where that is not known any more, or not yet."""
    build = services.environments.records.row(environment)
    text = build.lock if build is not None else ""
    return {**lock.pins(text), **conda_packages.versions(text)} if text else {}


def _asked_packages(environment: Mapping[str, Any]) -> dict[str, str]:
    lines = [*environment.get("requirements", ()), *environment.get("conda", ())]
    named = [match for line in lines if (match := _PACKAGE.match(line))]
    return {match["name"].lower(): match["version"] for match in named}


def command(services: Services, job: Job) -> Explanation:
    """What differs from the last job of the same experiment; of data, where they lie.

    Raises:
        InvalidSpec: it is not a command job.
    """
    after = _recipe_of(services, job)
    others = job_queries.list_in(
        services,
        job.workspace,
        experiment_name=job.experiment_name,
        before=job.id,
        limit=1,
        types=[COMMAND],
        with_trials=False,
    )
    if not others:
        text = f"it is the first job of experiment `{job.experiment_name}`"
        return Explanation("", job.name, False, "", (text,))
    of_jobs = (others[0].name, job.name)
    found = _between(services, job.workspace, of_jobs, _recipe_of(services, others[0]), after)
    reasons = tuple(each.text for each in found)
    if not reasons:
        reasons = (f"nothing differs from job `{others[0].name}`",)
    return Explanation("", job.name, False, others[0].name, reasons, found)


def _recipe_of(services: Services, job: Job) -> Recipe:
    spec = parse_job(job).spec
    environment = jobs.environment_hash(services.db, job)
    return recipes.of_job(services, job.workspace, spec, environment, reads=False)
