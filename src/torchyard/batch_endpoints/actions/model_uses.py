"""Whether deployments, online or batch, name a version of a model.

Owns: finding batch deployments that name it, refusing to delete a version that any deployment
names.
Leaves: online deployments to endpoints/actions/model_uses.py, deleting the version to
jobs/cleanup/asset_deletion.py and models/.
Always: a version that a deployment names stays until that deployment is deleted or names another
one: jobs that score later need its files.
"""

from __future__ import annotations

from torchyard.assets.deletions import AssetDeletion, DeletionRequest
from torchyard.base.db import Database
from torchyard.batch_endpoints.records import store
from torchyard.endpoints.actions import model_uses as online
from torchyard.jobs.cleanup import asset_deletion
from torchyard.jobs.services import FileServices
from torchyard.workspaces.types import Identity


def delete_assets(
    services: FileServices, request: DeletionRequest, identity: Identity
) -> AssetDeletion:
    """As `asset_deletion.delete`, but for models that deployments name.

    Raises:
        Conflict: a deployment names the model.
    """
    if request.noun == "model":
        refuse_deployed(services.db, request.workspace, request.name, request.version)
    return asset_deletion.delete(services, request, identity)


def refuse_deployed(db: Database, workspace: str, name: str, version: str = "") -> None:
    """
    Args:
        version: all of the name when empty.

    Raises:
        Conflict: with the names of the deployments, online ones first.
    """
    online.refuse_served(db, workspace, name, version)
    with db.read() as connection:
        names = [
            f"`{deployment.name}` of batch endpoint `{endpoint.name}`"
            for endpoint in store.endpoints_in(connection, workspace)
            for deployment in store.deployments_in(connection, endpoint)
            if online.is_version(deployment.document.get("model"), name, version)
        ]
    online.refuse_named(f"`{name}:{version}`" if version else f"`{name}`", names, "batch")
