"""Whether deployments of a kind, online or batch, name a version of a model.

Owns: finding them, refusing to delete a version that they name.
Leaves: asking each kind, and deleting the version, to batch_endpoints/actions/model_uses.py.
Always: a version that a deployment serves, or is to serve, stays until that deployment is deleted
or names another one: instances and jobs that start later need its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.endpoints.actions.deployment_kind import DeploymentKind

_SHOWN = 5


def refuse_deployed(
    kind: DeploymentKind[Any, Any], db: Database, workspace: str, name: str, version: str
) -> None:
    """
    Args:
        version: all of the name when empty.

    Raises:
        Conflict: deployments of the kind name it.
    """
    with db.read() as connection:
        there = kind.rows.list_in(connection, workspace)
    names = [
        f"`{each.name}` of {kind.endpoints.noun} `{each.endpoint}`"
        for each in there
        if any(_is_version(file.get("model"), name, version) for file in kind.files_in_use(each))
    ]
    if not names:
        return
    model = f"`{name}:{version}`" if version else f"`{name}`"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    noun, verb = ("deployment", "serves") if len(names) == 1 else ("deployments", "serve")
    raise Conflict(
        f"model {model} can't be deleted: {noun} {', '.join(names[:_SHOWN])}{more} {verb} it",
        "deploy another version there, or delete the deployment with "
        f"`yard {kind.endpoints.word}-deployment delete`",
        code="asset_in_use",
    )


def _is_version(model: Any, name: str, version: str) -> bool:
    """Whether the model in a deployment's file is this version, or any of the name if empty."""
    if not isinstance(model, Mapping) or model.get("name") != name:
        return False
    return not version or str(model.get("version") or "") == version
