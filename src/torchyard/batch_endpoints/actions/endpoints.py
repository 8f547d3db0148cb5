"""What can be done with batch endpoints.

Owns: creating, changing, listing and deleting them; which deployment is their default; who may
change them.
Leaves: their file's grammar to spec/, deployments to deployments.py, jobs to invocations.py.
Always: a default names a deployment that exists; an endpoint is changed by its owner or by a
contributor of the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound, did_you_mean
from torchyard.base.fields import unknown_key
from torchyard.batch_endpoints.records import store
from torchyard.batch_endpoints.records.types import BatchEndpoint
from torchyard.batch_endpoints.spec import endpoint_spec
from torchyard.jobs.services import RecordServices
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

_CHANGES = (
    "defaults", "tags", "properties", "description", "auth_mode", "identity",
    "public_network_access",
)  # fmt: skip
_MOST_ENDPOINTS = 1000
_IN_COLUMNS = ("defaults", "$schema")


def create(
    services: RecordServices, workspace: str, document: Mapping[str, Any], identity: Identity
) -> tuple[BatchEndpoint, bool]:
    """Create an endpoint, or replace the file of one. Return it, and whether it is new.

    Its default deployment stays as it is where the file says nothing of it.

    Raises:
        InvalidSpec: what is wrong, and where.
        Forbidden: it is somebody else's.
    """
    document, takes_over = ownership.without_take_over(document)
    spec = endpoint_spec.read(document)
    now = services.clock.now()
    with services.db.write() as connection:
        old = store.endpoint_named(connection, workspace, spec.name)
        if old is not None:
            return _changed(services, connection, old, document, identity, takes_over), False
        if len(store.endpoints_in(connection, workspace)) >= _MOST_ENDPOINTS:
            raise Conflict(
                f"workspace `{workspace}` has {_MOST_ENDPOINTS} batch endpoints",
                "delete those that nobody uses",
            )
        _check_default(spec.default_deployment or "", [], spec.name)
        endpoint = BatchEndpoint(
            workspace, spec.name, identity.user, _without_columns(document), "", now, now
        )
        store.add_endpoint(connection, endpoint)
    return endpoint, True


def update(
    services: RecordServices,
    workspace: str,
    name: str,
    changes: Mapping[str, Any],
    identity: Identity,
) -> BatchEndpoint:
    """Change single keys: defaults, tags, description.

    Raises:
        InvalidSpec: what is wrong, and where.
        Forbidden: it is somebody else's.
    """
    changes, takes_over = ownership.without_take_over(changes)
    for key in changes:
        if key not in _CHANGES:
            raise unknown_key(str(key), _CHANGES)
    with services.db.write() as connection:
        old = find(connection, workspace, name)
        document = {**old.document, "name": old.name, **changes}
        return _changed(services, connection, old, document, identity, takes_over)


def get(db: Database, workspace: str, name: str) -> BatchEndpoint:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with db.read() as connection:
        return find(connection, workspace, name)


def list_in(db: Database, workspace: str) -> list[BatchEndpoint]:
    with db.read() as connection:
        return store.endpoints_in(connection, workspace)


def delete(db: Database, workspace: str, name: str, identity: Identity) -> BatchEndpoint:
    """Delete an endpoint with its deployments; its jobs stay, and those that run go on.

    Raises:
        Forbidden: it is somebody else's.
    """
    with db.write() as connection:
        endpoint = find(connection, workspace, name)
        refuse_foreign(db, endpoint, identity)
        store.remove_endpoint(connection, endpoint)
    return endpoint


def find(connection: Connection, workspace: str, name: str) -> BatchEndpoint:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    endpoint = store.endpoint_named(connection, workspace, name)
    if endpoint is not None:
        return endpoint
    raise NotFound(
        f"batch endpoint `{name[:80]}` does not exist in workspace `{workspace}`",
        did_you_mean(
            name,
            [each.name for each in store.endpoints_in(connection, workspace)],
            "list them with `yard batch-endpoint list`",
        ),
        code="endpoint_not_found",
    )


def refuse_foreign(db: Database, endpoint: BatchEndpoint, identity: Identity) -> None:
    """
    Raises:
        Forbidden: it is somebody else's.
    """
    subject = f"batch endpoint `{endpoint.name}`"
    with db.read() as connection:
        ownership.refuse(
            connection,
            ownership.BATCH_ENDPOINT,
            endpoint.workspace,
            identity.user,
            endpoint.owner,
            subject,
        )


def _changed(
    services: RecordServices,
    connection: Connection,
    old: BatchEndpoint,
    document: Mapping[str, Any],
    identity: Identity,
    takes_over: bool,
) -> BatchEndpoint:
    refuse_foreign(services.db, old, identity)
    spec = endpoint_spec.read(document)
    default = old.default_deployment
    if spec.default_deployment is not None:
        names = [each.name for each in store.deployments_in(connection, old)]
        default = _check_default(spec.default_deployment, names, old.name)
    values: dict[str, Any] = {
        "owner": identity.user if takes_over else old.owner,
        "document": _without_columns({**document, "name": old.name}),
        "default_deployment": default,
        "changed_at": services.clock.now(),
    }
    store.change_endpoint(connection, old, **values)
    return replace(old, **values)


def _without_columns(document: Mapping[str, Any]) -> dict[str, Any]:
    """The file without what stands in columns of its own."""
    return {key: value for key, value in document.items() if key not in _IN_COLUMNS}


def _check_default(name: str, names: list[str], endpoint: str) -> str:
    """The deployment's own name."""
    if not name:
        return ""
    for each in names:
        if each.lower() == name.lower():
            return each
    there = ", ".join(f"`{each}`" for each in names) or "none yet"
    raise InvalidSpec(
        f"batch endpoint `{endpoint}` has no deployment `{name[:80]}`",
        did_you_mean(name, names, f"its deployments: {there}"),
        code="deployment_not_found",
        at=("defaults", "deployment_name"),
    )
