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
    func,
    insert,
    select,
    update,
)

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
    Column("port", Integer, nullable=False),
    Column("message", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("starts", Integer, nullable=False),
)


def add_endpoint(connection: Connection, endpoint: Endpoint, secrets: EndpointKeys) -> None:
    connection.execute(insert(endpoints).values(_values(vars(endpoint))))
    key = {"workspace": endpoint.workspace, "endpoint": endpoint.name}
    connection.execute(insert(keys).values({**key, **vars(secrets)}))


def endpoint_named(connection: Connection, workspace: str, name: str) -> Endpoint | None:
    query = select(endpoints).where(
        endpoints.c.workspace == workspace, func.lower(endpoints.c.name) == name.lower()
    )
    row = connection.execute(query).first()
    return None if row is None else _endpoint(row._mapping)


def endpoints_in(connection: Connection, workspace: str) -> list[Endpoint]:
    """Those of a workspace, or of all when it is empty."""
    query = select(endpoints).order_by(endpoints.c.workspace, endpoints.c.name)
    if workspace:
        query = query.where(endpoints.c.workspace == workspace)
    return [_endpoint(row._mapping) for row in connection.execute(query)]


def change_endpoint(connection: Connection, endpoint: Endpoint, **values: Any) -> None:
    connection.execute(update(endpoints).where(*_of(endpoint)).values(_values(values)))


def finish(connection: Connection, changed: Endpoint | Deployment) -> None:
    """What was wanted of it is done, unless something else is wanted by now."""
    if isinstance(changed, Endpoint):
        table, of = endpoints, _of(changed)
    else:
        table, of = deployments, _of_deployment(changed)
    values = {"state": ProvisioningState.SUCCEEDED}
    as_read = (table.c.state == changed.state.value, table.c.changed_at == changed.changed_at)
    connection.execute(update(table).where(*of, *as_read).values(_values(values)))


def remove_endpoint(connection: Connection, endpoint: Endpoint) -> None:
    """With its keys, deployments and instances."""
    for table in (instances, deployments, keys):
        connection.execute(
            delete(table).where(
                table.c.workspace == endpoint.workspace, table.c.endpoint == endpoint.name
            )
        )
    connection.execute(delete(endpoints).where(*_of(endpoint)))


def keys_of(connection: Connection, endpoint: Endpoint) -> EndpointKeys:
    row = connection.execute(select(keys).where(*_keys_of(endpoint))).one()._mapping
    return EndpointKeys(row["primary"], row["secondary"], row["token_secret"])


def change_keys(connection: Connection, endpoint: Endpoint, **values: str) -> None:
    connection.execute(update(keys).where(*_keys_of(endpoint)).values(values))


def add_deployment(connection: Connection, deployment: Deployment) -> None:
    connection.execute(insert(deployments).values(_values(vars(deployment))))


def deployment_named(connection: Connection, endpoint: Endpoint, name: str) -> Deployment | None:
    query = select(deployments).where(
        deployments.c.workspace == endpoint.workspace,
        deployments.c.endpoint == endpoint.name,
        func.lower(deployments.c.name) == name.lower(),
    )
    row = connection.execute(query).first()
    return None if row is None else _deployment(row._mapping)


def deployments_in(
    connection: Connection, workspace: str = "", endpoint: str = ""
) -> list[Deployment]:
    """Those of an endpoint, of a workspace, or of all."""
    query = select(deployments).order_by(
        deployments.c.workspace, deployments.c.endpoint, deployments.c.name
    )
    if workspace:
        query = query.where(deployments.c.workspace == workspace)
    if endpoint:
        query = query.where(deployments.c.endpoint == endpoint)
    return [_deployment(row._mapping) for row in connection.execute(query)]


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
    where = list(_of_deployment(deployment))
    if as_of is not None:
        where.append(deployments.c.changed_at == as_of)
    if revision is not None:
        where.append(deployments.c.revision == revision)
    result = connection.execute(update(deployments).where(*where).values(_values(values)))
    return result.rowcount > 0


def raise_revision(connection: Connection, deployment: Deployment, **values: Any) -> None:
    """Change what is wanted of a deployment: one revision more than the row has."""
    connection.execute(
        update(deployments)
        .where(*_of_deployment(deployment))
        .values({**_values(values), "revision": deployments.c.revision + 1})
    )


def remove_deployment(connection: Connection, deployment: Deployment) -> None:
    """With its instances."""
    connection.execute(
        delete(instances).where(
            instances.c.workspace == deployment.workspace,
            instances.c.endpoint == deployment.endpoint,
            instances.c.deployment == deployment.name,
        )
    )
    connection.execute(delete(deployments).where(*_of_deployment(deployment)))


def put_instance(connection: Connection, instance: Instance) -> None:
    """Add one, or replace the one with the same revision and number."""
    connection.execute(delete(instances).where(*_of_instance(instance)))
    connection.execute(insert(instances).values(_values(vars(instance))))


def instances_in(
    connection: Connection, workspace: str = "", endpoint: str = "", deployment: str = ""
) -> list[Instance]:
    """Those of a deployment, of an endpoint, of a workspace, or of all."""
    column = instances.c
    query = select(instances).order_by(
        column.workspace, column.endpoint, column.deployment, column.revision, column.number
    )
    if workspace:
        query = query.where(column.workspace == workspace)
    if endpoint:
        query = query.where(column.endpoint == endpoint)
    if deployment:
        query = query.where(column.deployment == deployment)
    return [
        Instance(**{**row._mapping, "state": InstanceState(row._mapping["state"])})
        for row in connection.execute(query)
    ]


def change_instance(connection: Connection, instance: Instance, **values: Any) -> None:
    connection.execute(update(instances).where(*_of_instance(instance)).values(_values(values)))


def remove_instance(connection: Connection, instance: Instance) -> None:
    connection.execute(delete(instances).where(*_of_instance(instance)))


def _values(values: Any) -> dict[str, Any]:
    """Words instead of enums, so that both databases write them."""
    words = (AuthMode, InstanceState, ProvisioningState)
    return {
        key: value.value if isinstance(value, words) else value for key, value in values.items()
    }


def _endpoint(row: Any) -> Endpoint:
    read = {"auth_mode": AuthMode(row["auth_mode"]), "state": ProvisioningState(row["state"])}
    return Endpoint(**{**row, **read})


def _deployment(row: Any) -> Deployment:
    return Deployment(**{**row, "state": ProvisioningState(row["state"])})


def _of(endpoint: Endpoint) -> tuple[Any, ...]:
    return endpoints.c.workspace == endpoint.workspace, endpoints.c.name == endpoint.name


def _keys_of(endpoint: Endpoint) -> tuple[Any, ...]:
    return keys.c.workspace == endpoint.workspace, keys.c.endpoint == endpoint.name


def _of_deployment(deployment: Deployment) -> tuple[Any, ...]:
    column = deployments.c
    return (
        column.workspace == deployment.workspace,
        column.endpoint == deployment.endpoint,
        column.name == deployment.name,
    )


def _of_instance(instance: Instance) -> tuple[Any, ...]:
    column = instances.c
    return (
        column.workspace == instance.workspace,
        column.endpoint == instance.endpoint,
        column.deployment == instance.deployment,
        column.revision == instance.revision,
        column.number == instance.number,
    )
