"""What can be done with online endpoints.

Owns: creating, changing, listing and deleting them; their traffic; who may change them.
Leaves: their file's grammar to spec/, deployments to deployments.py, keys to credentials.py, the
router's table and the end of a deletion to running/.
Always: traffic names deployments that exist, and adds up to 0 or 100; an endpoint is changed by its
owner or by a contributor of the workspace; who takes it over gets new keys, as the owner before
knows the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound, did_you_mean
from torchyard.base.fields import unknown_key
from torchyard.endpoints import tokens
from torchyard.endpoints.records import signals, store
from torchyard.endpoints.records.types import AuthMode, Endpoint, ProvisioningState
from torchyard.endpoints.spec import endpoint_spec
from torchyard.endpoints.spec.endpoint_spec import EndpointSpec
from torchyard.jobs.services import RecordServices
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

_CHANGES = (
    "traffic", "mirror_traffic", "tags", "properties", "description", "auth_mode",
    "identity", "public_network_access",
)  # fmt: skip
_MOST_ENDPOINTS = 1000


def create(
    services: RecordServices, workspace: str, document: Mapping[str, Any], identity: Identity
) -> tuple[Endpoint, bool]:
    """Create an endpoint, or replace the file of one. Return it, and whether it is new.

    Traffic stays as it is where the file says nothing of it.

    Raises:
        InvalidSpec: what is wrong, and where.
        Forbidden: it is somebody else's.
        Conflict: it is being deleted.
    """
    document, takes_over = ownership.without_take_over(document)
    spec = endpoint_spec.read(document)
    now = services.clock.now()
    with services.db.write() as connection:
        old = store.endpoint_named(connection, workspace, spec.name)
        if old is not None:
            endpoint = _changed(services, connection, old, document, identity, takes_over)
        else:
            endpoint = _added(connection, workspace, spec, document, identity, now)
    services.signals.notify(signals.ENDPOINTS)
    return endpoint, old is None


def update(
    services: RecordServices,
    workspace: str,
    name: str,
    changes: Mapping[str, Any],
    identity: Identity,
) -> Endpoint:
    """Change single keys: traffic, tags, description, auth_mode.

    Raises:
        InvalidSpec: what is wrong, and where.
        Forbidden: it is somebody else's.
    """
    changes, takes_over = ownership.without_take_over(changes)
    for key in changes:
        if key not in _CHANGES:
            raise unknown_key(str(key), _CHANGES)
    with services.db.write() as connection:
        old = _of(connection, workspace, name)
        document = {**old.document, "name": old.name, **changes}
        endpoint = _changed(services, connection, old, document, identity, takes_over)
    services.signals.notify(signals.ENDPOINTS)
    return endpoint


def get(db: Database, workspace: str, name: str) -> Endpoint:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with db.read() as connection:
        return _of(connection, workspace, name)


def list_in(services: RecordServices, workspace: str) -> list[Endpoint]:
    with services.db.read() as connection:
        return store.endpoints_in(connection, workspace)


def delete(services: RecordServices, workspace: str, name: str, identity: Identity) -> Endpoint:
    """Delete an endpoint with its deployments; it is gone once their instances have ended.

    Raises:
        Forbidden: it is somebody else's.
    """
    now = services.clock.now()
    with services.db.write() as connection:
        endpoint = _of(connection, workspace, name)
        refuse_foreign(services.db, endpoint, identity)
        deployments = store.deployments_in(connection, workspace, endpoint.name)
        if not deployments:
            store.remove_endpoint(connection, endpoint)
        values: dict[str, Any] = {
            "state": ProvisioningState.DELETING,
            "traffic": {},
            "mirror_traffic": {},
            "changed_at": now,
        }
        store.change_endpoint(connection, endpoint, **values)
        for deployment in deployments:
            store.change_deployment(
                connection, deployment, state=ProvisioningState.DELETING, changed_at=now
            )
    services.signals.notify(signals.ENDPOINTS)
    return replace(endpoint, **values)


def refuse_foreign(db: Database, endpoint: Endpoint, identity: Identity) -> None:
    """
    Raises:
        Forbidden: it is somebody else's.
    """
    subject = f"endpoint `{endpoint.name}`"
    with db.read() as connection:
        ownership.refuse(
            connection,
            ownership.ENDPOINT,
            endpoint.workspace,
            identity.user,
            endpoint.owner,
            subject,
        )


def _of(connection: Connection, workspace: str, name: str) -> Endpoint:
    endpoint = store.endpoint_named(connection, workspace, name)
    if endpoint is not None:
        return endpoint
    raise NotFound(
        f"endpoint `{name[:80]}` does not exist in workspace `{workspace}`",
        did_you_mean(
            name,
            [each.name for each in store.endpoints_in(connection, workspace)],
            "list them with `yard online-endpoint list`",
        ),
        code="endpoint_not_found",
    )


def _added(
    connection: Connection,
    workspace: str,
    spec: EndpointSpec,
    document: Mapping[str, Any],
    identity: Identity,
    now: datetime,
) -> Endpoint:
    if len(store.endpoints_in(connection, workspace)) >= _MOST_ENDPOINTS:
        raise Conflict(
            f"workspace `{workspace}` has {_MOST_ENDPOINTS} endpoints",
            "delete those that nobody uses",
        )
    for key, shares in (("traffic", spec.traffic), ("mirror_traffic", spec.mirror_traffic)):
        _check_shares(key, shares or {}, [], spec.name)
    endpoint = Endpoint(
        workspace=workspace,
        name=spec.name,
        owner=identity.user,
        document=_without_traffic(document),
        auth_mode=AuthMode(spec.auth_mode),
        traffic={},
        mirror_traffic={},
        state=ProvisioningState.SUCCEEDED,
        message="",
        created_at=now,
        changed_at=now,
    )
    store.add_endpoint(connection, endpoint, tokens.new_keys())
    return endpoint


def _changed(
    services: RecordServices,
    connection: Connection,
    old: Endpoint,
    document: Mapping[str, Any],
    identity: Identity,
    takes_over: bool,
) -> Endpoint:
    refuse_foreign(services.db, old, identity)
    _refuse_deleting(old)
    owner = identity.user if takes_over else old.owner
    spec = endpoint_spec.read(document)
    names = [each.name for each in store.deployments_in(connection, old.workspace, old.name)]
    traffic, mirror = old.traffic, old.mirror_traffic
    if spec.traffic is not None:
        traffic = _check_shares("traffic", spec.traffic, names, old.name)
    if spec.mirror_traffic is not None:
        mirror = _check_shares("mirror_traffic", spec.mirror_traffic, names, old.name)
    for name, share in mirror.items():
        if share and traffic.get(name):
            raise InvalidSpec(
                f"`{name}` has traffic and mirrored traffic",
                "mirror to a deployment that has none",
                at=("mirror_traffic", name),
            )
    values: dict[str, Any] = {
        "owner": owner,
        "document": _without_traffic({**document, "name": old.name}),
        "auth_mode": AuthMode(spec.auth_mode),
        "traffic": dict(traffic),
        "mirror_traffic": dict(mirror),
        "state": ProvisioningState.UPDATING,
        "message": "",
        "changed_at": services.clock.now(),
    }
    store.change_endpoint(connection, old, **values)
    if owner != old.owner:
        store.change_keys(connection, old, **vars(tokens.new_keys()))
    return replace(old, **values)


def _without_traffic(document: Mapping[str, Any]) -> dict[str, Any]:
    """The file without traffic, which stands in columns of its own."""
    left_out = ("traffic", "mirror_traffic", "$schema")
    return {key: value for key, value in document.items() if key not in left_out}


def _check_shares(
    key: str, shares: Mapping[str, int], names: list[str], endpoint: str
) -> dict[str, int]:
    """The shares by the deployments' own names, without those of 0."""
    by_name = {name.lower(): name for name in names}
    for name in shares:
        if name.lower() not in by_name:
            there = ", ".join(f"`{each}`" for each in names) or "none yet"
            raise InvalidSpec(
                f"endpoint `{endpoint}` has no deployment `{name[:80]}`",
                did_you_mean(name, names, f"its deployments: {there}"),
                code="deployment_not_found",
                at=(key, name),
            )
    return {by_name[name.lower()]: share for name, share in shares.items() if share}


def _refuse_deleting(endpoint: Endpoint) -> None:
    if endpoint.state is ProvisioningState.DELETING:
        raise Conflict(
            f"endpoint `{endpoint.name}` is being deleted",
            "wait until it is gone, or use another name",
            code="endpoint_being_deleted",
        )
