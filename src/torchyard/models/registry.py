"""Names of models: what is said of all versions of one.

Owns: descriptions, tags, aliases and renaming; stages, for they are moved among versions.
Leaves: making and deleting versions to actions.py.
Always: a name is there before its first version, and a number is given once as long as it lives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, NotFound
from torchyard.models import store
from torchyard.models.documents import check_name
from torchyard.models.types import Model, Registered

NO_STAGE = "None"
ARCHIVED = "Archived"
STAGES = (NO_STAGE, "Staging", "Production", ARCHIVED)


@dataclass(frozen=True)
class Whole:
    """A name and its versions, newest first."""

    registered: Registered
    versions: tuple[Model, ...]


def create(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    description: str = "",
    tags: Mapping[str, str] | None = None,
) -> Registered:
    """
    Raises:
        InvalidInput: it is no name.
        Conflict: the name is taken.
    """
    check_name(name)
    now = clock.now()
    made = Registered(workspace, name, now, now, description, dict(tags or {}))
    with db.write() as connection:
        if store.name_row(connection, workspace, name) is not None:
            raise Conflict(f"model `{name}` exists already")
        store.add_name(connection, made)
    return made


def ensure(connection: Connection, workspace: str, name: str, now: datetime) -> Registered:
    """The name's row, made when it is not there."""
    store.add_name(connection, Registered(workspace, name, now, now))
    found = store.name_row(connection, workspace, name)
    assert found is not None
    return found


def get(db: Database, workspace: str, name: str) -> Registered:
    """
    Raises:
        NotFound: the name does not exist.
    """
    with db.read() as connection:
        return _there(connection, workspace, name)


def whole(db: Database, workspace: str, name: str) -> Whole:
    """The name with its versions that are not archived.

    Raises:
        NotFound: the name does not exist.
    """
    with db.read() as connection:
        found = _there(connection, workspace, name)
        known = store.versions.list_in(connection, workspace, name)
    return Whole(found, tuple(model for model in known if not model.archived))


def list_in(
    db: Database, workspace: str, names: Collection[str] | None = None
) -> Sequence[Registered]:
    """All names, or those of `names`, sorted; also those that have no version."""
    with db.read() as connection:
        return store.names_in(connection, workspace, names)


def aliases_of(db: Database, model: Model) -> list[str]:
    """The names that mean this version, sorted."""
    found = get(db, model.workspace, model.name)
    return sorted(alias for alias, number in found.aliases.items() if number == model.version)


def all_versions(db: Database, workspace: str) -> Sequence[Model]:
    """Newest first, archived ones left out."""
    with db.read() as connection:
        return [
            model for model in store.versions.list_in(connection, workspace) if not model.archived
        ]


def change(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    *,
    description: str | None = None,
    tags: Mapping[str, str | None] | None = None,
) -> Registered:
    """Change what is not None; a tag that is None goes, the others are merged.

    Raises:
        NotFound: the name does not exist.
    """
    with db.write() as connection:
        found = _there(connection, workspace, name)
        changed = replace(found, updated_at=clock.now())
        if description is not None:
            changed = replace(changed, description=description)
        if tags:
            both = {**found.tags, **tags}
            kept = {key: value for key, value in both.items() if value is not None}
            changed = replace(changed, tags=kept)
        _write(connection, changed)
    return changed


def rename(db: Database, clock: Clock, workspace: str, name: str, new: str) -> Registered:
    """
    Raises:
        InvalidInput: `new` is no name.
        NotFound: the name does not exist.
        Conflict: the new name is taken.
    """
    check_name(new)
    with db.write() as connection:
        _there(connection, workspace, name)
        if new != name and store.name_row(connection, workspace, new) is not None:
            raise Conflict(f"model `{new}` exists already")
        store.rename(connection, workspace, name, new, clock.now())
        return _there(connection, workspace, new)


def set_alias(
    db: Database, clock: Clock, workspace: str, name: str, alias: str, version: int | None
) -> None:
    """Let the alias mean a version that exists; None takes the alias away.

    Raises:
        NotFound: the name or version does not exist.
    """
    with db.write() as connection:
        found = _there(connection, workspace, name)
        aliases = {key: number for key, number in found.aliases.items() if key != alias}
        if version is not None:
            if store.versions.get(connection, workspace, name, version) is None:
                raise NotFound(f"model `{name}` has no version `{version}`")
            aliases[alias] = version
        _write(connection, replace(found, aliases=aliases, updated_at=clock.now()))


def forget_version(
    connection: Connection, workspace: str, name: str, version: int, now: datetime
) -> None:
    """Take away the aliases of a version that is deleted."""
    found = _there(connection, workspace, name)
    aliases = {alias: number for alias, number in found.aliases.items() if number != version}
    _write(connection, replace(found, aliases=aliases, updated_at=now))


def move(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    version: int,
    stage: str,
    archive_others: bool = False,
) -> Model:
    """Put a version into one of `STAGES`; the others that are in it may go to Archived.

    Raises:
        NotFound: the version does not exist.
    """
    now = clock.now()
    with db.write() as connection:
        found = store.versions.get(connection, workspace, name, version)
        if found is None:
            raise NotFound(f"model `{name}` has no version `{version}`")
        moved = {version: stage}
        if archive_others:
            for other in store.versions.list_in(connection, workspace, name):
                if other.version != version and other.stage == stage:
                    moved[other.version] = ARCHIVED
        for number, new in moved.items():
            other = store.versions.get(connection, workspace, name, number) or found
            properties = {key: text for key, text in other.properties.items() if key != "stage"}
            if new != NO_STAGE:
                properties["stage"] = new
            store.versions.change(
                connection, workspace, name, number, properties=properties, updated_at=now
            )
        store.change_name(connection, workspace, name, updated_at=now)
        changed = store.versions.get(connection, workspace, name, version)
    assert changed is not None
    return changed


def newest_of_stages(known: Sequence[Model]) -> list[Model]:
    """Of versions, newest first, the first of each stage."""
    newest: dict[str, Model] = {}
    for model in known:
        newest.setdefault(model.stage or NO_STAGE, model)
    return list(newest.values())


def _there(connection: Connection, workspace: str, name: str) -> Registered:
    found = store.name_row(connection, workspace, name)
    if found is None:
        raise NotFound(f"model `{name}` does not exist in workspace `{workspace}`")
    return found


def _write(connection: Connection, changed: Registered) -> None:
    store.change_name(
        connection,
        changed.workspace,
        changed.name,
        description=changed.description,
        tags=changed.tags,
        aliases=changed.aliases,
        updated_at=changed.updated_at,
    )
