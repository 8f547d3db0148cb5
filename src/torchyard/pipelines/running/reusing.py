"""Steps that need not run: one with the same recipe has run before.

Owns: the recipe of a step, finding the job that made the same.
Leaves: what belongs to a recipe, and whether what was made is still there, to reuse/, the rows to
records/.
Always: what is reused was made by a completed job of the same person in the same workspace, and
lies as it left it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.base.errors import DatabaseUnreachable, TorchyardError
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import parents, submission
from torchyard.jobs.services import FileServices
from torchyard.pipelines.records import step_store
from torchyard.pipelines.reuse import made, recipes
from torchyard.pipelines.reuse.recipes import Recipe


@dataclass(frozen=True)
class Made:
    """The job that made the same, and the pipeline whose step it was."""

    job: Job
    pipeline: str


def recipe_of(services: FileServices, workspace: str, checked: submission.Checked) -> Recipe | None:
    """The recipe of a step whose inputs are known; None where it can't be told."""
    environment = checked.environment
    try:
        return recipes.of_job(
            services,
            workspace,
            checked.spec,
            environment.hash,
            checked.paths,
            environment.job_variables,
        )
    except DatabaseUnreachable:
        raise
    except TorchyardError:
        return None  # it runs, and says itself what it can't read


def find(services: FileServices, pipeline: Job, key: str) -> Made | None:
    """The newest job of the pipeline's owner that made the same and whose outputs are there.

    Others can get into their jobs while these run, and what they leave may be a program.
    """
    with services.db.read() as connection:
        found = step_store.completed_with(connection, key)
        children = [row.child_id for _, row in found if row.child_id]
        by_id = parents.by_id(connection, [*children, *(of for of, _ in found)])
    own = (pipeline.workspace, pipeline.owner)
    for pipeline_id, row in found:
        job, other = by_id.get(row.child_id or 0), by_id.get(pipeline_id)
        if job is None or job.deleted or other is None or (job.workspace, job.owner) != own:
            continue
        if job.status is Status.COMPLETED and not made.find_fault(services, job):
            return Made(job, other.name)
    return None
