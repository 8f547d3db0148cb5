"""HTTP: compute instances."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from fastapi.concurrency import run_in_threadpool

from torchyard.base import fields
from torchyard.instances import actions
from torchyard.instances.types import SERVICE
from torchyard.interactive.job_routes import JobServicesOf
from torchyard.jobs import actions as jobs
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces import audit
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/instances", tags=["compute"], route_class=GuardedRoute
)


@router.get("")
@needs(Permission.READ)
def list_instances(services: ServicesOf, workspace: str) -> dict[str, Any]:
    instances = actions.list_in(services.db, workspace)
    return {"value": [actions.to_json(services.db, instance) for instance in instances]}


@router.get("/{instance}")
@needs(Permission.READ)
def show(services: ServicesOf, workspace: str, instance: str) -> dict[str, Any]:
    return actions.to_json(services.db, actions.get(services.db, workspace, instance))


@router.put("/{instance}")
@needs(Permission.COMPUTE)
def create(
    services: ServicesOf,
    workspace: str,
    instance: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    instance_document = fields.with_path_name(
        fields.mapping(document, "the compute's document"), instance
    )
    return actions.to_json(
        services.db, actions.create(services, workspace, instance_document, identity)
    )


@router.post("/{instance}/start")
@needs(Permission.WRITE)
def start(services: ServicesOf, workspace: str, instance: str, identity: Person) -> dict[str, Any]:
    started = actions.start(services, workspace, instance, identity.user)
    return actions.to_json(services.db, started)


@router.post("/{instance}/stop")
@needs(Permission.WRITE)
def stop(services: ServicesOf, workspace: str, instance: str, identity: Person) -> dict[str, Any]:
    return actions.to_json(services.db, actions.stop(services, workspace, instance, identity.user))


@router.post("/{instance}/restart")
@needs(Permission.WRITE)
def restart(
    services: ServicesOf, workspace: str, instance: str, identity: Person
) -> dict[str, Any]:
    stopped = actions.restart(services, workspace, instance, identity.user)
    return actions.to_json(services.db, stopped)


@router.delete("/{instance}")
@needs(Permission.COMPUTE)
def delete(services: ServicesOf, workspace: str, instance: str, identity: Person) -> dict[str, Any]:
    actions.delete(services, workspace, instance, identity.user)
    return {"deleted": True}


@router.post("/{instance}/link", status_code=201)
@needs(Permission.ENTER)
async def link(
    services: ServicesOf,
    running: JobServicesOf,
    workspace: str,
    instance: str,
    identity: Person,
    request: Request,
) -> dict[str, Any]:
    """A link that lets this person into its JupyterLab, once, within a minute."""
    known_instance = await run_in_threadpool(actions.get, services.db, workspace, instance)
    await run_in_threadpool(actions.refuse_foreign, services.db, known_instance, identity.user)
    audit.note_about(request.scope, compute=instance)
    job = await run_in_threadpool(jobs.get, services, workspace, known_instance.job)
    return {"url": await running.link(job, SERVICE, None, identity)}
