"""The room over HTTP.

Owns: GET /environments.
Leaves: its answer to actions.py; the workspace's part of the path and the token to the server.
Always: nothing is decided here.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from torchyard.environments.actions import Environments


def router(environments: Environments) -> APIRouter:
    """Routes below a workspace."""
    routes = APIRouter(tags=["environments"])

    @routes.get("/environments")
    def list_environments() -> dict[str, Any]:
        return {"value": environments.list()}

    return routes
