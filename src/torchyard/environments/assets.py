"""A workspace's own environments: names with versions.

Owns: an environment's document, versions, archiving, the names that are not to be had.
Leaves: what a definition means to definition.py, building to actions.py.
Always: a version once given never changes but for what is said of it; names that begin with
`AzureML` or `Microsoft` are those of curated environments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec
from torchyard.data import documents, versions
from torchyard.environments import asset_store
from torchyard.environments.names import catalogue, curated_environments
from torchyard.environments.types import EnvironmentAsset

_RESERVED = ("azureml", "microsoft")
_SAID = ("description", "tags", "properties")
ANONYMOUS = "CliV2AnonymousEnvironment"
"""Below this name Azure ML's clients keep the environments of jobs that have no name of their own;
lists leave it out.
"""


@dataclass(frozen=True)
class Request:
    """An environment's document, read; `definition` is all that decides its content."""

    name: str
    definition: dict[str, Any]
    version: str = ""
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)


def read_document(document: Mapping[str, Any]) -> Request:
    """
    Raises:
        InvalidSpec: what is wrong with its name, version and words, and where.
    """
    name = documents.name_of(document, "an environment", "environment")
    refuse_reserved(name)
    return Request(
        name=name,
        version=documents.version_of(document),
        definition={
            key: value
            for key, value in document.items()
            if key not in ("$schema", "name", "version", *_SAID)
        },
        description=str(document.get("description") or ""),
        tags=fields.texts(document, "tags"),
        properties=fields.texts(document, "properties"),
    )


def refuse_reserved(name: str) -> None:
    """
    Raises:
        InvalidSpec: the name is a curated environment's, or could be one's.
    """
    if name.lower().startswith(_RESERVED):
        raise InvalidSpec(
            f"`{name}` begins with `{name[:7] if name.lower().startswith('azureml') else name[:9]}`"
            ", which is reserved for curated environments",
            "choose another name",
            code="reserved_name",
            at=["name"],
        )
    if curated_environments.named(catalogue.bare(name)) is not None:
        raise InvalidSpec(
            f"`{name}` is a curated environment's name",
            "choose another name; to start from it, `yard environment clone`",
            code="reserved_name",
            at=["name"],
        )


def register(
    db: Database,
    clock: Clock,
    workspace: str,
    asked: Request,
    owner: str,
    check: Callable[[Mapping[str, Any]], Any],
) -> EnvironmentAsset:
    """Write a version down, the next whole number unless it asks for one.

    Asked again with the same content it is the version there is, with the new words.

    Args:
        check: raises when the definition can't be honoured.

    Raises:
        Conflict: the version it asks for exists with another content.
        InvalidSpec: the definition can't be honoured.
    """
    check(asked.definition)
    with db.write() as connection:
        known = asset_store.list_in(connection, workspace, asked.name)
        taken = {asset.version: asset for asset in known}
        there = taken.get(asked.version)
        if there is not None and there.definition != asked.definition:
            raise Conflict(
                f"environment `{asked.name}` has a version `{asked.version}` already, with "
                "another content",
                "a version never changes: leave `version` out to get the next one",
                code="version_exists",
                at=["version"],
            )
        asset = EnvironmentAsset(
            workspace=workspace,
            name=asked.name,
            version=asked.version or versions.next_of(taken),
            definition=asked.definition,
            created_at=there.created_at if there else clock.now(),
            owner=there.owner if there else owner,
            description=asked.description,
            tags=asked.tags,
            properties=asked.properties,
            archived=there.archived if there else False,
        )
        if there is None:
            asset_store.add(connection, asset)
        else:
            asset_store.describe(connection, asset)
    return asset


def get(
    db: Database, workspace: str, name: str, version: str = versions.LATEST
) -> EnvironmentAsset:
    """The newest that is not archived for `latest`.

    Raises:
        NotFound: with the nearest name, or the versions there are.
    """
    with db.read() as connection:
        known = asset_store.list_in(connection, workspace, name)
        others = [] if known else [one.name for one in asset_store.list_in(connection, workspace)]
    if not known:
        others += [one.name for one in curated_environments.every()]
        raise versions.no_such_name("environment", workspace, name, others)
    return versions.pick("environment", name, version, known)


def list_in(
    db: Database, workspace: str, name: str = "", archived: bool | None = False
) -> list[EnvironmentAsset]:
    """The newest of each name, or all versions of one; `archived` None takes both kinds."""
    found = list_versions(db, workspace, name)
    found = [asset for asset in found if archived is None or asset.archived is archived]
    return found if name else versions.newest_of_each(found)


def list_versions(db: Database, workspace: str, name: str = "") -> list[EnvironmentAsset]:
    """All versions of all names or of one, archived ones too; newest first."""
    with db.read() as connection:
        found = asset_store.list_in(connection, workspace, name)
    return [asset for asset in found if name or asset.name != ANONYMOUS]


def forget_all(connection: Connection, workspace: str) -> None:
    """Every environment of a workspace that is going."""
    asset_store.forget_all(connection, workspace)


def owned(db: Database, workspace: str) -> catalogue.Owned:
    """The versions of a name in this workspace, for finding references."""

    def versions_of(name: str) -> list[EnvironmentAsset]:
        with db.read() as connection:
            return asset_store.list_in(connection, workspace, name)

    return versions_of


def archive(
    db: Database, workspace: str, name: str, version: str = "", archived: bool = True
) -> EnvironmentAsset:
    """Hide a version from lists, or all versions; `archived` False shows them again.

    Raises:
        NotFound: there is none.
    """
    if curated_environments.named(catalogue.bare(name)) is not None:
        raise Conflict(
            f"environment `{name}` is curated and can't be archived",
            "only a workspace's own environments can",
        )
    get(db, workspace, name, version or versions.LATEST)
    with db.write() as connection:
        asset_store.set_archived(connection, workspace, name, version, archived)
    return get(db, workspace, name, version or versions.LATEST)
