"""HTTP: opening shells and services of running jobs, releasing a job that is held."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request
from fastapi.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from torchyard.base.dependencies import from_state
from torchyard.base.errors import InvalidInput
from torchyard.interactive import running_nodes, running_services
from torchyard.interactive.running_services import JobServices
from torchyard.interactive.shells import Shells
from torchyard.jobs import actions
from torchyard.jobs.owners import OwnJob
from torchyard.jobs.requests import answer_types
from torchyard.jobs.requests.to_json import job_json
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces import audit
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

JobServicesOf = Annotated[JobServices, Depends(from_state("job_services"))]
ShellsOf = Annotated[Shells, Depends(from_state("shells"))]
_LONGEST_COMMAND = 32 << 10

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/jobs", tags=["jobs"], route_class=GuardedRoute
)


class OpenedShell(TypedDict):
    id: str
    rank: int
    node: int


class ServiceLink(TypedDict):
    url: str


@router.post("/{name}/shells", status_code=201)
@needs(Permission.ENTER)
async def open_shell(
    services: ServicesOf,
    shells: ShellsOf,
    job: OwnJob,
    identity: Person,
    request: Request,
    rank: Annotated[int | None, Body()] = None,
    node: Annotated[int | None, Body()] = None,
    command: Annotated[list[str] | None, Body()] = None,
    terminal: Annotated[bool, Body()] = True,
    rows: Annotated[int, Body()] = 24,
    columns: Annotated[int, Body()] = 80,
    term: Annotated[str, Body()] = "",
) -> OpenedShell:
    command = command or []
    if sum(map(len, command)) > _LONGEST_COMMAND or any("\0" in word for word in command):
        raise InvalidInput("the command is too long, or contains a NUL character", "shorten it")
    _, running_node = await run_in_threadpool(
        running_nodes.find, services, job.workspace, job.name, rank, node
    )
    audit.note_about(request.scope, job=job.name, rank=running_node.rank, command=" ".join(command))
    shell_request: dict[str, Any] = {
        "kind": "shell",
        "local_rank": running_node.local_rank,
        "command": command,
        "terminal": terminal,
        "rows": rows,
        "columns": columns,
        "term": term,
    }
    channel = await running_nodes.open_channel(services, running_node, shell_request)
    return {
        "id": shells.add(identity.user, job.workspace, job.owner, channel),
        "rank": running_node.rank,
        "node": running_node.node,
    }


@router.get("/{name}/services")
@needs(Permission.READ)
def list_services(
    services: ServicesOf, running: JobServicesOf, workspace: str, name: str
) -> dict[str, Any]:
    job = actions.get(services, workspace, name)
    return {"value": [state.to_json() for state in running.states(job)]}


@router.post("/{name}/services/{service}/link", status_code=201)
@needs(Permission.ENTER)
async def link_service(
    running: JobServicesOf,
    job: OwnJob,
    service: str,
    identity: Person,
    request: Request,
    node: Annotated[int | None, Body(embed=True)] = None,
) -> ServiceLink:
    """A link that lets this person in, once, within a minute."""
    audit.note_about(request.scope, job=job.name, service=service)
    return {"url": await running.link(job, service, node, identity)}


@router.post("/{name}/release")
@needs(Permission.JOB)
def release(services: ServicesOf, job: OwnJob) -> answer_types.Job:
    return job_json(services, running_services.release(services, job.workspace, job.name))
