"""Reading and archiving the versions of one kind of asset.

Owns: finding a version, lists with and without archived ones, archiving.
Leaves: making a version, and what it holds, to each package's actions.
Always: archiving hides a version from lists and takes nothing away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol

from sqlalchemy import Connection

from torchyard.assets import versions
from torchyard.assets.version_table import T, VersionTable
from torchyard.assets.versions import LATEST
from torchyard.base.db import Database


class Ownership(Protocol):
    """Refuses who may not do something to another's; `workspaces/ownership.py` has the rules."""

    def refuse_adding(
        self, connection: Connection, workspace: str, user: str, owner: str, subject: str
    ) -> None: ...

    def refuse_changing(
        self, connection: Connection, workspace: str, user: str, owner: str, subject: str
    ) -> None: ...


class VersionedAssets(Generic[T]):
    """
    Args:
        noun: what messages call one, as in `yard <noun> list`.
        other_names: names that may be meant as well, when there is no such asset.
    """

    def __init__(
        self,
        noun: str,
        table: VersionTable[T],
        ownership: Ownership,
        other_names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._noun = noun
        self._table = table
        self._ownership = ownership
        self._other_names = other_names

    def get(self, db: Database, workspace: str, name: str, version: str = LATEST) -> T:
        """
        Raises:
            NotFound: with the nearest name, or the versions there are.
        """
        return versions.pick(self._noun, name, version, self.versions_of(db, workspace, name))

    def versions_of(self, db: Database, workspace: str, name: str) -> list[T]:
        """All versions of a name, newest first.

        Raises:
            NotFound: there is none, with the nearest name.
        """
        with db.read() as connection:
            assets = self._table.list_in(connection, workspace, name)
            listed = [] if assets else self._table.list_in(connection, workspace)
        if not assets:
            names = [*(asset.name for asset in listed), *self._other_names()]
            raise versions.no_such_name(self._noun, workspace, name, names)
        return assets

    def list_in(
        self, db: Database, workspace: str, name: str = "", archived: bool | None = False
    ) -> list[T]:
        """The newest of each name, or all versions of one.

        Args:
            archived: whether to list archived ones instead of the others; None lists both.
        """
        assets = [
            asset
            for asset in self.list_versions(db, workspace, name)
            if archived is None or asset.archived is archived
        ]
        return assets if name else versions.newest_of_each(assets)

    def list_versions(self, db: Database, workspace: str, name: str = "") -> list[T]:
        """All versions of all names or of one, archived ones too; newest first."""
        with db.read() as connection:
            return self._table.list_in(connection, workspace, name)

    def refuse_adding(self, connection: Connection, existing: Sequence[T], user: str) -> None:
        """
        Args:
            existing: all versions of the name, newest first; whose the first is, the name is.

        Raises:
            Forbidden: the name is another's.
        """
        if existing:
            first = existing[-1]
            subject = f"{self._noun} `{first.name}`"
            self._ownership.refuse_adding(connection, first.workspace, user, first.owner, subject)

    def refuse_changing(self, connection: Connection, asset: T, user: str) -> None:
        """
        Raises:
            Forbidden: the version is another's.
        """
        subject = f"{self._noun} `{asset.name}:{asset.version}`"
        self._ownership.refuse_changing(connection, asset.workspace, user, asset.owner, subject)

    def archive(
        self,
        db: Database,
        workspace: str,
        name: str,
        version: str = "",
        archived: bool = True,
        *,
        user: str,
    ) -> T:
        """Hide a version, or all of a name, from lists; `archived` False shows them again.

        Raises:
            NotFound: there is none.
            Forbidden: one of them is another's.
        """
        asset = self.get(db, workspace, name, version or LATEST)
        number = asset.version if version else None
        with db.write() as connection:
            versions_there = self._table.list_in(connection, workspace, name)
            for each in versions_there if number is None else [asset]:
                self.refuse_changing(connection, each, user)
            self._table.change(connection, workspace, name, number, archived=archived)
        return self.get(db, workspace, name, str(asset.version) if version else LATEST)

    def delete_all(self, connection: Connection, workspace: str) -> None:
        """Delete the assets of a workspace that is being deleted."""
        self._table.delete(connection, workspace)
