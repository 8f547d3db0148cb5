"""A workspace's own environments: names with versions.

Owns: versions, archiving.
Leaves: the keys of a document to documents.py, what a definition means to definition.py, building
to build/builds.py.
Always: of an existing version only description, tags and properties change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torchyard.assets import deleted_versions, versions
from torchyard.assets.versioned_assets import VersionedAssets
from torchyard.base import refs
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.documents.models import keys
from torchyard.base.errors import Conflict
from torchyard.data.documents import AssetFile
from torchyard.environments import store
from torchyard.environments.documents import EnvironmentFile
from torchyard.environments.names import catalogue, curated_environments
from torchyard.environments.types import WHEELS, WHEELS_BYTES, EnvironmentAsset
from torchyard.workspaces import ownership

ANONYMOUS = store.ANONYMOUS

_assets = VersionedAssets(
    "environment",
    store.asset_versions,
    ownership.Assets(),
    lambda: [curated.name for curated in curated_environments.every()],
)
get = _assets.get
list_in = _assets.list_in
list_versions = _assets.list_versions
delete_all = _assets.delete_all


@dataclass(frozen=True)
class EnvironmentRequest:
    """An environment's document, read; `definition` holds the keys that decide its content."""

    name: str
    definition: dict[str, Any]
    version: str = ""
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)


def read_document(document: Mapping[str, Any]) -> EnvironmentRequest:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    file = EnvironmentFile.read(document)
    described = keys(AssetFile)
    return EnvironmentRequest(
        name=file.name,
        version=file.version,
        definition={
            key: value
            for key, value in document.items()
            if key not in described and value is not None
        },
        description=file.description,
        tags=file.tags,
        properties=file.properties,
    )


def register(
    db: Database,
    clock: Clock,
    workspace: str,
    request: EnvironmentRequest,
    owner: str,
    check: Callable[[Mapping[str, Any]], Any],
) -> EnvironmentAsset:
    """Add a version, the next whole number unless the document names one.

    The same content again is the existing version, with the new description, tags and properties.

    Args:
        check: raises when the definition can't be honoured.

    Raises:
        Conflict: the version that it names exists with another content.
        Forbidden: the name, or the version, is another's.
        InvalidSpec: the definition can't be honoured.
    """
    check(request.definition)
    with db.write() as connection:
        listed = store.asset_versions.list_in(connection, workspace, request.name)
        existing = {asset.version: asset for asset in listed}
        old = existing.get(request.version)
        if old is not None and old.definition != request.definition:
            raise versions.other_content("environment", request.name, request.version)
        deleted = deleted_versions.of_name(connection, workspace, "environment", request.name)
        version = request.version or versions.next_of({*existing, *deleted})
        if version in deleted:
            raise deleted_versions.used_again("environment", request.name, version)
        asset = EnvironmentAsset(
            workspace=workspace,
            name=request.name,
            version=version,
            definition=request.definition,
            created_at=old.created_at if old else clock.now(),
            owner=old.owner if old else owner,
            description=request.description,
            tags=request.tags,
            properties=request.properties,
            archived=old.archived if old else False,
        )
        if old is None:
            if request.name != ANONYMOUS:
                _assets.refuse_adding(connection, listed, owner)
            store.asset_versions.add(connection, asset)
        elif asset != old:
            if request.name != ANONYMOUS:
                _assets.refuse_changing(connection, old, owner)
            store.asset_versions.describe(connection, asset)
    return asset


def refuse_adding(db: Database, workspace: str, name: str, user: str) -> None:
    """
    Raises:
        Forbidden: the name is another's, and the person may add no version to it.
    """
    with db.read() as connection:
        listed = store.asset_versions.list_in(connection, workspace, name)
        _assets.refuse_adding(connection, listed, user)


def owned(db: Database, workspace: str) -> catalogue.Owned:
    """The versions of a name in this workspace, for finding references."""

    def versions_of(name: str) -> list[EnvironmentAsset]:
        with db.read() as connection:
            return store.asset_versions.list_in(connection, workspace, name)

    return versions_of


def archive(
    db: Database,
    workspace: str,
    name: str,
    version: str = "",
    archived: bool = True,
    *,
    user: str,
) -> EnvironmentAsset:
    """Hide a version from lists, or all versions; `archived` False shows them again.

    Raises:
        NotFound: there is none.
        Forbidden: one of them is another's.
    """
    refuse_curated(name, "archived", version)
    return _assets.archive(db, workspace, name, version, archived, user=user)


def forget_wheels(db: Database, workspace: str, name: str, user: str) -> list[EnvironmentAsset]:
    """Let `yard gc` remove the wheels that are kept for archived versions; those versions, as they
    were.

    Raises:
        NotFound: no environment of the workspace has the name.
        Forbidden: one of them is another's.
    """
    get(db, workspace, name, versions.LATEST)
    with db.write() as connection:
        listed = store.asset_versions.list_in(connection, workspace, name)
        _assets.refuse_adding(connection, listed, user)
        archived = [asset for asset in listed if asset.archived and WHEELS in asset.properties]
        for asset in archived:
            _assets.refuse_changing(connection, asset, user)
            rest = {
                key: value
                for key, value in asset.properties.items()
                if key not in (WHEELS, WHEELS_BYTES)
            }
            store.asset_versions.describe(connection, replace(asset, properties=rest))
    return archived


def delete(db: Database, workspace: str, name: str, version: str) -> None:
    """Delete a version; its number is not used again.

    What was built for it stays until `yard gc` removes it.

    Raises:
        NotFound: the version does not exist.
        Conflict: it is curated.
    """
    refuse_curated(name, "deleted", version)
    exact = get(db, workspace, name, version).version
    with db.write() as connection:
        store.asset_versions.delete(connection, workspace, name, exact)
        if name != ANONYMOUS:  # its versions are hashes of the content
            deleted_versions.add(connection, workspace, "environment", name, exact)


def refuse_deleted(db: Database, workspace: str, reference: str) -> None:
    """
    Args:
        reference: what a job's environment was resolved to, with its version.

    Raises:
        NotFound: it was deleted since.
    """
    ref = refs.parse(reference)
    curated = curated_environments.find_by_name(catalogue.bare(ref.name))
    if curated is None or ref.version not in ("", curated.version):
        get(db, workspace, ref.name, ref.version or versions.LATEST)


def refuse_curated(name: str, participle: str, version: str = "") -> None:
    """
    Raises:
        Conflict: the environment is curated, so it can't be archived or deleted; a release of it
            can.
    """
    curated = curated_environments.find_by_name(catalogue.bare(name))
    if curated is not None and version in ("", curated.version):
        raise Conflict(
            f"environment `{name}` is curated and can't be {participle}",
            "only a workspace's own environments can",
        )
