"""Which deployments name a version of a model.

Owns: finding them, refusing to delete a version that one names.
Leaves: deleting it, and what else names it, to jobs/cleanup/asset_deletion.py and models/.
Always: a version that a deployment serves, or is to serve, stays until that deployment is deleted
or names another one: instances that start later need its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.errors import Conflict
from torchyard.data.deletion import AssetDeletion, DeletionRequest
from torchyard.endpoints.records import store
from torchyard.endpoints.records.types import Deployment, ProvisioningState
from torchyard.jobs.cleanup import asset_deletion
from torchyard.jobs.services import Services
from torchyard.workspaces.types import Identity

_SHOWN = 5


def delete_assets(
    services: Services, request: DeletionRequest, identity: Identity
) -> AssetDeletion:
    """As `asset_deletion.delete`, but for models that deployments name.

    Raises:
        Conflict: a deployment names the model.
    """
    if request.noun == "model":
        refuse_deployed(services, request.workspace, request.name, request.version)
    return asset_deletion.delete(services, request, identity)


def refuse_deployed(services: Services, workspace: str, name: str, version: str = "") -> None:
    """
    Args:
        version: all of the name when empty.

    Raises:
        Conflict: with the names of the deployments.
    """
    with services.db.read() as connection:
        there = store.deployments_in(connection, workspace)
    names = [
        f"`{each.name}` of endpoint `{each.endpoint}`"
        for each in there
        if each.state is not ProvisioningState.DELETING and _names(each, name, version)
    ]
    if not names:
        return
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    what = f"`{name}:{version}`" if version else f"`{name}`"
    word = "deployment" if len(names) == 1 else "deployments"
    raise Conflict(
        f"model {what} can't be deleted: {word} {', '.join(names[:_SHOWN])}{more} "
        f"{'serves' if len(names) == 1 else 'serve'} it",
        "deploy another version there, or delete the deployment with "
        "`yard online-deployment delete`",
        code="asset_in_use",
    )


def _names(deployment: Deployment, name: str, version: str) -> bool:
    return any(
        _is_of(document.get("model"), name, version)
        for document in (deployment.document, deployment.served_document)
    )


def _is_of(model: Any, name: str, version: str) -> bool:
    if not isinstance(model, Mapping) or model.get("name") != name:
        return False
    return not version or str(model.get("version") or "") == version
