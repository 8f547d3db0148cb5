"""What people and protocols can do with pipelines.

Owns: checking, creating and canceling them, reading their steps.
Leaves: reading, listing, archiving and deleting to jobs/actions.py and jobs/cleanup/deletion.py,
which a pipeline's row obeys as any job's; the rounds to running/keeper.py.
Always: a pipeline is stored whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job, JobError
from torchyard.jobs.requests import parents
from torchyard.jobs.services import RecordServices, Services
from torchyard.pipelines.records import step_store
from torchyard.pipelines.records.step_store import TYPE, Outcome, StepRow
from torchyard.pipelines.reuse import explaining
from torchyard.pipelines.reuse.explaining import Explanation
from torchyard.pipelines.running import creation, news
from torchyard.workspaces.types import Identity

__all__ = ["JOBS", "TYPE", "PipelineJobs", "ShownStep", "explain", "retry", "steps"]


@dataclass(frozen=True)
class ShownStep:
    """A step with its job, None before there is one, and where it was deleted."""

    row: StepRow
    job: Job | None


def steps(services: RecordServices, pipeline: Job) -> list[ShownStep]:
    """The steps in the order in which they can run.

    Raises:
        InvalidInput: the job is not a pipeline.
    """
    with services.db.read() as connection:
        if step_store.pipeline_of(connection, pipeline.id) is None:
            raise InvalidInput(
                f"job `{pipeline.name}` is not a pipeline",
                "`yard job create` makes one of a file with `type: pipeline`",
            )
        rows = step_store.steps_of(connection, pipeline.id)
        by_id = parents.by_id(connection, [row.child_id for row in rows if row.child_id])
    return [ShownStep(row, by_id.get(row.child_id or 0)) for row in rows]


def explain(services: Services, job: Job) -> list[Explanation]:
    """Of each step of a pipeline, or of a command job: why it ran, or that it was reused.

    Raises:
        InvalidSpec: a job of another type.
    """
    if job.type == TYPE:
        return explaining.pipeline(services, job, [each.row for each in steps(services, job)])
    return [explaining.command(services, job)]


def retry(
    services: Services, pipeline: Job, document: Mapping[str, Any], identity: Identity
) -> tuple[Job, bool]:
    """A new pipeline that keeps what had completed in this one.

    Args:
        document: the pipeline's own, or one whose failed step was mended; the name of the pipeline
            in it is left out, as the new one has another.

    Raises:
        Conflict: the pipeline has not ended.
        InvalidSpec: what is wrong with the document, and where.
    """
    kept = {each.row.name: each for each in steps(services, pipeline)}
    if not pipeline.status.ended:
        raise Conflict(
            f"pipeline `{pipeline.name}` is {pipeline.status.value}",
            f"wait for its end, or end it: `yard job cancel -n {pipeline.name}`",
        )
    there = {
        name: replace(each.row, reused_from=each.row.reused_from or pipeline.name)
        for name, each in kept.items()
        if each.row.outcome is Outcome.COMPLETED and each.job and not each.job.deleted
    }
    body = dict(document)
    if body.get("name") == pipeline.name:
        del body["name"]
    return creation.create(services, pipeline.workspace, body, identity, there)


class PipelineJobs:
    """The type `pipeline`, as jobs/ calls it; see `JobType`."""

    def check(
        self, services: Services, workspace: str, document: Mapping[str, Any], uploaded: bool
    ) -> tuple[str, ...]:
        return creation.check(services, workspace, document, uploaded).notices

    def create(
        self, services: Services, workspace: str, document: Mapping[str, Any], identity: Identity
    ) -> tuple[Job, bool]:
        return creation.create(services, workspace, document, identity)

    def cancel(self, services: Services, job: Job, why: JobError | None, kill: bool) -> Job:
        """The keeper cancels the steps; with `kill` they are ended here, at once."""
        with services.db.write() as connection:
            parents.request_cancel(connection, job, why, services.clock.now())
        services.signals.notify(jobs.job_key(job))
        services.signals.notify(news.PIPELINES)
        for step in steps(services, job) if kill else ():
            if step.job is not None and not step.job.status.ended:
                jobs.cancel(services, job.workspace, step.job.name, why, kill=True)
        return jobs.get(services, job.workspace, job.name)

    def needs(self, services: RecordServices, workspace: str) -> dict[str, str]:
        """What a pipeline reuses, and what its steps have yet to take."""
        with services.db.read() as connection:
            rows = step_store.makers(connection)
            by_id = parents.by_id(connection, {pipeline for pipeline, _ in rows})
        needed = {}
        for pipeline_id, row in rows:
            pipeline = by_id.get(pipeline_id)
            if pipeline is None or pipeline.deleted or pipeline.workspace != workspace:
                continue
            if not pipeline.status.ended:
                needed[row.child_name] = f"job `{pipeline.name}`"
            elif row.reused_from not in ("", pipeline.name):
                needed[row.child_name] = f"pipeline `{pipeline.name}`"
        return needed


JOBS = PipelineJobs()
