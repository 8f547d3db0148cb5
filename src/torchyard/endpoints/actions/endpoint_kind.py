"""The verbs that endpoints have, of whichever kind: online or batch.

Owns: creating, changing, finding, listing and deleting them, as far as kinds do the same; who may
change them.
Leaves: the columns that a kind has beside the file, and how its endpoints end, to the endpoints.py
of each kind; deployments to deployment_kind.py.
Always: an endpoint is changed by its owner or by a contributor of the workspace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from torchyard.assets.named_table import NamedTable
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound, did_you_mean
from torchyard.base.fields import unknown_key
from torchyard.endpoints.records.types import Stored
from torchyard.jobs.services import RecordServices
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

_CHANGEABLE = (
    "tags", "properties", "description", "auth_mode", "identity", "public_network_access",
)  # fmt: skip
_MOST_ENDPOINTS = 1000

E = TypeVar("E", bound=Stored)


class EndpointKind(ABC, Generic[E]):
    """What the verbs need to know of a kind.

    `word` is its part of the commands of `yard`, `noun` what messages call an endpoint.
    `in_columns` are the keys of the file that have columns of their own. `signal` wakes who works
    on changes.
    """

    word: str
    noun: str
    rule: ownership.Rule
    in_columns: tuple[str, ...]
    signal: str = ""
    make: Callable[..., E]
    rows: NamedTable[E]
    deployment_rows: NamedTable[Any]
    read: Callable[[Any], Any]

    @abstractmethod
    def columns(self, spec: Any, old: E | None, names: list[str]) -> dict[str, Any]:
        """The values of the kind's own columns.

        Args:
            old: the endpoint that is changed; None for a new one.
            names: of its deployments.

        Raises:
            InvalidSpec: the file names a deployment that does not exist.
            Conflict: the endpoint can't be changed now.
        """

    @abstractmethod
    def remove(self, connection: Connection, endpoint: E, now: datetime) -> E:
        """Delete it with its deployments, or begin to; return it as it is then."""

    def give_owner(self, connection: Connection, endpoint: E) -> None:
        """Do what an endpoint needs that is new or was taken over."""

    def create(
        self,
        services: RecordServices,
        workspace: str,
        document: Mapping[str, Any],
        identity: Identity,
    ) -> tuple[E, bool]:
        """Create an endpoint, or replace the file of one. Return it, and whether it is new.

        What stands in columns stays as it is where the file says nothing of it.

        Raises:
            InvalidSpec: what is wrong, and where.
            Forbidden: it is somebody else's.
            Conflict: it is being deleted.
        """
        document, takes_over = ownership.without_take_over(document)
        name = self.read(document).name
        with services.db.write() as connection:
            old = self.rows.get(connection, workspace, name)
            endpoint = self._written(
                services, connection, workspace, old, document, identity, takes_over
            )
        self.notify(services)
        return endpoint, old is None

    def update(
        self,
        services: RecordServices,
        workspace: str,
        name: str,
        changes: Mapping[str, Any],
        identity: Identity,
    ) -> E:
        """Change single keys: those in columns, tags, description and the like.

        Raises:
            InvalidSpec: what is wrong, and where.
            Forbidden: it is somebody else's.
        """
        changes, takes_over = ownership.without_take_over(changes)
        changeable = (*self.in_columns, *_CHANGEABLE)
        for key in changes:
            if key not in changeable:
                raise unknown_key(str(key), changeable)
        with services.db.write() as connection:
            old = self.find(connection, workspace, name)
            document = {**old.document, **changes}
            endpoint = self._written(
                services, connection, workspace, old, document, identity, takes_over
            )
        self.notify(services)
        return endpoint

    def get(self, db: Database, workspace: str, name: str) -> E:
        """
        Raises:
            NotFound: with the nearest name there is.
        """
        with db.read() as connection:
            return self.find(connection, workspace, name)

    def named(self, db: Database, workspace: str, name: str) -> E | None:
        with db.read() as connection:
            return self.rows.get(connection, workspace, name)

    def list_in(self, db: Database, workspace: str) -> list[E]:
        with db.read() as connection:
            return self.rows.list_in(connection, workspace)

    def delete(self, services: RecordServices, workspace: str, name: str, identity: Identity) -> E:
        """Delete an endpoint with its deployments.

        Raises:
            Forbidden: it is somebody else's.
        """
        now = services.clock.now()
        with services.db.write() as connection:
            endpoint = self.find(connection, workspace, name)
            self.refuse_foreign(services.db, endpoint, identity)
            deleted = self.remove(connection, endpoint, now)
        self.notify(services)
        return deleted

    def find(self, connection: Connection, workspace: str, name: str) -> E:
        """
        Raises:
            NotFound: with the nearest name there is.
        """
        endpoint = self.rows.get(connection, workspace, name)
        if endpoint is not None:
            return endpoint
        raise NotFound(
            f"{self.noun} `{name[:80]}` does not exist in workspace `{workspace}`",
            did_you_mean(
                name,
                [each.name for each in self.rows.list_in(connection, workspace)],
                f"list them with `yard {self.word}-endpoint list`",
            ),
            code="endpoint_not_found",
        )

    def refuse_foreign(self, db: Database, endpoint: E, identity: Identity) -> None:
        """
        Raises:
            Forbidden: it is somebody else's.
        """
        subject = f"{self.noun} `{endpoint.name}`"
        with db.read() as connection:
            ownership.refuse(
                connection, self.rule, endpoint.workspace, identity.user, endpoint.owner, subject
            )

    def no_deployment(
        self, endpoint: str, name: str, names: Sequence[str], at: tuple[str, ...]
    ) -> InvalidSpec:
        """That a file names a deployment which does not exist."""
        there = ", ".join(f"`{each}`" for each in names) or "none yet"
        return InvalidSpec(
            f"{self.noun} `{endpoint}` has no deployment `{name[:80]}`",
            did_you_mean(name, names, f"its deployments: {there}"),
            code="deployment_not_found",
            at=at,
        )

    def _written(
        self,
        services: RecordServices,
        connection: Connection,
        workspace: str,
        old: E | None,
        document: Mapping[str, Any],
        identity: Identity,
        takes_over: bool,
    ) -> E:
        """The endpoint with this file, stored; a new one where `old` is None."""
        owner, names = identity.user, []
        if old is not None:
            self.refuse_foreign(services.db, old, identity)
            owner = identity.user if takes_over else old.owner
            document = {**document, "name": old.name}
            there = self.deployment_rows.list_in(connection, workspace, old.name)
            names = [each.name for each in there]
        elif len(self.rows.list_in(connection, workspace)) >= _MOST_ENDPOINTS:
            raise Conflict(
                f"workspace `{workspace}` has {_MOST_ENDPOINTS} {self.noun}s",
                "delete those that nobody uses",
            )
        spec, now = self.read(document), services.clock.now()
        left_out = (*self.in_columns, "$schema")
        values: dict[str, Any] = {
            "owner": owner,
            "document": {key: value for key, value in document.items() if key not in left_out},
            "changed_at": now,
            **self.columns(spec, old, names),
        }
        if old is not None:
            endpoint = replace(old, **values)
            self.rows.change(connection, old, **values)
        else:
            endpoint = self.make(workspace=workspace, name=spec.name, created_at=now, **values)
            self.rows.add(connection, endpoint)
        if old is None or owner != old.owner:
            self.give_owner(connection, endpoint)
        return endpoint

    def notify(self, services: RecordServices) -> None:
        if self.signal:
            services.signals.notify(self.signal)
