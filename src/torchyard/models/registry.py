"""Registered names of models, and what all versions of one share.

Owns: descriptions, tags, aliases and renaming; stages, which move from version to version.
Leaves: making and deleting versions to actions.py.
Always: a name exists before its first version, and no version number is used twice.
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
from torchyard.workspaces import ownership

NO_STAGE = "None"
ARCHIVED = "Archived"
STAGES = (NO_STAGE, "Staging", "Production", ARCHIVED)


@dataclass(frozen=True)
class ModelVersions:
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
        InvalidInput: the name is not valid.
        Conflict: the name is taken.
    """
    check_name(name)
    now = clock.now()
    registered = Registered(workspace, name, now, now, description, dict(tags or {}))
    with db.write() as connection:
        if store.name_row(connection, workspace, name) is not None:
            raise Conflict(f"model `{name}` already exists")
        store.add_name(connection, registered)
    return registered


def ensure(connection: Connection, workspace: str, name: str, now: datetime) -> Registered:
    """The name's row, created unless it exists."""
    store.add_name(connection, Registered(workspace, name, now, now))
    registered = store.name_row(connection, workspace, name)
    assert registered is not None
    return registered


def get(db: Database, workspace: str, name: str) -> Registered:
    """
    Raises:
        NotFound: the name does not exist.
    """
    with db.read() as connection:
        return _existing(connection, workspace, name)


def get_with_versions(db: Database, workspace: str, name: str) -> ModelVersions:
    """The name with its versions that are not archived.

    Raises:
        NotFound: the name does not exist.
    """
    with db.read() as connection:
        registered = _existing(connection, workspace, name)
        models = store.versions.list_in(connection, workspace, name)
    return ModelVersions(registered, tuple(model for model in models if not model.archived))


def list_in(
    db: Database, workspace: str, names: Collection[str] | None = None
) -> Sequence[Registered]:
    """All names, or those of `names`, sorted; also those without a version."""
    with db.read() as connection:
        return store.names_in(connection, workspace, names)


def aliases_of(db: Database, model: Model) -> list[str]:
    """The aliases of this version, sorted."""
    registered = get(db, model.workspace, model.name)
    return sorted(alias for alias, number in registered.aliases.items() if number == model.version)


def all_versions(db: Database, workspace: str, *, archived: bool = False) -> Sequence[Model]:
    """The versions of all names, newest first; those that are archived only if asked for."""
    with db.read() as connection:
        models = store.versions.list_in(connection, workspace)
    return [model for model in models if archived or not model.archived]


def change(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    *,
    user: str,
    description: str | None = None,
    tags: Mapping[str, str | None] | None = None,
) -> Registered:
    """Change what is not None; a tag that is None is removed, the others are merged.

    Raises:
        NotFound: the name does not exist.
        Forbidden: it is another's.
    """
    with db.write() as connection:
        registered = _existing(connection, workspace, name)
        _refuse_foreign(connection, workspace, name, user)
        changed = replace(registered, updated_at=clock.now())
        if description is not None:
            changed = replace(changed, description=description)
        if tags:
            both = {**registered.tags, **tags}
            new_tags = {key: value for key, value in both.items() if value is not None}
            changed = replace(changed, tags=new_tags)
        _write(connection, changed)
    return changed


def rename(
    db: Database, clock: Clock, workspace: str, name: str, new: str, *, user: str
) -> Registered:
    """
    Raises:
        InvalidInput: `new` is not valid.
        NotFound: the name does not exist.
        Forbidden: it is another's.
        Conflict: the new name is taken.
    """
    check_name(new)
    with db.write() as connection:
        _existing(connection, workspace, name)
        _refuse_foreign(connection, workspace, name, user)
        if new != name and store.name_row(connection, workspace, new) is not None:
            raise Conflict(f"model `{new}` already exists")
        store.rename(connection, workspace, name, new, clock.now())
        return _existing(connection, workspace, new)


def set_alias(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    alias: str,
    version: int | None,
    *,
    user: str,
) -> None:
    """Point the alias to an existing version; None removes the alias.

    Raises:
        NotFound: the name or version does not exist.
        Forbidden: it is another's.
    """
    with db.write() as connection:
        registered = _existing(connection, workspace, name)
        _refuse_foreign(connection, workspace, name, user)
        aliases = {key: number for key, number in registered.aliases.items() if key != alias}
        if version is not None:
            if store.versions.get(connection, workspace, name, version) is None:
                raise NotFound(f"model `{name}` has no version `{version}`")
            aliases[alias] = version
        _write(connection, replace(registered, aliases=aliases, updated_at=clock.now()))


def remove_aliases_of(
    connection: Connection, workspace: str, name: str, version: int, now: datetime
) -> None:
    """Remove the aliases of a version that is deleted."""
    registered = _existing(connection, workspace, name)
    aliases = {alias: number for alias, number in registered.aliases.items() if number != version}
    _write(connection, replace(registered, aliases=aliases, updated_at=now))


def move(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    version: int,
    stage: str,
    archive_others: bool = False,
    *,
    user: str,
) -> Model:
    """Put a version into one of `STAGES`.

    Args:
        archive_others: move the other versions of that stage to Archived.

    Raises:
        NotFound: the version does not exist.
        Forbidden: it is another's.
    """
    now = clock.now()
    with db.write() as connection:
        model = store.versions.get(connection, workspace, name, version)
        if model is None:
            raise NotFound(f"model `{name}` has no version `{version}`")
        _refuse_foreign(connection, workspace, name, user)
        moved = {version: stage}
        if archive_others:
            for other in store.versions.list_in(connection, workspace, name):
                if other.version != version and other.stage == stage:
                    moved[other.version] = ARCHIVED
        for number, new in moved.items():
            other = store.versions.get(connection, workspace, name, number) or model
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


def newest_of_stages(models: Sequence[Model]) -> list[Model]:
    """The newest version of each stage.

    Args:
        models: newest first.
    """
    newest: dict[str, Model] = {}
    for model in models:
        newest.setdefault(model.stage or NO_STAGE, model)
    return list(newest.values())


def _existing(connection: Connection, workspace: str, name: str) -> Registered:
    registered = store.name_row(connection, workspace, name)
    if registered is None:
        raise NotFound(f"model `{name}` does not exist in workspace `{workspace}`")
    return registered


def _refuse_foreign(connection: Connection, workspace: str, name: str, user: str) -> None:
    """
    Raises:
        Forbidden: the name has versions, and the first is another's.
    """
    models = store.versions.list_in(connection, workspace, name)
    if models:
        subject = f"model `{name}`"
        ownership.refuse(
            connection, ownership.MODEL_NAME, workspace, user, models[-1].owner, subject
        )


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
