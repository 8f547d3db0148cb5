"""The room over HTTP.

Owns: GET /environments.
Leaves: its answer to actions.py; the workspace's part of the path and the token to the server.
Always: nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from fastapi import APIRouter

from torchyard.environments.actions import Environments


def router(environments: Environments, asked_for: Callable[[str], Collection[str]]) -> APIRouter:
    """Routes below a workspace.

    Args:
        asked_for: hashes of the environments that a workspace's jobs asked for; builds are shared
            by all workspaces, and what one asked for is not another's to see.
    """
    routes = APIRouter(tags=["environments"])

    @routes.get("/environments")
    def list_environments(workspace: str) -> dict[str, Any]:
        return {"value": environments.list(asked_for(workspace))}

    return routes
