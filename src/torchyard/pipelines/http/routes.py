"""HTTP: what only pipelines have."""

from __future__ import annotations

from fastapi import APIRouter
from typing_extensions import TypedDict

from torchyard.base.clock import to_text
from torchyard.jobs import actions as jobs
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Status
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.pipelines import actions
from torchyard.pipelines.actions import ShownStep
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/pipelines", tags=["pipelines"], route_class=GuardedRoute
)


class PipelineStep(TypedDict):
    """`takes` has the step and the output that each such input is. `outcome` is empty while the
    step waits; `job` is empty before there is one.
    """

    number: int
    name: str
    component: str
    outcome: str
    reason: str
    takes: dict[str, dict[str, str]]
    job: str
    status: str
    started_at: str | None
    ended_at: str | None
    duration_s: float | None


class PipelineSteps(TypedDict):
    """A pipeline's steps, in the order in which they can run."""

    name: str
    status: Status
    steps: list[PipelineStep]


@router.get("/{name}/steps")
@needs(Permission.READ)
def list_steps(services: ServicesOf, workspace: str, name: str) -> PipelineSteps:
    """The pipeline's steps, in the order in which they can run."""
    return steps_json(services, workspace, name)


def steps_json(services: RecordServices, workspace: str, name: str) -> PipelineSteps:
    pipeline = jobs.get(services, workspace, name)
    masker = job_masking.masker(pipeline)
    shown = actions.steps(services, pipeline)
    rows = [_step_json(step, masker.text(step.row.reason)) for step in shown]
    return {"name": pipeline.name, "status": pipeline.status, "steps": rows}


def _step_json(step: ShownStep, reason: str) -> PipelineStep:
    row, job = step.row, step.job
    return {
        "number": row.number,
        "name": row.name,
        "component": row.component,
        "outcome": row.outcome.value,
        "reason": reason,
        "takes": {
            name: {"step": taken.step, "output": taken.output} for name, taken in row.takes.items()
        },
        "job": row.child_name,
        "status": job.status.value if job else "",
        "started_at": to_text(job.started_at) if job and job.started_at else None,
        "ended_at": to_text(job.ended_at) if job and job.ended_at else None,
        "duration_s": job.duration_s if job else None,
    }
