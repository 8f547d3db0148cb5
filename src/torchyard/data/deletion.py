"""Deleting versions of models, data and environments: what is asked for, and what it did.

Owns: the types of a deletion, its JSON, the routes of all three.
Leaves: what names an asset, and removing it, to jobs/cleanup/asset_deletion.py.
Always: a data scientist deletes only what is their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from torchyard.base.dependencies import from_state
from torchyard.workspaces.guarded_routes import Person, needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, Role


@dataclass(frozen=True)
class DeletionRequest:
    """`noun` is model, data or environment; an empty `version` stands for all versions.

    Args:
        force: delete it although ended jobs, components or aliases name it.
        dry_run: check everything and delete nothing.
    """

    noun: str
    workspace: str
    name: str
    version: str = ""
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class DeletedVersion:
    """`size_bytes` of files are removed with the version; 0 where files stay."""

    name: str
    version: str
    size_bytes: int


@dataclass(frozen=True)
class AssetDeletion:
    """What was deleted, or would be; `breaks` says in sentences what no longer works."""

    versions: tuple[DeletedVersion, ...]
    breaks: tuple[str, ...] = ()


DeleteAssets = Callable[[DeletionRequest, Identity], AssetDeletion]
DeleteAssetsOf = Annotated[DeleteAssets, Depends(from_state("delete_assets"))]


def add_delete_routes(router: APIRouter, prefix: str, noun: str) -> None:
    """Add the routes that delete all versions of an asset, and one of them.

    Args:
        prefix: in front of the asset's name.
        noun: as in `DeletionRequest`.
    """

    @router.delete(f"{prefix}/{{name}}")
    @needs(Permission.WRITE)
    def delete(
        delete_assets: DeleteAssetsOf,
        workspace: str,
        name: str,
        identity: Person,
        force: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        request = DeletionRequest(noun, workspace, name, "", force, dry_run)
        return _delete(delete_assets, request, identity)

    @router.delete(f"{prefix}/{{name}}/versions/{{version}}")
    @needs(Permission.WRITE)
    def delete_version(
        delete_assets: DeleteAssetsOf,
        workspace: str,
        name: str,
        version: str,
        identity: Person,
        force: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        request = DeletionRequest(noun, workspace, name, version, force, dry_run)
        return _delete(delete_assets, request, identity)


def _delete(delete: DeleteAssets, request: DeletionRequest, identity: Identity) -> dict[str, Any]:
    """
    Raises:
        NotFound: the version does not exist.
        Conflict: something names it, or an unfinished job uses it; nothing was deleted.
        Forbidden: it belongs to another person.
    """
    limited = replace(identity, own_only=identity.role is Role.DATA_SCIENTIST)
    done = delete(request, limited)
    return {
        "deleted": [dict(vars(version)) for version in done.versions],
        "breaks": list(done.breaks),
        "dry_run": request.dry_run,
    }
