"""HTTP: workspaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Forbidden
from torchyard.workspaces import actions, people
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, Role, TokenKind, Workspace


def router(
    db: Database,
    clock: Clock,
    furnish: Callable[[str], None],
    delete: Callable[[str], None],
) -> APIRouter:
    """
    Args:
        furnish: gives a new workspace what every workspace has from the start.
        delete: deletes an empty one, and says what is in one that isn't.
    """
    routes = APIRouter(prefix="/v1", tags=["workspaces"], route_class=GuardedRoute)

    @routes.get("/workspaces")
    @needs(Permission.SELF)
    def list_workspaces(identity: Person) -> dict[str, Any]:
        """Those where one has a role; a job's token is good for its workspace only."""
        found = people.workspaces_of(db, identity)
        return {"value": [to_json(workspace) for workspace in found]}

    @routes.post("/workspaces", status_code=201)
    @needs(Permission.SERVER)
    def create(identity: Person, document: Annotated[Any, Body()]) -> dict[str, Any]:
        if identity.workspace:
            raise Forbidden(
                f"this token is good for workspace `{identity.workspace}` only",
                "create workspaces with a person's token",
            )
        made = actions.create(db, clock, fields.mapping(document, "the workspace's document"))
        furnish(made.name)
        return to_json(made)

    @routes.delete("/workspaces/{workspace}")
    @needs(Permission.SERVER)
    def drop(workspace: str, identity: Person) -> dict[str, Any]:
        if identity.workspace:
            raise Forbidden("a job can't delete its workspace", "use a person's token")
        actions.get(db, workspace)
        delete(workspace)
        return {}

    @routes.patch("/workspaces/{workspace}")
    @needs(Permission.SETTINGS)
    def update(workspace: str, identity: Person, changes: Annotated[Any, Body()]) -> dict[str, Any]:
        fields.mapping(changes, "the document of changes")
        if "allow_substitutes" in changes and not _is_owner(identity):
            raise Forbidden(
                f"only an owner of workspace `{workspace}` says whether it takes substitutes",
                "ask one of them: `yard user list` shows who they are",
            )
        return to_json(actions.update(db, workspace, changes))

    @routes.get("/workspaces/{workspace}")
    @needs(Permission.READ)
    def show(workspace: str, identity: Person) -> dict[str, Any]:
        return to_json(actions.get(db, workspace))

    return routes


def _is_owner(identity: Identity) -> bool:
    return identity.kind is TokenKind.PERSON and identity.role is Role.OWNER


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
        "description": workspace.description,
        "retention_days": workspace.retention_days,
        "rehearse_on_cpu": workspace.rehearse_on_cpu,
        "allow_substitutes": workspace.allow_substitutes,
        "created_at": workspace.created_at.isoformat(),
    }
