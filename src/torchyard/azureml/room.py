"""Azure ML's APIs put together, when they are first asked for.

Owns: which adapters and services there are, and that a server which nobody asks like Azure ML does
not pay for their routes.
Leaves: each of them to its module.
Always: below `/azureml…` nothing else answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from torchyard.azureml import (
    artifact_routes,
    asset_kinds,
    blob_routes,
    blob_service,
    history_routes,
    location_routes,
    resolved_routes,
    routes,
    workspace_routes,
)
from torchyard.azureml.blob_grants import Grants
from torchyard.azureml.blob_links import Links
from torchyard.azureml.blob_places import Containers
from torchyard.azureml.codes import Codes
from torchyard.azureml.computes import Computes
from torchyard.azureml.datastores import DatastoreKind
from torchyard.azureml.jobs import Jobs
from torchyard.azureml.v1_services import services as v1
from torchyard.data.blocks import Blocks
from torchyard.data.codes import Places
from torchyard.jobs import run_files, workspace_life
from torchyard.jobs.room import Room
from torchyard.models.types import FindSource
from torchyard.workspaces import signing
from torchyard.workspaces.access import Access

_TOP = "/azureml"


def router(
    room: Room, access: Access, find_model: FindSource, storage_domain: str = ""
) -> APIRouter:
    """Everything that paths.py makes of Azure's paths.

    Args:
        find_model: the files that a model's path names.
        storage_domain: see entry_routes.py.
    """
    found = APIRouter()
    site = workspace_routes.Site(
        room.db,
        room.clock,
        room.server_id,
        access.person,
        access.administrator,
        partial(workspace_life.furnish, room),
        partial(workspace_life.delete_empty, room),
    )
    signing_key = signing.key(room.home, "addresses of blobs")
    links = Links(room.db, room.datastores, signing_key, room.clock, storage_domain)
    places = Places(room.db, room.clock, room.datastores, room.blobs)
    codes = Codes(places, links.pending_upload, links.datastore_uri)
    containers = Containers(room.db, room.datastores, partial(run_files.opened, room))
    found.include_router(
        blob_routes.router(
            blob_service.Parts(room.db, room.clock, Blocks(room.home / "uploads")),
            Grants(signing_key, room.clock, containers, access.granted),
        )
    )
    found.include_router(location_routes.router(room, access.person))
    found.include_router(workspace_routes.above(site))
    found.include_router(
        routes.router(
            room.db,
            access.person,
            kinds=[
                DatastoreKind(room.db, room.clock, room.datastores, links),
                Computes(room),
                Jobs(room, codes.snapshot),
            ],
            versioned=[*asset_kinds.assets_of(room, find_model, links), codes],
            services=[
                workspace_routes.inside(site),
                artifact_routes.service(room, links.url),
                history_routes.service(room, links.url),
                resolved_routes.service(room),
                *v1(room, links),
            ],
        )
    )
    return found


class Lazily(BaseRoute):
    """Routes that are made when the first request comes for one of them."""

    def __init__(self, make: Callable[[], APIRouter]) -> None:
        self._make = make
        self._making = threading.Lock()

    @cached_property
    def _made(self) -> APIRouter:
        return self._make()

    @property
    def router(self) -> APIRouter:
        with self._making:
            return self._made

    def effective_route_contexts(self) -> Iterator[Any]:
        """What FastAPI and tests ask a router for its routes."""
        yield from self.router.routes

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_ours = scope["type"] == "http" and scope["path"].startswith(_TOP)
        return (Match.FULL, {}) if is_ours else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        router = await run_in_threadpool(lambda: self.router)
        await router(scope, receive, send)
