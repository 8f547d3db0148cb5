"""Delete versions of models, data and environments, unless something names them.

Owns: whether they may be deleted, what that breaks.
Leaves: what names them to asset_uses.py, rows and files to the packages of the assets.
Always: what an unfinished job uses stays; so does what another person owns or uses, for a data
scientist; without `force` so does all that is named. One transaction checks and deletes the rows;
the files go after them, and `yard gc` finds those of a server that was killed in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from torchyard.assets.deletions import AssetDeletion, DeletedVersion, DeletionRequest
from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.data import assets as data
from torchyard.data.datastores import Datastores
from torchyard.environments import assets as environments
from torchyard.jobs.cleanup import asset_uses, unregistered
from torchyard.jobs.cleanup.asset_uses import AssetVersion, Use
from torchyard.jobs.cleanup.unregistered import StoredFolder
from torchyard.jobs.services import FileServices, RecordServices
from torchyard.models import actions as models
from torchyard.workspaces.access import refuse_foreign
from torchyard.workspaces.types import Identity

_SHOWN = 5


@dataclass(frozen=True)
class _Plan:
    """The versions to delete, what names them, and the folders that go with versions of data."""

    versions: Sequence[AssetVersion]
    uses: Sequence[Use]
    folders: Mapping[str, str]


def delete(services: FileServices, request: DeletionRequest, identity: Identity) -> AssetDeletion:
    """
    Raises:
        NotFound: the version does not exist.
        Conflict: something names it, or an unfinished job uses it; nothing was deleted.
        Forbidden: it belongs to another person, or another person's job uses it.
    """
    if request.dry_run:
        plan = _plan(services.db, request, identity)
        return _deletion(plan, _sizes(services.datastores, plan))
    with services.db.write() as connection:
        # What is true here stays so until the rows are gone; submission checks what it pinned.
        inside = replace(services, db=services.db.joined(connection))
        plan = _plan(inside.db, request, identity)
        for version in plan.versions:
            _delete_row(inside, version)
    sizes = _sizes(services.datastores, plan)
    for version in plan.versions:
        _remove_files(services, version, plan)
    return _deletion(plan, sizes)


def _plan(db: Database, request: DeletionRequest, identity: Identity) -> _Plan:
    versions = _versions(db, request)
    for version in versions:
        refuse_foreign(identity, version.owner, str(version))
    going = [version.version for version in versions]
    uses = asset_uses.find(db, request.workspace, versions)
    for use in uses:
        refuse_foreign(identity, use.owner, f"{use.by}, which uses {use.asset},")
    _refuse_unfinished(uses)
    if uses and not request.force:
        raise _needed(uses)
    folders = {
        version.version: asset_uses.own_folder(db, version, going)
        for version in versions
        if version.noun == "data"
    }
    return _Plan(versions, uses, folders)


def _sizes(datastores: Datastores, plan: _Plan) -> dict[str, int]:
    """By version, the bytes of files that are removed with it."""
    return {
        version.version: asset_uses.size_bytes(
            datastores, version, plan.folders.get(version.version, "")
        )
        for version in plan.versions
    }


def _deletion(plan: _Plan, sizes: Mapping[str, int]) -> AssetDeletion:
    return AssetDeletion(
        tuple(
            DeletedVersion(version.name, version.version, sizes[version.version])
            for version in plan.versions
        ),
        tuple(dict.fromkeys(use.breaks for use in plan.uses)),
    )


def _versions(db: Database, request: DeletionRequest) -> list[AssetVersion]:
    """The versions that are asked for.

    Raises:
        NotFound: there is none.
        Conflict: the environment is curated.
    """
    workspace, name = request.workspace, request.name
    selected: Sequence[Any]
    if request.noun == "environment":
        environments.refuse_curated(name, "deleted", request.version)
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


def _delete_row(services: RecordServices, version: AssetVersion) -> None:
    db, workspace, name = services.db, version.workspace, version.name
    if version.noun == "model":
        models.delete_rows(db, services.clock, version.asset)
    elif version.noun == "environment":
        environments.delete(db, workspace, name, version.version)
    else:
        data.delete(db, workspace, name, version.version)


def _remove_files(services: FileServices, version: AssetVersion, plan: _Plan) -> None:
    """Remove what the version alone had, unless something began to name it since."""
    folder = plan.folders.get(version.version, "")
    if version.noun == "model":
        folder = models.top_folder(version.asset)
    if not folder:
        return
    before = {use.by for use in plan.uses}

    def unused(connection: Connection) -> list[StoredFolder]:
        inside = replace(services, db=services.db.joined(connection))
        if asset_uses.users_of_folder(inside.db, version.workspace, folder) - before:
            return []
        return [unregistered.in_default_store(services.datastores, version.workspace, folder)]

    unregistered.take_away(services, unused)
