"""The tables of endpoints, their keys, deployments and instances.

Owns: SQL, and the way between rows and the types.
Leaves: what a change means to actions and to running/.
Always: names are found in any case, as Azure's clients compare them; what is an endpoint's goes
with it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Integer,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from torchyard.assets.named_table import NamedTable
from torchyard.base.db import Instant, metadata
from torchyard.base.documents import secret_variables
from torchyard.base.sealed_columns import SealedText
from torchyard.endpoints.records.types import (
    AuthMode,
    Deployment,
    Endpoint,
    EndpointKeys,
    Instance,
    InstanceState,
    ProvisioningState,
)

endpoints = Table(
    "endpoints",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("document", JSON, nullable=False),
    Column("auth_mode", String(16), nullable=False),
    Column("traffic", JSON, nullable=False),
    Column("mirror_traffic", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("message", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
)

_KEYS_OF = "the keys of endpoint `{endpoint}`"

keys = Table(
    "endpoint_keys",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("endpoint", String(64), primary_key=True),
    Column("primary", SealedText(_KEYS_OF), nullable=False),
    Column("secondary", SealedText(_KEYS_OF), nullable=False),
    Column("token_secret", SealedText(_KEYS_OF), nullable=False),
)

deployments = Table(
    "deployments",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("endpoint", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column(
        "document",
        secret_variables.sealed("deployment `{name}` of endpoint `{endpoint}`"),
        nullable=False,
    ),
    Column("state", String(16), nullable=False),
    Column("message", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
    Column(
        "served_document",
        secret_variables.sealed("deployment `{name}` of endpoint `{endpoint}`"),
        nullable=False,
    ),
    Column("served_revision", Integer, nullable=False),
)

instances = Table(
    "deployment_instances",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("endpoint", String(64), primary_key=True),
    Column("deployment", String(64), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job", String(256), nullable=False),
    Column("state", String(16), nullable=False),
    Column("host", String(255), nullable=False),
    # Instances listened at a port once.
    Column("port", Integer, nullable=False, default=0),
    Column("message", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("starts", Integer, nullable=False),
)


def _values(values: Any) -> dict[str, Any]:
    """Words instead of enums, so that both databases write them."""
    words = (AuthMode, InstanceState, ProvisioningState)
    return {
        key: value.value if isinstance(value, words) else value for key, value in values.items()
    }


def _endpoint(**row: Any) -> Endpoint:
    read = {"auth_mode": AuthMode(row["auth_mode"]), "state": ProvisioningState(row["state"])}
    return Endpoint(**{**row, **read})


def _deployment(**row: Any) -> Deployment:
    return Deployment(**{**row, "state": ProvisioningState(row["state"])})


def _instance(port: int, **row: Any) -> Instance:
    return Instance(**{**row, "state": InstanceState(row["state"])})


endpoint_rows = NamedTable(endpoints, _endpoint, _values, in_any_case=True)
endpoint_named, endpoints_in = endpoint_rows.get, endpoint_rows.list_in
deployment_rows = NamedTable(deployments, _deployment, _values, in_any_case=True)
deployments_in = deployment_rows.list_in
_instances = NamedTable(instances, _instance, _values)
put_instance, instances_in = _instances.put, _instances.list_in
change_instance, remove_instance = _instances.change, _instances.remove


def put_keys(connection: Connection, endpoint: Endpoint, secrets: EndpointKeys) -> None:
    """In place of those that it has."""
    connection.execute(delete(keys).where(*_keys_of(endpoint)))
    key = {"workspace": endpoint.workspace, "endpoint": endpoint.name}
    connection.execute(insert(keys).values({**key, **vars(secrets)}))


def finish(connection: Connection, changed: Endpoint | Deployment) -> None:
    """What was wanted of it is done, unless something else is wanted by now."""
    state = ProvisioningState.SUCCEEDED
    if isinstance(changed, Endpoint):
        endpoint_rows.change(connection, changed, *_as_read(endpoints, changed), state=state)
    else:
        deployment_rows.change(connection, changed, *_as_read(deployments, changed), state=state)


def _as_read(table: Table, changed: Endpoint | Deployment) -> tuple[Any, ...]:
    return table.c.state == changed.state.value, table.c.changed_at == changed.changed_at


def remove_endpoint(connection: Connection, endpoint: Endpoint) -> None:
    """With its keys, deployments and instances."""
    key = (endpoint.workspace, endpoint.name)
    _instances.drop(connection, *key)
    deployment_rows.drop(connection, *key)
    connection.execute(delete(keys).where(*_keys_of(endpoint)))
    endpoint_rows.remove(connection, endpoint)


def keys_of(connection: Connection, endpoint: Endpoint) -> EndpointKeys:
    row = connection.execute(select(keys).where(*_keys_of(endpoint))).one()._mapping
    return EndpointKeys(row["primary"], row["secondary"], row["token_secret"])


def change_keys(connection: Connection, endpoint: Endpoint, **values: str) -> None:
    connection.execute(update(keys).where(*_keys_of(endpoint)).values(values))


def change_deployment(
    connection: Connection,
    deployment: Deployment,
    revision: int | None = None,
    as_of: datetime | None = None,
    **values: Any,
) -> bool:
    """Whether there was one to change.

    Args:
        revision: change it only while this is its revision.
        as_of: change it only while its last change was then.
    """
    only_if = [deployments.c.changed_at == as_of] if as_of is not None else []
    if revision is not None:
        only_if.append(deployments.c.revision == revision)
    return deployment_rows.change(connection, deployment, *only_if, **values)


def raise_revision(connection: Connection, deployment: Deployment, **values: Any) -> None:
    """Change what is wanted of a deployment: one revision more than the row has."""
    deployment_rows.change(connection, deployment, **values, revision=deployments.c.revision + 1)


def remove_deployment(connection: Connection, deployment: Deployment) -> None:
    """With its instances."""
    key = (deployment.workspace, deployment.endpoint, deployment.name)
    _instances.drop(connection, *key)
    deployment_rows.remove(connection, deployment)


def _keys_of(endpoint: Endpoint) -> tuple[Any, ...]:
    return keys.c.workspace == endpoint.workspace, keys.c.endpoint == endpoint.name
