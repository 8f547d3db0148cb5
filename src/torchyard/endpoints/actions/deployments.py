"""What can be done with deployments of an endpoint.

Owns: creating, changing, listing and deleting them; their logs.
Leaves: their file's grammar to spec/, what it names to deployed_models.py, instances and how far a
deployment has got to running/.
Always: an accepted change is a new revision, or nothing at all; one of the number of instances
alone leaves those that answer as they are; instances run as the person who wrote what they run, or
took it over; a deployment with traffic is not deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.endpoints.actions import deployed_models
from torchyard.endpoints.actions.deployed_models import Pinned
from torchyard.endpoints.actions.deployment_kind import DeploymentKind
from torchyard.endpoints.actions.endpoints import ONLINE
from torchyard.endpoints.records import collected_data, store
from torchyard.endpoints.records.types import (
    Deployment,
    Endpoint,
    Instance,
    InstanceState,
    ProvisioningState,
)
from torchyard.endpoints.spec import deployment_spec
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec, OnlineDeploymentFile
from torchyard.jobs import actions as jobs
from torchyard.jobs.files import artifacts
from torchyard.jobs.records import job_masking
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.workspaces import ownership
from torchyard.workspaces.types import Identity

_MOST_LINES = 100_000
_LOG_MOST_BYTES = 4 << 20
# What instances don't know: how many there are, and how requests come to them.
_OUTSIDE_INSTANCES = ("instance_count", "scale_settings", "request_settings", "description")


class OnlineDeployments(DeploymentKind[Endpoint, Deployment]):
    endpoints = ONLINE
    rule = ownership.DEPLOYMENT_CODE
    limit = 20
    full_hint = "delete those without traffic"
    outside = (
        *_OUTSIDE_INSTANCES, "name", "endpoint_name", "instance_type", "tags", "properties",
        "notices",
    )  # fmt: skip
    file = OnlineDeploymentFile
    make = Deployment
    rows = store.deployment_rows
    read = staticmethod(deployment_spec.read)

    def prepare(
        self,
        services: Services,
        endpoint: Endpoint,
        document: Mapping[str, Any],
        spec: DeploymentSpec,
        identity: Identity,
        takes_over: bool,
    ) -> Pinned:
        old = self.named(services.db, endpoint, spec.name)
        # A deployment has the case that it was first written in.
        name = spec.name if old is None else old.name
        collected = collected_data.find(services.db, endpoint, name, spec)
        workspace, cluster = endpoint.workspace, spec.own_settings.cluster
        pinned = deployed_models.pin(services, workspace, document, spec, identity, cluster)
        if old is not None:
            with services.db.read() as connection:
                self.owner_after(connection, old, pinned.document, identity, takes_over)
        collected_data.register(services, endpoint, collected, identity.user)
        if "model" in pinned.document:  # what was found of it
            spec = deployment_spec.read({**document, "model": pinned.document["model"]})
        return replace(pinned, notices=(*spec.notices, *pinned.notices))

    def endpoint_to_change(self, connection: Connection, workspace: str, name: str) -> Endpoint:
        endpoint = self.endpoints.rows.get(connection, workspace, name)
        if endpoint is None or endpoint.state is ProvisioningState.DELETING:
            raise Conflict(
                "the endpoint is being deleted", "create it again", code="endpoint_being_deleted"
            )
        return endpoint

    def files_in_use(self, deployment: Deployment) -> Sequence[Mapping[str, Any]]:
        if deployment.state is ProvisioningState.DELETING:
            return ()
        return (deployment.document, deployment.served_document)

    def change(self, connection: Connection, old: Deployment, values: dict[str, Any]) -> Deployment:
        """The same revision where its instances can go on."""
        _refuse_deleting(old)
        values.update(state=ProvisioningState.UPDATING, message="")
        if _keeps_instances(old, values):
            values.update(message=old.message, served_document=values["document"])
            store.change_deployment(connection, old, old.revision, **values)
            return replace(old, **values)
        store.raise_revision(connection, old, **values)
        return replace(old, **values, revision=old.revision + 1)

    def remove(
        self, connection: Connection, endpoint: Endpoint, deployment: Deployment, now: datetime
    ) -> Deployment:
        """It is gone once its instances have ended."""
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
        values: dict[str, Any] = {"state": ProvisioningState.DELETING, "changed_at": now}
        store.change_deployment(connection, deployment, **values)
        return replace(deployment, **values)


ONLINE_DEPLOYMENTS = OnlineDeployments()
create, get = ONLINE_DEPLOYMENTS.create, ONLINE_DEPLOYMENTS.get
named, list_in = ONLINE_DEPLOYMENTS.named, ONLINE_DEPLOYMENTS.list_in


def instances_of(services: RecordServices, deployment: Deployment) -> list[Instance]:
    with services.db.read() as connection:
        return store.instances_in(
            connection, deployment.workspace, deployment.endpoint, deployment.name
        )


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


def _keeps_instances(old: Deployment, values: Mapping[str, Any]) -> bool:
    """Whether the instances that answer can go on, and others be added or end."""
    if old.served_revision != old.revision or values["owner"] != old.owner:
        return False
    before, after = dict(old.document), dict(values["document"])
    for key in _OUTSIDE_INSTANCES:
        before.pop(key, None)
        after.pop(key, None)
    return before == after


def _refuse_deleting(deployment: Deployment) -> None:
    if deployment.state is ProvisioningState.DELETING:
        raise Conflict(
            f"deployment `{deployment.name}` is being deleted",
            "wait until it is gone, or use another name",
            code="deployment_being_deleted",
        )
