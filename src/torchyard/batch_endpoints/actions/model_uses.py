"""Delete assets, except models that a deployment names, online or batch.

Owns: asking both kinds of deployments.
Leaves: finding those of a kind to endpoints/actions/model_uses.py, deleting the version to
jobs/cleanup/asset_deletion.py and models/.
Always: a version that a deployment names stays.
"""

from __future__ import annotations

from torchyard.assets.deletions import AssetDeletion, DeletionRequest
from torchyard.base.db import Database
from torchyard.batch_endpoints.actions.deployments import BATCH_DEPLOYMENTS
from torchyard.endpoints.actions import model_uses
from torchyard.endpoints.actions.deployments import ONLINE_DEPLOYMENTS
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
    model_uses.refuse_deployed(ONLINE_DEPLOYMENTS, db, workspace, name, version)
    model_uses.refuse_deployed(BATCH_DEPLOYMENTS, db, workspace, name, version)
