"""Why a job ran: which earlier one it is compared with, and what differs.

Owns: the choice of the earlier one, what is said where nothing differs.
Leaves: the differences themselves to differences.py.
Always: what is said of a step is what its recipe was when it was decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchyard.environments.conda import conda_packages
from torchyard.environments.packages import lock
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import COMMAND, Job, parse_job
from torchyard.jobs.requests import job_queries
from torchyard.jobs.services import Services
from torchyard.pipelines.records import step_store
from torchyard.pipelines.records.step_store import Outcome, StepRow
from torchyard.pipelines.reuse import contents, differences, recipes
from torchyard.pipelines.reuse.differences import Difference
from torchyard.pipelines.reuse.recipes import Recipe

_MOST_EARLIER = 50


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
        reasons += [] if reasons else [_unusable(other)]
        return Explanation(row.name, row.child_name, False, other.child_name, tuple(reasons))
    found_differences = _between(services, job.workspace, earlier, recipe)
    reasons += [each.text for each in found_differences]
    return Explanation(
        row.name, row.child_name, False, other.child_name, tuple(reasons), found_differences
    )


def _unusable(other: StepRow) -> str:
    """Why the job of a step with the same recipe was not reused."""
    if other.outcome is Outcome.COMPLETED:
        return f"what job `{other.child_name}` made with the same inputs is gone, or was replaced"
    verb = "ran at the same time" if other.outcome is Outcome.LIVE else other.outcome.value
    return f"job `{other.child_name}` with the same inputs {verb}"


def _between(
    services: Services, workspace: str, before: Recipe, after: Recipe
) -> tuple[Difference, ...]:
    found = differences.between(
        before,
        after,
        lambda id: contents.files_of(services, workspace, f"snapshot:{id}"),
        lambda environment: _packages(services, environment),
    )
    return tuple(found)


def _packages(services: Services, environment: str) -> Mapping[str, str]:
    """Those of the lock; empty where it is not known any more."""
    build = services.environments.records.row(environment)
    text = build.lock if build is not None else ""
    return {**lock.pins(text), **conda_packages.versions(text)} if text else {}


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
    found = _between(services, job.workspace, _recipe_of(services, others[0]), after)
    reasons = tuple(each.text for each in found)
    if not reasons:
        reasons = (f"nothing differs from job `{others[0].name}`",)
    return Explanation("", job.name, False, others[0].name, reasons, found)


def _recipe_of(services: Services, job: Job) -> Recipe:
    spec = parse_job(job).spec
    environment = jobs.environment_hash(services.db, job)
    return recipes.of_job(services, job.workspace, spec, environment, reads=False)
