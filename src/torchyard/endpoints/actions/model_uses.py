"""Which online deployments name a version of a model.

Owns: finding them, refusing to delete a version that deployments name.
Leaves: batch deployments, and deleting it, to batch_endpoints/actions/model_uses.py.
Always: a version that a deployment serves, or is to serve, stays until that deployment is deleted
or names another one: instances that start later need its files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.endpoints.records import store
from torchyard.endpoints.records.types import Deployment, ProvisioningState

_SHOWN = 5


def refuse_served(db: Database, workspace: str, name: str, version: str = "") -> None:
    """
    Args:
        version: all of the name when empty.

    Raises:
        Conflict: online deployments name it.
    """
    with db.read() as connection:
        there = store.deployments_in(connection, workspace)
    names = [
        f"`{each.name}` of endpoint `{each.endpoint}`"
        for each in there
        if each.state is not ProvisioningState.DELETING and _names(each, name, version)
    ]
    refuse_named(f"`{name}:{version}`" if version else f"`{name}`", names, "online")


def refuse_named(model: str, deployments: Sequence[str], kind: str) -> None:
    """Raise Conflict if there are deployments, which name the model.

    Args:
        kind: `online` or `batch`, as in the verb that deletes them.
    """
    if not deployments:
        return
    more = f" and {len(deployments) - _SHOWN} more" if len(deployments) > _SHOWN else ""
    noun, verb = ("deployment", "serves") if len(deployments) == 1 else ("deployments", "serve")
    raise Conflict(
        f"model {model} can't be deleted: {noun} {', '.join(deployments[:_SHOWN])}{more} {verb} it",
        "deploy another version there, or delete the deployment with "
        f"`yard {kind}-deployment delete`",
        code="asset_in_use",
    )


def _names(deployment: Deployment, name: str, version: str) -> bool:
    return any(
        is_version(document.get("model"), name, version)
        for document in (deployment.document, deployment.served_document)
    )


def is_version(model: Any, name: str, version: str) -> bool:
    """Whether the model in a deployment's file is this version, or any of the name if empty."""
    if not isinstance(model, Mapping) or model.get("name") != name:
        return False
    return not version or str(model.get("version") or "") == version
