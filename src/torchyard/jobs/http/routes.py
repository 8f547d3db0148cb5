"""HTTP: jobs, for people."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from torchyard.assets import served_files
from torchyard.base import fields
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.bodies.live_streams import LiveStream
from torchyard.base.errors import InvalidInput, InvalidSpec
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.files.artifacts import Artifact
from torchyard.jobs.owners import OwnJob
from torchyard.jobs.requests import answer_types, job_types, preflights, streams
from torchyard.jobs.requests.job_queries import ListRequest, list_page
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.scheduling import preemption
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces import audit
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

_STREAM = "application/x-torchyard-stream"

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/jobs", tags=["jobs"], route_class=GuardedRoute
)


class JobFiles(TypedDict):
    value: list[Artifact]


class OutputFile(TypedDict):
    output: str
    path: str
    size_bytes: int


class OutputFiles(TypedDict):
    value: list[OutputFile]


@router.post("", status_code=201)
@needs(Permission.WRITE)
def create(
    services: ServicesOf,
    workspace: str,
    identity: Person,
    request: Request,
    response: Response,
    document: Annotated[Any, Body()],
) -> answer_types.SubmittedJob:
    mapping = fields.mapping(document, "the job")
    job, is_new = job_types.create(services, workspace, mapping, identity)
    audit.note_about(request.scope, job=job.name)
    response.status_code = 201 if is_new else 200
    return {**job_json(services, job), "submitted": is_new}


@router.post("/validate")
@needs(Permission.READ)
def validate(
    services: ServicesOf, workspace: str, document: Annotated[Any, Body()]
) -> dict[str, Any]:
    return {"notices": list(job_types.check(services, workspace, document, uploaded=False))}


@router.get("")
@needs(Permission.READ)
def list_jobs(
    services: ServicesOf,
    workspace: str,
    experiment_name: str = "",
    status: str = "",
    archived: str = "false",
    parent: str = "",
    tag: Annotated[list[str] | None, Query()] = None,
    owner: str = "",
    text: str = "",
    created_after: str = "",
    created_before: str = "",
    sort: str = "",
    descending: bool = False,
    column: Annotated[list[str] | None, Query()] = None,
    before: str = "",
    limit: int = 50,
    type: str = "",
) -> answer_types.JobPage:
    request = ListRequest(
        experiment_name,
        status,
        archived,
        parent,
        tag or (),
        owner,
        text,
        created_after,
        created_before,
        sort,
        descending,
        column or (),
        before,
        limit,
        type,
    )
    return list_page(services, workspace, request)


@router.get("/{name}")
@needs(Permission.READ)
def show(services: ServicesOf, workspace: str, name: str) -> answer_types.Job:
    return job_json(services, actions.get(services, workspace, name))


@router.patch("/{name}")
@needs(Permission.JOB)
def update(services: ServicesOf, job: OwnJob, changes: Annotated[Any, Body()]) -> answer_types.Job:
    if not isinstance(changes, dict):
        raise InvalidSpec("the changes must be a mapping")
    changed = actions.change(services, job, actions.read_changes(changes))
    return job_json(services, changed)


@router.get("/{name}/preflight")
@needs(Permission.READ)
def preflight(services: ServicesOf, workspace: str, name: str) -> dict[str, Any]:
    return {"value": preflights.of(services.db, actions.get(services, workspace, name))}


@router.get("/{name}/document")
@needs(Permission.READ)
def document(services: ServicesOf, workspace: str, name: str) -> dict[str, Any]:
    return actions.document(services, workspace, name)


@router.post("/{name}/archive")
@needs(Permission.JOB)
def archive(services: ServicesOf, job: OwnJob) -> answer_types.Job:
    return job_json(services, actions.archive(services, job.workspace, job.name))


@router.post("/{name}/restore")
@needs(Permission.JOB)
def restore(services: ServicesOf, job: OwnJob) -> answer_types.Job:
    return job_json(services, actions.archive(services, job.workspace, job.name, archived=False))


@router.post("/{name}/cancel")
@needs(Permission.JOB)
def cancel(services: ServicesOf, job: OwnJob, now: bool = False) -> answer_types.Job:
    return job_json(services, actions.cancel(services, job.workspace, job.name, kill=now))


@router.post("/{name}/preempt")
@needs(Permission.JOB)
def preempt(services: ServicesOf, job: OwnJob, identity: Person) -> answer_types.Job:
    return job_json(services, preemption.preempt(services, job.workspace, job.name, identity.user))


@router.get("/{name}/stream")
@needs(Permission.READ)
async def stream(
    services: ServicesOf, workspace: str, name: str, after: int = 0, offsets: str = "{}"
) -> LiveStream:
    if not 0 <= after < 2**62:
        raise InvalidInput(
            f"`after` must be the number of an event, not {after}",
            "take it from the stream's frames",
        )
    job = await run_in_threadpool(actions.get, services, workspace, name)
    cursor = streams.Cursor(after, _offsets(offsets))
    return LiveStream(streams.frames(services, job, cursor), _STREAM)


@router.get("/{name}/files")
@needs(Permission.READ)
def list_files(services: ServicesOf, workspace: str, name: str) -> JobFiles:
    job = actions.get(services, workspace, name)
    return {"value": artifacts.list_of(services, job)}


@router.get("/{name}/files/{path:path}")
@needs(Permission.READ)
def get_file(services: ServicesOf, workspace: str, name: str, path: str) -> OpenFileResponse:
    job = actions.get(services, workspace, name)
    return served_files.attachment(artifacts.file(services, job, path))


@router.get("/{name}/outputs")
@needs(Permission.READ)
def list_outputs(services: ServicesOf, workspace: str, name: str) -> OutputFiles:
    job = actions.get(services, workspace, name)
    return {
        "value": [
            {"output": output, "path": file.path, "size_bytes": file.size_bytes}
            for output, file in artifacts.list_outputs(services, job)
        ]
    }


@router.get("/{name}/outputs/{output}/{path:path}")
@needs(Permission.READ)
def get_output(
    services: ServicesOf, workspace: str, name: str, output: str, path: str
) -> OpenFileResponse:
    job = actions.get(services, workspace, name)
    return served_files.attachment(artifacts.output_file(services, job, output, path))


def _offsets(text: str) -> dict[str, int]:
    try:
        file = {str(key): int(value) for key, value in json.loads(text).items()}
        if all(0 <= value < 2**62 for value in file.values()):
            return file
        raise ValueError("an offset is out of range")
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            "`offsets` is not a JSON object of numbers", "take it from the stream's frames"
        ) from error
