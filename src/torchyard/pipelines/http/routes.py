"""HTTP: what only pipelines have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body
from typing_extensions import TypedDict

from torchyard.base import fields
from torchyard.base.clock import to_text
from torchyard.base.errors import Forbidden
from torchyard.jobs import actions as jobs
from torchyard.jobs.owners import OwnJob
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests import answer_types
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.pipelines import actions
from torchyard.pipelines.actions import ShownStep
from torchyard.pipelines.reuse.explaining import Explanation
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}", tags=["pipelines"], route_class=GuardedRoute
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
    reused_from: str
    status: str
    started_at: str | None
    ended_at: str | None
    duration_s: float | None


class PipelineSteps(TypedDict):
    """A pipeline's steps, in the order in which they can run."""

    name: str
    status: Status
    steps: list[PipelineStep]


class OneDifference(TypedDict):
    what: str
    name: str
    text: str


class StepExplanation(TypedDict):
    """`other` is the job that it was made by, or that it is compared with."""

    step: str
    job: str
    is_reused: bool
    other: str
    reasons: list[str]
    differences: list[OneDifference]


class Explanations(TypedDict):
    name: str
    value: list[StepExplanation]


@router.get("/pipelines/{name}/steps")
@needs(Permission.READ)
def list_steps(services: ServicesOf, workspace: str, name: str) -> PipelineSteps:
    """The pipeline's steps, in the order in which they can run."""
    return steps_json(services, workspace, name)


@router.get("/explanations/{name}")
@needs(Permission.READ)
def explain(services: ServicesOf, workspace: str, name: str) -> Explanations:
    """Why a job ran: of a pipeline, each step reused or run, with what differs from before; of a
    command job, what differs from the last one of its experiment.
    """
    job = jobs.get(services, workspace, name)
    text = job_masking.masker(job).text
    rows = actions.explain(services, job)
    return {"name": job.name, "value": [_explanation_json(each, text) for each in rows]}


@router.post("/pipelines/{name}/retry", status_code=201)
@needs(Permission.JOB)
def retry(
    services: ServicesOf,
    workspace: str,
    name: str,
    pipeline: OwnJob,
    identity: Person,
    document: Annotated[Any, Body()] = None,
    new_name: str = "",
) -> answer_types.Job:
    """A new pipeline that keeps what had completed in an ended one; a body is its document in place
    of the old one's.
    """
    if document is None and pipeline.owner != identity.user:
        raise Forbidden(
            f"pipeline `{name}` is `{pipeline.owner}`'s, whose secrets may be in it",
            "give its file: `-f FILE`",
        )
    body = dict(pipeline.document if document is None else fields.mapping(document, "the pipeline"))
    if new_name:
        body["name"] = new_name
    job, _ = actions.retry(services, pipeline, body, identity)
    return job_json(services, job)


def _explanation_json(each: Explanation, text: Callable[[str], str]) -> StepExplanation:
    return {
        "step": each.step,
        "job": each.job,
        "is_reused": each.is_reused,
        "other": each.other,
        "reasons": [text(reason) for reason in each.reasons],
        "differences": [
            {"what": one.what, "name": one.name, "text": text(one.text)} for one in each.differences
        ],
    }


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
        "reused_from": row.reused_from,
        "status": job.status.value if job else "",
        "started_at": to_text(job.started_at) if job and job.started_at else None,
        "ended_at": to_text(job.ended_at) if job and job.ended_at else None,
        "duration_s": job.duration_s if job else None,
    }
