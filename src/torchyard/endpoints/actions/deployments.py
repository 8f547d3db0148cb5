"""What can be done with deployments of an endpoint.

Owns: creating, changing, listing and deleting them; their logs.
Leaves: their file's grammar to spec/, what it names to deployed_models.py, instances and how far a
deployment has got to running/.
Always: an accepted change is a new revision, or nothing at all; one of the number of instances
alone leaves those that answer as they are; instances run as the person who wrote what they run, or
took it over; a deployment with traffic is not deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.documents import models
from torchyard.base.errors import (
    Conflict,
    InvalidInput,
    InvalidSpec,
    NotFound,
    did_you_mean,
)
from torchyard.endpoints.actions import deployed_models, endpoints
from torchyard.endpoints.records import collected_data, signals, store
from torchyard.endpoints.records.collected_data import Collected
from torchyard.endpoints.records.types import (
    Deployment,
    Endpoint,
    Instance,
    InstanceState,
    ProvisioningState,
)
from torchyard.endpoints.spec import deployment_spec
from torchyard.endpoints.spec.changes import changed, changes_what_runs
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec, OnlineDeploymentFile
from torchyard.jobs import actions as jobs
from torchyard.jobs.files import artifacts
from torchyard.jobs.records import job_masking
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

_MOST_DEPLOYMENTS = 20
_MOST_LINES = 100_000
_LOG_MOST_BYTES = 4 << 20
# What instances don't know: how many there are, and how requests come to them.
_OUTSIDE_INSTANCES = ("instance_count", "scale_settings", "request_settings", "description")

_LABELS_AND_NUMBERS = (
    *_OUTSIDE_INSTANCES, "name", "endpoint_name", "instance_type", "tags", "properties", "notices",
)  # fmt: skip


@dataclass(frozen=True)
class Accepted:
    """A deployment as it is kept; `notices` say what has no effect, or another than in Azure."""

    deployment: Deployment
    is_new: bool
    notices: tuple[str, ...]


def create(
    services: Services,
    workspace: str,
    endpoint_name: str,
    document: Mapping[str, Any],
    identity: Identity,
) -> Accepted:
    """Create a deployment, or replace the file of one; the keeper then starts its instances.

    Raises:
        InvalidSpec: what is wrong, and where.
        NotFound: the endpoint does not exist.
        Forbidden: the endpoint is somebody else's, or the deployment is and what it runs changes.
        Conflict: one of them is being deleted.
    """
    document, takes_over = ownership.without_take_over(document)
    spec = deployment_spec.read(document)
    endpoint = endpoints.get(services.db, workspace, endpoint_name)
    if spec.endpoint_name.lower() != endpoint.name.lower():
        raise InvalidSpec(
            f"the document's endpoint is `{spec.endpoint_name}`, but the URL says "
            f"`{endpoint.name}`",
            "leave `endpoint_name` out of the document",
            at=("endpoint_name",),
        )
    endpoints.refuse_foreign(services.db, endpoint, identity)
    collected = _collected(services.db, endpoint, spec)
    pinned = deployed_models.pin(services, workspace, document, spec, identity)
    with services.db.read() as connection:
        old = store.deployment_named(connection, endpoint, spec.name)
        if old is not None:
            _owner_after(connection, old, pinned.document, identity, takes_over)
    collected_data.register(services, endpoint, collected, identity.user)
    now = services.clock.now()
    with services.db.write() as connection:
        endpoint = _still_there(store.endpoint_named(connection, workspace, endpoint.name))
        old = store.deployment_named(connection, endpoint, spec.name)
        if old is None:
            if len(store.deployments_in(connection, workspace, endpoint.name)) >= _MOST_DEPLOYMENTS:
                raise Conflict(
                    f"endpoint `{endpoint.name}` has {_MOST_DEPLOYMENTS} deployments",
                    "delete those without traffic",
                )
            creating = ProvisioningState.CREATING
            deployment = Deployment(
                workspace, endpoint.name, spec.name, identity.user, pinned.document,
                creating, "", 1, now, now,
            )  # fmt: skip
            store.add_deployment(connection, deployment)
        else:
            owner = _owner_after(connection, old, pinned.document, identity, takes_over)
            values = {"document": pinned.document, "owner": owner, "changed_at": now}
            deployment = _changed(connection, old, values)
    services.signals.notify(signals.ENDPOINTS)
    return Accepted(deployment, old is None, pinned.notices)


def update(
    services: Services,
    workspace: str,
    endpoint_name: str,
    name: str,
    changes: Mapping[str, Any],
    identity: Identity,
) -> Accepted:
    """Change single keys of a deployment; a mapping is merged into the one that is there.

    Raises:
        InvalidSpec: what is wrong, and where.
    """
    old = get(services.db, workspace, endpoint_name, name)
    document = changed(old.document, changes, list(models.keys(OnlineDeploymentFile)))
    document |= {"name": old.name, "endpoint_name": old.endpoint}
    return create(services, workspace, endpoint_name, document, identity)


def get(db: Database, workspace: str, endpoint_name: str, name: str) -> Deployment:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    endpoint = endpoints.get(db, workspace, endpoint_name)
    with db.read() as connection:
        deployment = store.deployment_named(connection, endpoint, name)
        if deployment is not None:
            return deployment
        there = store.deployments_in(connection, workspace, endpoint.name)
    raise NotFound(
        f"endpoint `{endpoint.name}` has no deployment `{name[:80]}`",
        did_you_mean(
            name,
            [each.name for each in there],
            f"list them with `yard online-deployment list -e {endpoint.name}`",
        ),
        code="deployment_not_found",
    )


def list_in(services: RecordServices, workspace: str, endpoint_name: str) -> list[Deployment]:
    endpoint = endpoints.get(services.db, workspace, endpoint_name)
    with services.db.read() as connection:
        return store.deployments_in(connection, workspace, endpoint.name)


def instances_of(services: RecordServices, deployment: Deployment) -> list[Instance]:
    with services.db.read() as connection:
        return store.instances_in(
            connection, deployment.workspace, deployment.endpoint, deployment.name
        )


def delete(
    services: RecordServices, workspace: str, endpoint_name: str, name: str, identity: Identity
) -> Deployment:
    """Delete a deployment; it is gone once its instances have ended.

    Raises:
        Conflict: it has traffic, or mirrored traffic.
        Forbidden: the endpoint is somebody else's.
    """
    deployment = get(services.db, workspace, endpoint_name, name)
    with services.db.write() as connection:
        endpoint = _still_there(store.endpoint_named(connection, workspace, endpoint_name))
        endpoints.refuse_foreign(services.db, endpoint, identity)
        for traffic, shares in (
            ("traffic", endpoint.traffic),
            ("mirrored traffic", endpoint.mirror_traffic),
        ):
            if shares.get(deployment.name):
                raise Conflict(
                    f"deployment `{deployment.name}` has {shares[deployment.name]}% of the "
                    f"{traffic} of endpoint `{endpoint.name}`",
                    f"give it to others first: `yard online-endpoint update -n {endpoint.name} "
                    f'--traffic "{deployment.name}=0 …"`',
                    code="deployment_has_traffic",
                )
        values: dict[str, Any] = {
            "state": ProvisioningState.DELETING,
            "changed_at": services.clock.now(),
        }
        store.change_deployment(connection, deployment, **values)
    services.signals.notify(signals.ENDPOINTS)
    return replace(deployment, **values)


def logs(
    services: FileServices, workspace: str, endpoint_name: str, name: str, lines: int, instance: str
) -> str:
    """The last lines that an instance printed.

    Args:
        instance: its id; the one that answers, or the newest one, when empty.

    Raises:
        NotFound: no such instance.
    """
    if not 1 <= lines <= _MOST_LINES:
        raise InvalidInput(
            f"`lines` must be a number from 1 to {_MOST_LINES}", "for example 50", at=("lines",)
        )
    deployment = get(services.db, workspace, endpoint_name, name)
    there = instances_of(services, deployment)
    if instance:
        there = [each for each in there if each.id == instance]
        if not there:
            raise NotFound(
                f"deployment `{deployment.name}` has no instance `{instance[:80]}`",
                f"list them with `yard online-deployment show -n {deployment.name} "
                f"-e {deployment.endpoint}`",
            )
    for each in sorted(there, key=_freshness, reverse=True):
        text = _log_of(services, workspace, each, lines)
        if text:
            return text
    messages = [f"instance {each.id}: {each.message}" for each in there if each.message]
    return "\n".join(messages) or deployment.message


def _freshness(instance: Instance) -> tuple[bool, int, str]:
    return (instance.state is InstanceState.READY, instance.revision, str(instance.created_at))


def _log_of(services: FileServices, workspace: str, instance: Instance, lines: int) -> str:
    job = jobs.find_by_name(services.db, workspace, instance.job)
    if job is None:
        return ""
    parts = []
    for _, file in artifacts.logs_of(services.logs, job):
        with open(file, "rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - _LOG_MOST_BYTES))
            parts.append(opened.read().decode("utf-8", "replace"))
    text = "\n".join(part.rstrip("\n") for part in parts if part.strip())
    masked: str = job_masking.masker(job).text("\n".join(text.splitlines()[-lines:]))
    return masked


def _owner_after(
    connection: Connection,
    old: Deployment,
    document: Mapping[str, Any],
    identity: Identity,
    takes_over: bool,
) -> str:
    """
    Raises:
        Forbidden: it is another's, what its instances run changes, and nobody said `take_over`.
    """
    return ownership.owner_after(
        connection,
        ownership.DEPLOYMENT_CODE,
        old.workspace,
        identity.user,
        old.owner,
        f"deployment `{old.name}`",
        is_asked=takes_over,
        is_needed=changes_what_runs(
            deployment_spec.read(old.document), deployment_spec.read(document), _LABELS_AND_NUMBERS
        ),
    )


def _collected(db: Database, endpoint: Endpoint, spec: DeploymentSpec) -> list[Collected]:
    """What its collections are kept as; a deployment has the case that it was first written in."""
    with db.read() as connection:
        old = store.deployment_named(connection, endpoint, spec.name)
    return collected_data.find(db, endpoint, spec.name if old is None else old.name, spec)


def _changed(connection: Connection, old: Deployment, values: dict[str, Any]) -> Deployment:
    """The deployment with another document: the same revision where its instances can go on."""
    _refuse_deleting(old)
    values["document"] = {**values["document"], "name": old.name}
    values.update(state=ProvisioningState.UPDATING, message="")
    if _keeps_instances(old, values):
        values.update(message=old.message, served_document=values["document"])
        store.change_deployment(connection, old, old.revision, **values)
        return replace(old, **values)
    store.raise_revision(connection, old, **values)
    return replace(old, **values, revision=old.revision + 1)


def _keeps_instances(old: Deployment, values: Mapping[str, Any]) -> bool:
    """Whether the instances that answer can go on, and others be added or end."""
    if old.served_revision != old.revision or values["owner"] != old.owner:
        return False
    before, after = dict(old.document), dict(values["document"])
    for key in _OUTSIDE_INSTANCES:
        before.pop(key, None)
        after.pop(key, None)
    return before == after


def _still_there(endpoint: Endpoint | None) -> Endpoint:
    if endpoint is None or endpoint.state is ProvisioningState.DELETING:
        raise Conflict(
            "the endpoint is being deleted", "create it again", code="endpoint_being_deleted"
        )
    return endpoint


def _refuse_deleting(deployment: Deployment) -> None:
    if deployment.state is ProvisioningState.DELETING:
        raise Conflict(
            f"deployment `{deployment.name}` is being deleted",
            "wait until it is gone, or use another name",
            code="deployment_being_deleted",
        )
