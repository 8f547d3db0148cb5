"""Azure ML's APIs put together.

Owns: which adapters and services there are.
Leaves: each of them to its module.
Always: below `/azureml…` nothing else answers.
"""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter

from torchyard.azureml import routes
from torchyard.azureml.arm import asset_kinds, location_routes, resolved_routes, workspace_routes
from torchyard.azureml.arm.codes import Codes
from torchyard.azureml.arm.computes import Computes
from torchyard.azureml.arm.datastores import DatastoreKind
from torchyard.azureml.arm.jobs import Jobs
from torchyard.azureml.blob import artifact_routes, service
from torchyard.azureml.blob import routes as blob_routes
from torchyard.azureml.blob.grants import Grants
from torchyard.azureml.blob.links import Links
from torchyard.azureml.blob.places import Containers
from torchyard.azureml.history import routes as history_routes
from torchyard.azureml.sdk_v1.services import services as v1
from torchyard.base.lazy_routes import add_routes
from torchyard.data.blocks import Blocks
from torchyard.data.codes import Places
from torchyard.environments.requested_builds import Builds
from torchyard.jobs.files import run_files
from torchyard.jobs.requests import workspace_lifecycle
from torchyard.jobs.services import Room
from torchyard.models.types import FindSource
from torchyard.workspaces import signing
from torchyard.workspaces.access import Access


def router(
    room: Room,
    access: Access,
    find_model: FindSource,
    builds: Builds,
    storage_domain: str = "",
) -> APIRouter:
    """Everything that common/paths.py makes of Azure's paths.

    Args:
        find_model: the files that a model's path names.
        builds: of environments that are asked for beside those of jobs.
        storage_domain: see entry_routes.py.
    """
    site = workspace_routes.Site(
        room.db,
        room.clock,
        room.server_id,
        access.person,
        access.administrator,
        partial(workspace_lifecycle.furnish, room),
        partial(workspace_lifecycle.delete_empty, room),
    )
    signing_key = signing.key(room.home, "addresses of blobs")
    links = Links(room.db, room.datastores, signing_key, room.clock, storage_domain)
    places = Places(room.db, room.clock, room.datastores, room.blobs)
    codes = Codes(places, links.pending_upload, links.datastore_uri)
    containers = Containers(room.db, room.datastores, partial(run_files.opened, room))
    found = blob_routes.router(
        service.Parts(room.db, room.clock, Blocks(room.home / "uploads")),
        Grants(signing_key, room.clock, containers, access.granted),
    )
    add_routes(found, location_routes.router(room, access.person), workspace_routes.above(site))
    found.routes.extend(
        routes.groups(
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
                history_routes.service(room, partial(links.url, host_style=False)),
                resolved_routes.service(room),
                *v1(room, links, builds),
            ],
        )
    )
    return found
