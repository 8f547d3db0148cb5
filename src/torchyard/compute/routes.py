"""HTTP: clusters."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from torchyard.base.clock import Clock, to_text
from torchyard.base.db import Database
from torchyard.base.errors import InvalidSpec
from torchyard.compute import actions
from torchyard.compute.types import Compute, Use
from torchyard.workspaces.access import Person


def router(db: Database, clock: Clock) -> APIRouter:
    routes = APIRouter(prefix="/v1/workspaces/{workspace}/computes", tags=["compute"])

    @routes.get("")
    def list_computes(workspace: str, identity: Person) -> dict[str, Any]:
        return {"value": [to_json(*both) for both in actions.list_in(db, workspace)]}

    @routes.get("/{name}")
    def show(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        compute = actions.get(db, workspace, name)
        return to_json(compute, actions.use(db, compute))

    @routes.put("/{name}")
    def create(
        workspace: str, name: str, identity: Person, document: Annotated[Any, Body()]
    ) -> dict[str, Any]:
        if not isinstance(document, dict):
            raise InvalidSpec("the compute's document is no mapping of keys to values")
        if document.setdefault("name", name) != name:
            raise InvalidSpec(f"the document names `{document['name']}`, the path `{name}`")
        compute = actions.create(db, clock, workspace, document)
        return to_json(compute, actions.use(db, compute))

    @routes.delete("/{name}")
    def delete(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        actions.delete(db, workspace, name)
        return {}

    return routes


def to_json(compute: Compute, use: Use) -> dict[str, Any]:
    body = dict(vars(compute))
    body["created_at"] = to_text(compute.created_at)
    body["tags"] = compute.tags or {}
    body["provisioning_state"] = "Succeeded"
    body["current_node_count"] = use.busy
    return body
