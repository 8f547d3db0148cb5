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
from torchyard.jobs.services import Services
from torchyard.models.types import FindSource
from torchyard.workspaces import signing
from torchyard.workspaces.access import Access


def router(
    services: Services,
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
        services.db,
        services.clock,
        services.server_id,
        access.person,
        access.administrator,
        partial(workspace_lifecycle.provision, services),
        partial(workspace_lifecycle.delete_empty, services),
    )
    signing_key = signing.key(services.home, "addresses of blobs")
    links = Links(services.db, services.datastores, signing_key, services.clock, storage_domain)
    places = Places(services.db, services.clock, services.datastores, services.blobs)
    codes = Codes(places, links.pending_upload, links.datastore_uri)
    containers = Containers(services.db, services.datastores, partial(run_files.opened, services))
    found = blob_routes.router(
        service.Parts(services.db, services.clock, Blocks(services.home / "uploads")),
        Grants(signing_key, services.clock, containers, access.granted),
    )
    add_routes(found, location_routes.router(services, access.person), workspace_routes.above(site))
    found.routes.extend(
        routes.groups(
            services.db,
            access.person,
            kinds=[
                DatastoreKind(services.db, services.clock, services.datastores, links),
                Computes(services),
                Jobs(services, codes.snapshot),
            ],
            versioned=[*asset_kinds.assets_of(services, find_model, links), codes],
            services=[
                workspace_routes.inside(site),
                artifact_routes.service(services, links.url),
                history_routes.service(services, partial(links.url, host_style=False)),
                resolved_routes.service(services),
                *v1(services, links, builds),
            ],
        )
    )
    return found
