"""HTTP: workspaces."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base import fields
from torchyard.base.dependencies import ClockOf, DatabaseOf
from torchyard.base.errors import Forbidden
from torchyard.workspaces import actions, azure_keys, notifications, people
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.hooks import HooksOf
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, Role, TokenKind, Workspace

router = APIRouter(prefix="/v1", tags=["workspaces"], route_class=GuardedRoute)


@router.get("/workspaces")
@needs(Permission.SELF)
def list_workspaces(db: DatabaseOf, identity: Person) -> dict[str, Any]:
    """The workspaces where the caller has a role; a job's token reaches only its own."""
    workspaces = people.workspaces_of(db, identity)
    return {"value": [to_json(workspace) for workspace in workspaces]}


@router.post("/workspaces", status_code=201)
@needs(Permission.SERVER)
def create(
    db: DatabaseOf,
    clock: ClockOf,
    hooks: HooksOf,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    if identity.workspace:
        raise Forbidden(
            f"this token is valid only for workspace `{identity.workspace}`",
            "create workspaces with a personal token",
        )
    fields.mapping(document, "the workspace's document")
    workspace = actions.create(db, clock, document)
    hooks.provision_workspace(workspace.name)
    return _with_notices(workspace, azure_keys.notices(document))


_FOR_OWNERS = ("allow_substitutes", "max_processes", "disk_quota_mb", "network", "auto_compute")


@router.delete("/workspaces/{workspace}")
@needs(Permission.SERVER)
def drop(db: DatabaseOf, hooks: HooksOf, workspace: str, identity: Person) -> dict[str, Any]:
    if identity.workspace:
        raise Forbidden("a job can't delete its workspace", "use a personal token")
    actions.get(db, workspace)
    hooks.delete_workspace(workspace)
    return {}


@router.patch("/workspaces/{workspace}")
@needs(Permission.SETTINGS)
def update(
    db: DatabaseOf,
    hooks: HooksOf,
    workspace: str,
    identity: Person,
    changes: Annotated[Any, Body()],
) -> dict[str, Any]:
    fields.mapping(changes, "the document of changes")
    for key in _FOR_OWNERS:
        if key in changes and not _is_owner(identity):
            raise Forbidden(
                f"only an owner of workspace `{workspace}` can change `{key}`",
                "ask an owner: `yard user list` shows who they are",
            )
    recipient_keys = [key for key in notifications.KEYS if key in changes]
    if recipient_keys and identity.kind is not TokenKind.PERSON:
        raise Forbidden(f"a job can't change `{recipient_keys[0]}`", "use a personal token")
    changed = actions.update(db, workspace, changes, hooks.check_notifications)
    notices = azure_keys.notices(changes)
    if recipient_keys:
        notices += hooks.check_notifications(changed.notifications)
    return _with_notices(changed, notices)


@router.get("/workspaces/{workspace}")
@needs(Permission.READ)
def show(db: DatabaseOf, workspace: str) -> dict[str, Any]:
    return to_json(actions.get(db, workspace))


def _is_owner(identity: Identity) -> bool:
    return identity.kind is TokenKind.PERSON and identity.role is Role.OWNER


def _with_notices(workspace: Workspace, notices: list[str]) -> dict[str, Any]:
    return {**to_json(workspace), "notices": notices}


def to_json(workspace: Workspace) -> dict[str, Any]:
    path = (
        f"/subscriptions/{workspace.subscription_id}/resourceGroups/{workspace.resource_group}"
        f"/providers/Microsoft.MachineLearningServices/workspaces/{workspace.name}"
    )
    return {
        "id": path,
        "name": workspace.name,
        "subscription_id": workspace.subscription_id,
        "resource_group": workspace.resource_group,
        "location": workspace.location,
        "display_name": workspace.display_name or workspace.name,
        "description": workspace.description,
        "tags": workspace.tags,
        "retention_days": workspace.retention_days,
        "rehearse_on_cpu": workspace.rehearse_on_cpu,
        "allow_substitutes": workspace.allow_substitutes,
        "max_processes": workspace.max_processes,
        "disk_quota_mb": workspace.disk_quota_mb,
        "network": workspace.network,
        "auto_compute": workspace.auto_compute,
        **notifications.to_json(workspace.notifications),
        **workspace.azure_keys,
        "created_at": workspace.created_at.isoformat(),
    }
