"""What can be done with components.

Owns: versions, finding the same component again, archiving.
Leaves: a document's grammar to documents.py, running one to who runs it.
Always: a version once given never changes but for what is said of it; anonymous components of the
same content are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.components import documents, store
from torchyard.components.types import Component
from torchyard.data import versions

LATEST = versions.LATEST
_NOUN = "component"


def register(
    db: Database,
    clock: Clock,
    workspace: str,
    document: Mapping[str, Any],
    owner: str,
    *,
    anonymous: bool = False,
) -> tuple[Component, bool]:
    """Give a component a version, the next whole number unless it asks for one.

    Returns it, and whether it is new: asked again with the same content it is the version there
    is, with the new words.

    Raises:
        InvalidSpec: the document is wrong.
        Conflict: the version it asks for exists with another content.
    """
    asked = documents.read(document)
    with db.write() as connection:
        known = store.list_in(connection, workspace, asked.name)
        there = next((one for one in known if one.version == asked.version), None)
        if there is None and anonymous:
            there = next((one for one in known if one.hash == asked.hash), None)
        if there is not None and there.hash != asked.hash:
            raise Conflict(
                f"component `{asked.name}` has a version `{asked.version}` already, with another "
                "content",
                "a version never changes: leave `version` out to get the next one",
                code="version_exists",
                at=["version"],
            )
        if there is not None:
            said = replace(
                there,
                description=asked.description,
                tags=asked.tags,
                properties=asked.properties,
            )
            store.describe(connection, said)
            return said, False
        made = Component(
            workspace=workspace,
            name=asked.name,
            version=asked.version or versions.next_of(one.version for one in known),
            type=asked.type,
            definition=asked.definition,
            hash=asked.hash,
            created_at=clock.now(),
            owner=owner,
            description=asked.description,
            tags=asked.tags,
            properties=asked.properties,
            anonymous=anonymous,
        )
        store.add(connection, made)
    return made, True


def get(db: Database, workspace: str, name: str, version: str = LATEST) -> Component:
    """The newest that is not archived for `latest`.

    Raises:
        NotFound: with the nearest name, or the versions there are.
    """
    return versions.pick(_NOUN, name, version, versions_of(db, workspace, name))


def versions_of(db: Database, workspace: str, name: str) -> list[Component]:
    """All versions of a name, newest first.

    Raises:
        NotFound: there is none, with the nearest name.
    """
    with db.read() as connection:
        known = store.list_in(connection, workspace, name)
        names = [] if known else [one.name for one in store.list_in(connection, workspace)]
    if not known:
        raise versions.no_such_name(_NOUN, workspace, name, names)
    return known


def list_in(
    db: Database, workspace: str, name: str = "", archived: bool | None = False
) -> list[Component]:
    """The newest of each name, or all versions of one; `archived` None takes both kinds."""
    with db.read() as connection:
        found = store.list_in(connection, workspace, name)
    found = [one for one in found if archived is None or one.archived is archived]
    return found if name else versions.newest_of_each(found)


def list_versions(db: Database, workspace: str) -> list[Component]:
    """All versions of all names but anonymous ones, archived ones too; newest first."""
    with db.read() as connection:
        return store.list_in(connection, workspace)


def archive(
    db: Database, workspace: str, name: str, version: str = "", archived: bool = True
) -> Component:
    """Hide a version from lists, or all versions; `archived` False shows them again.

    Raises:
        NotFound: there is none.
    """
    get(db, workspace, name, version or LATEST)
    with db.write() as connection:
        store.set_archived(connection, workspace, name, version, archived)
    return get(db, workspace, name, version or LATEST)


def forget_all(connection: Connection, workspace: str) -> None:
    """Every component of a workspace that is going."""
    store.forget_all(connection, workspace)
