"""The verbs that deployments of endpoints have, of whichever kind: online or batch.

Owns: creating, changing, finding, listing and deleting them, as far as kinds do the same; who may
change what runs.
Leaves: what a deployment needs before it is accepted, its row, and how it ends, to the
deployments.py of each kind.
Always: what runs has the account of the person who wrote it, or took it over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection

from torchyard.assets.named_table import NamedTable
from torchyard.base.db import Database
from torchyard.base.documents import models
from torchyard.base.errors import Conflict, InvalidSpec, NotFound, did_you_mean
from torchyard.endpoints.actions.deployed_models import Pinned
from torchyard.endpoints.actions.endpoint_kind import E, EndpointKind
from torchyard.endpoints.records.types import StoredDeployment
from torchyard.endpoints.spec.changes import changed, changes_what_runs
from torchyard.endpoints.spec.deployment_spec import DeploymentFile
from torchyard.jobs.services import RecordServices, Services
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

D = TypeVar("D", bound=StoredDeployment)


@dataclass(frozen=True)
class Accepted(Generic[D]):
    """A deployment as it is kept; `notices` say what has no effect, or another than in Azure."""

    deployment: D
    is_new: bool
    notices: tuple[str, ...]


class DeploymentKind(ABC, Generic[E, D]):
    """What the verbs need to know of a kind.

    `rule` is that of taking over what runs. An endpoint has up to `limit` deployments; `full_hint`
    says which ones to delete. `outside` are the fields of a spec that what runs does not know.
    """

    endpoints: EndpointKind[E]
    rule: ownership.Rule
    limit: int
    full_hint: str
    outside: tuple[str, ...]
    file: type[DeploymentFile]
    make: Callable[..., D]
    rows: NamedTable[D]
    read: Callable[[Any], Any]

    @abstractmethod
    def prepare(
        self,
        services: Services,
        endpoint: E,
        document: Mapping[str, Any],
        spec: Any,
        identity: Identity,
        takes_over: bool,
    ) -> Pinned:
        """Find what the file names, before the transaction that stores it.

        Raises:
            InvalidSpec: something is not there, or does not go together.
        """

    @abstractmethod
    def remove(self, connection: Connection, endpoint: E, deployment: D, now: datetime) -> D:
        """Delete it, or begin to; return it as it is then.

        Raises:
            Conflict: the endpoint needs it.
        """

    def added(self, connection: Connection, endpoint: E, deployment: D) -> None:
        """Do what follows from a new one."""

    def change(self, connection: Connection, old: D, values: dict[str, Any]) -> D:
        """Store another file of it.

        Raises:
            Conflict: it can't be changed now.
        """
        self.rows.change(connection, old, **values)
        return replace(old, **values)

    def endpoint_to_change(self, connection: Connection, workspace: str, name: str) -> E:
        return self.endpoints.find(connection, workspace, name)

    def files_in_use(self, deployment: D) -> Sequence[Mapping[str, Any]]:
        """The files of it whose models something runs, or will."""
        return (deployment.document,)

    def what_runs(self, document: Mapping[str, Any]) -> Any:
        """The spec of a file, in which fields that are not `outside` say what runs."""
        return self.read(document)

    def create(
        self,
        services: Services,
        workspace: str,
        endpoint_name: str,
        document: Mapping[str, Any],
        identity: Identity,
    ) -> Accepted[D]:
        """Create a deployment, or replace the file of one.

        Raises:
            InvalidSpec: what is wrong, and where.
            NotFound: the endpoint does not exist.
            Forbidden: the endpoint is somebody else's, or the deployment is and what it runs
                changes.
            Conflict: one of them is being deleted.
        """
        document, takes_over = ownership.without_take_over(document)
        spec = self.read(document)
        endpoint = self.endpoints.get(services.db, workspace, endpoint_name)
        if spec.endpoint_name.lower() != endpoint.name.lower():
            raise InvalidSpec(
                f"the document's endpoint is `{spec.endpoint_name}`, but the URL says "
                f"`{endpoint.name}`",
                "leave `endpoint_name` out of the document",
                at=("endpoint_name",),
            )
        self.endpoints.refuse_foreign(services.db, endpoint, identity)
        pinned = self.prepare(services, endpoint, document, spec, identity, takes_over)
        now = services.clock.now()
        with services.db.write() as connection:
            endpoint = self.endpoint_to_change(connection, workspace, endpoint.name)
            old = self.rows.get(connection, workspace, endpoint.name, spec.name)
            if old is None:
                there = self.rows.list_in(connection, workspace, endpoint.name)
                if len(there) >= self.limit:
                    raise Conflict(
                        f"{self.endpoints.noun} `{endpoint.name}` has {self.limit} deployments",
                        self.full_hint,
                    )
                made = self.make(
                    workspace=workspace,
                    endpoint=endpoint.name,
                    name=spec.name,
                    owner=identity.user,
                    document=pinned.document,
                    created_at=now,
                    changed_at=now,
                )
                self.rows.add(connection, made)
                self.added(connection, endpoint, made)
            else:
                owner = self.owner_after(connection, old, pinned.document, identity, takes_over)
                document = {**pinned.document, "name": old.name}
                made = self.change(
                    connection, old, {"document": document, "owner": owner, "changed_at": now}
                )
        self.endpoints.notify(services)
        return Accepted(made, old is None, pinned.notices)

    def update(
        self,
        services: Services,
        workspace: str,
        endpoint_name: str,
        name: str,
        changes: Mapping[str, Any],
        identity: Identity,
    ) -> Accepted[D]:
        """Change single keys of a deployment; a mapping is merged into the one that is there.

        Raises:
            InvalidSpec: what is wrong, and where.
        """
        old = self.get(services.db, workspace, endpoint_name, name)
        document = changed(old.document, changes, list(models.keys(self.file)))
        document |= {"name": old.name, "endpoint_name": old.endpoint}
        return self.create(services, workspace, endpoint_name, document, identity)

    def get(self, db: Database, workspace: str, endpoint_name: str, name: str) -> D:
        """
        Raises:
            NotFound: with the nearest name there is.
        """
        endpoint = self.endpoints.get(db, workspace, endpoint_name)
        deployment = self.named(db, endpoint, name)
        if deployment is not None:
            return deployment
        raise NotFound(
            f"{self.endpoints.noun} `{endpoint.name}` has no deployment `{name[:80]}`",
            did_you_mean(
                name,
                [each.name for each in self.list_in(db, workspace, endpoint.name)],
                f"list them with `yard {self.endpoints.word}-deployment list -e {endpoint.name}`",
            ),
            code="deployment_not_found",
        )

    def named(self, db: Database, endpoint: E, name: str) -> D | None:
        with db.read() as connection:
            return self.rows.get(connection, endpoint.workspace, endpoint.name, name)

    def list_in(self, db: Database, workspace: str, endpoint_name: str) -> list[D]:
        endpoint = self.endpoints.get(db, workspace, endpoint_name)
        with db.read() as connection:
            return self.rows.list_in(connection, workspace, endpoint.name)

    def delete(
        self,
        services: RecordServices,
        workspace: str,
        endpoint_name: str,
        name: str,
        identity: Identity,
    ) -> D:
        """Delete a deployment.

        Raises:
            Conflict: the endpoint needs it.
            Forbidden: the endpoint is somebody else's.
        """
        deployment = self.get(services.db, workspace, endpoint_name, name)
        now = services.clock.now()
        with services.db.write() as connection:
            endpoint = self.endpoint_to_change(connection, workspace, endpoint_name)
            self.endpoints.refuse_foreign(services.db, endpoint, identity)
            deleted = self.remove(connection, endpoint, deployment, now)
        self.endpoints.notify(services)
        return deleted

    def owner_after(
        self,
        connection: Connection,
        old: D,
        document: Mapping[str, Any],
        identity: Identity,
        takes_over: bool,
    ) -> str:
        """
        Raises:
            Forbidden: it is another's, what runs changes, and nobody said `take_over`.
        """
        before, after = self.what_runs(old.document), self.what_runs(document)
        return ownership.owner_after(
            connection,
            self.rule,
            old.workspace,
            identity.user,
            old.owner,
            f"deployment `{old.name}`",
            is_asked=takes_over,
            is_needed=changes_what_runs(before, after, self.outside),
        )
