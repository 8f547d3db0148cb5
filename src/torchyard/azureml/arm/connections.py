"""Connections as Azure Resource Manager resources.

Owns: a connection's JSON in both directions.
Leaves: connections themselves to connections/actions.py.
Always: `credentials` are null but in the answer of `listsecrets`, which needs what changing a
connection needs.

Source: https://learn.microsoft.com/rest/api/azureml/workspace-connections
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.resources import (
    Action,
    Page,
    PageRequest,
    Permissions,
    PutResult,
    Resource,
    to_json,
)
from torchyard.azureml.common.calls import Call
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.connections import actions
from torchyard.connections.types import OF_DATA, WorkspaceConnection
from torchyard.workspaces.permissions import Permission


class Connections:
    """The adapter of resources.py."""

    permissions = Permissions(actions={"listsecrets": Permission.WRITE})

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self.actions: Mapping[str, Action] = {"listsecrets": self._with_secrets}

    def list(self, call: Call, request: PageRequest) -> Page:
        query = {key.lower(): value for key, value in call.query.items()}
        category = query.get("category", "").replace("_", "").lower()
        target = query.get("target", "")
        of_data = query.get("includeall", "").lower() == "true" or bool(category)
        made = [
            connection
            for connection in actions.list_in(self._db, call.workspace.name)
            if (not category or connection.category.lower() == category)
            and (not target or connection.target == target)
            and (of_data or connection.category not in OF_DATA)
        ]
        later = [connection for connection in made if connection.name > request.after]
        page = later[: request.limit]
        has_more = len(later) > len(page)
        return Page([_resource(each) for each in page], page[-1].name if has_more else "")

    def get(self, call: Call, name: str) -> Resource:
        return _resource(actions.get(self._db, call.workspace.name, name))

    def put(self, call: Call, name: str) -> PutResult:
        workspace, properties = call.workspace.name, call.properties
        if call.method == "PATCH":
            changed = actions.change(
                self._db, self._clock, workspace, name, call.identity.user, properties
            )
        else:
            changed = actions.put(
                self._db, self._clock, workspace, name, call.identity.user, properties
            )
        # Unlike other resources: clients take no other status than 200 for a new one, either.
        return PutResult(_resource(changed), new=False)

    def delete(self, call: Call, name: str) -> None:
        actions.drop(self._db, call.workspace.name, name, call.identity.user)

    def _with_secrets(self, call: Call, name: str) -> dict[str, Any]:
        made = actions.get(self._db, call.workspace.name, name)
        actions.refuse_left_out(made)
        return to_json(call, _resource(made, made.credentials))


def _resource(made: WorkspaceConnection, credentials: dict[str, Any] | None = None) -> Resource:
    properties: dict[str, Any] = {
        "authType": made.auth_type,
        "category": made.category,
        "target": made.target,
        "credentials": credentials or None,
        "metadata": made.properties,
        "isSharedToAll": made.is_shared,
        "sharedUserList": [],
        "expiryTime": None,
    }
    path = ("connections", made.name)
    return Resource(path, properties, made.created_at, made.owner, made.changed_at)
