"""HTTP: validations, audits, releases, their schedules, advisories."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request

from torchyard.base import fields
from torchyard.jobs.services import ServicesOf
from torchyard.releases import actions
from torchyard.releases.records.types import RELEASE, VALIDATION
from torchyard.workspaces import audit as audit_lines
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}", tags=["environments"], route_class=GuardedRoute
)

_WHAT = "the request's document"


@router.get("/environment-releases")
@needs(Permission.READ)
def list_releases(
    services: ServicesOf, workspace: str, environment: str = "", kind: str = ""
) -> dict[str, Any]:
    """Validations and releases, the newest first."""
    return {"value": actions.list_in(services.db, workspace, environment, kind)}


@router.get("/environment-releases/{job}")
@needs(Permission.READ)
def show(services: ServicesOf, workspace: str, job: str) -> dict[str, Any]:
    """A validation or release by its job, with its gates, report and audit."""
    return actions.show(services.db, workspace, job)


@router.post("/environment-releases/{environment}/validate", status_code=201)
@needs(Permission.WRITE)
def validate(
    services: ServicesOf,
    workspace: str,
    environment: str,
    identity: Person,
    request: Request,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Run workloads in an environment, by jobs of the caller's."""
    mapping = fields.mapping(document, _WHAT)
    made = actions.create(services, VALIDATION, workspace, environment, mapping, identity)
    audit_lines.note_about(request.scope, job=made["job"])
    return made


@router.post("/environment-releases/{environment}/release", status_code=201)
@needs(Permission.WRITE)
def release(
    services: ServicesOf,
    workspace: str,
    environment: str,
    identity: Person,
    request: Request,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Make the next version of an environment, if every gate passes."""
    mapping = fields.mapping(document, _WHAT)
    made = actions.create(services, RELEASE, workspace, environment, mapping, identity)
    audit_lines.note_about(request.scope, job=made["job"])
    return made


@router.post("/environment-releases/{environment}/audit")
@needs(Permission.READ)
def audit(
    services: ServicesOf, workspace: str, environment: str, document: Annotated[Any, Body()]
) -> dict[str, Any]:
    """A built version against the workspace's advisories."""
    return actions.audit(services, workspace, environment, fields.mapping(document, _WHAT))


@router.get("/environment-releases/{environment}/bill-of-materials")
@needs(Permission.READ)
def bill_of_materials(
    services: ServicesOf, workspace: str, environment: str, version: str = ""
) -> dict[str, Any]:
    """A built version in CycloneDX 1.5."""
    return actions.bill_of_materials(services, workspace, environment, version)


@router.delete("/environment-releases/{environment}/wheels")
@needs(Permission.WRITE)
def forget_wheels(
    services: ServicesOf, workspace: str, environment: str, identity: Person
) -> dict[str, Any]:
    """Let `yard gc` remove the wheels that are kept for archived versions."""
    return actions.forget_wheels(services.db, workspace, environment, identity.user)


@router.put("/advisories")
@needs(Permission.WRITE)
def put_advisories(
    services: ServicesOf, workspace: str, identity: Person, document: Annotated[Any, Body()]
) -> dict[str, Any]:
    """A piece of the workspace's advisories, in the OSV format."""
    mapping = fields.mapping(document, _WHAT)
    return actions.put_advisories(services, workspace, mapping, identity.user)


@router.get("/release-schedules")
@needs(Permission.READ)
def list_schedules(services: ServicesOf, workspace: str) -> dict[str, Any]:
    return {"value": actions.schedules(services.db, workspace)}


@router.put("/release-schedules/{environment}")
@needs(Permission.WRITE)
def schedule(
    services: ServicesOf,
    workspace: str,
    environment: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    """Release an environment again and again."""
    mapping = fields.mapping(document, _WHAT)
    return actions.schedule(services, workspace, environment, mapping, identity)


@router.delete("/release-schedules/{environment}")
@needs(Permission.WRITE)
def unschedule(
    services: ServicesOf, workspace: str, environment: str, identity: Person
) -> dict[str, Any]:
    actions.unschedule(services.db, workspace, environment, identity.user)
    return {"deleted": True}
