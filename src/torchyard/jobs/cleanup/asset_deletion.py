"""Delete versions of models, data and environments, unless something names them.

Owns: whether they may be deleted, what that breaks.
Leaves: what names them to asset_uses.py, rows and files to the packages of the assets.
Always: what an unfinished job uses stays; so does what another person owns or uses, for a data
scientist; without `force` so does all that is named. A row goes before its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchyard.base.errors import Conflict
from torchyard.data import assets as data
from torchyard.data.datastores import BLOB_STORE
from torchyard.data.deletion import AssetDeletion, DeletedVersion, DeletionRequest
from torchyard.environments import assets as environments
from torchyard.jobs.cleanup import asset_uses
from torchyard.jobs.cleanup.asset_uses import AssetVersion, Use
from torchyard.jobs.services import Services
from torchyard.models import actions as models
from torchyard.workspaces.access import refuse_foreign
from torchyard.workspaces.types import Identity

_SHOWN = 5


def delete(services: Services, request: DeletionRequest, identity: Identity) -> AssetDeletion:
    """
    Raises:
        NotFound: the version does not exist.
        Conflict: something names it, or an unfinished job uses it; nothing was deleted.
        Forbidden: it belongs to another person, or another person's job uses it.
    """
    versions = _versions(services, request)
    for version in versions:
        refuse_foreign(identity, version.owner, str(version))
    going = [version.version for version in versions]
    uses = asset_uses.find(services, request.workspace, versions)
    for use in uses:
        refuse_foreign(identity, use.owner, f"{use.by}, which uses {use.asset},")
    _refuse_unfinished(uses)
    if uses and not request.force:
        raise _needed(uses)
    sizes = {
        version.version: asset_uses.size_bytes(services, version, going) for version in versions
    }
    if not request.dry_run:
        for version in versions:
            _remove(services, version)
    return AssetDeletion(
        tuple(
            DeletedVersion(version.name, version.version, sizes[version.version])
            for version in versions
        ),
        tuple(dict.fromkeys(use.breaks for use in uses)),
    )


def _versions(services: Services, request: DeletionRequest) -> list[AssetVersion]:
    """The versions that are asked for.

    Raises:
        NotFound: there is none.
        Conflict: the environment is curated.
    """
    db, workspace, name = services.db, request.workspace, request.name
    selected: Sequence[Any]
    if request.noun == "environment":
        environments.refuse_curated(name, "deleted")
        package: Any = environments
    else:
        package = models if request.noun == "model" else data
    exact = package.get(db, workspace, name, request.version or "latest")
    selected = [exact] if request.version else package.list_versions(db, workspace, name)
    return [AssetVersion(request.noun, asset) for asset in selected]


def _refuse_unfinished(uses: Sequence[Use]) -> None:
    for use in uses:
        if use.unfinished_job:
            raise Conflict(
                f"{use.asset} can't be deleted: {use.by} uses it and has not ended",
                f"end it first: `yard job cancel -n {use.unfinished_job}`",
                code="asset_in_use",
            )


def _needed(uses: Sequence[Use]) -> Conflict:
    names = list(dict.fromkeys(use.by for use in uses))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    word = "names it" if len(names) == 1 else "name it"
    breaks = list(dict.fromkeys(use.breaks for use in uses))
    also = f"; and {len(breaks) - _SHOWN} more" if len(breaks) > _SHOWN else ""
    return Conflict(
        f"{uses[0].asset} can't be deleted: {', '.join(names[:_SHOWN])}{more} {word}",
        f"delete it anyway with `--force`; then {'; '.join(breaks[:_SHOWN])}{also}",
        code="asset_needed",
    )


def _remove(services: Services, version: AssetVersion) -> None:
    db, workspace, name = services.db, version.workspace, version.name
    if version.noun == "model":
        number = int(version.version)
        models.delete(db, services.clock, services.datastores, workspace, name, number)
    elif version.noun == "environment":
        environments.delete(db, workspace, name, version.version)
    else:
        data.delete(db, workspace, name, version.version)
        folder = asset_uses.own_folder(services, version)
        if folder:
            data.delete_uploaded(db, workspace, folder)
            services.datastores.delete(workspace, BLOB_STORE, folder)
