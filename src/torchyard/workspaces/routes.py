"""HTTP: workspaces and who one is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from torchyard.base.db import Database
from torchyard.workspaces import actions
from torchyard.workspaces.access import Person
from torchyard.workspaces.types import Workspace


def router(db: Database) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["workspaces"])

    @routes.get("/whoami")
    def whoami(identity: Person) -> dict[str, Any]:
        return {"user": identity.user, "role": "owner"}

    @routes.get("/workspaces")
    def list_workspaces(identity: Person) -> dict[str, Any]:
        return {"value": [to_json(workspace) for workspace in actions.list_all(db)]}

    @routes.get("/workspaces/{workspace}")
    def show(workspace: str, identity: Person) -> dict[str, Any]:
        return to_json(actions.get(db, workspace))

    return routes


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
        "created_at": workspace.created_at.isoformat(),
    }
