"""Compute as ARM resources: clusters, and their nodes.

Owns: a cluster's properties, and the document that they stand for; which kinds are refused.
Leaves: clusters and sizes to compute/, clusters with jobs on them to jobs/scheduling/clusters.py.
Always: a create is complete when it is answered; every documented key exists, for older clients
read keys without checking; durations are ISO 8601 in Azure's JSON and seconds in our documents.

Source: https://learn.microsoft.com/rest/api/azureml/compute/get
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torchyard.azureml.arm import assets, compute_instances
from torchyard.azureml.arm.job_documents import duration_s
from torchyard.azureml.arm.resources import (
    Accepted,
    Action,
    Page,
    PageRequest,
    Permissions,
    PutResult,
    Resource,
    timestamp,
)
from torchyard.azureml.common.calls import Call, object_at
from torchyard.azureml.common.errors import NotServed
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.compute import actions, engine_settings
from torchyard.compute.types import Compute, Use
from torchyard.instances import actions as instances
from torchyard.instances.types import Instance
from torchyard.jobs.scheduling import clusters
from torchyard.jobs.services import Services
from torchyard.workspaces import people
from torchyard.workspaces.permissions import Permission

THIS_MACHINE = "local"
"""The `vmSize` of nodes without a size: Azure's clients need some text."""

_KINDS = {
    "kubernetes": "Kubernetes clusters",
    "aks": "Kubernetes clusters",
    "virtualmachine": "attached virtual machines",
    "synapsespark": "Spark pools",
    "hdinsight": "HDInsight clusters",
    "databricks": "Databricks workspaces",
    "datafactory": "data factories",
    "datalakeanalytics": "data lakes",
}
_INSTANCE_ACTIONS = ("start", "stop", "restart")
_STATES = ("idle", "running", "preparing", "unusable", "leaving", "preempted")


def name_availability(db: Database, call: Call) -> dict[str, Any]:
    """Whether a new compute may have a name; SDK v1 asks before it creates an instance."""
    name = str(call.document.get("Name") or call.document.get("name") or "")
    workspace = call.workspace.name
    names = {compute.name.lower() for compute, _ in actions.list_in(db, workspace)}
    names |= {instance.name.lower() for instance in instances.list_in(db, workspace)}
    if name.lower() not in names:
        return {"nameAvailable": True}
    message = f"compute `{name}` already exists in workspace `{workspace}`"
    return {"nameAvailable": False, "reason": "AlreadyExists", "message": message}


class Computes:
    """The `Kind` of computes."""

    permissions = Permissions(
        put=Permission.COMPUTE,
        patch=Permission.COMPUTE,
        delete=Permission.COMPUTE,
        actions={
            "listnodes": Permission.READ,
            **dict.fromkeys(_INSTANCE_ACTIONS, Permission.WRITE),
            "enablesso": Permission.COMPUTE,
        },
    )

    def __init__(self, services: Services) -> None:
        self._services = services
        self.actions: Mapping[str, Action] = {
            "listnodes": self._nodes,
            "start": partial(self._act, instances.start),
            "stop": partial(self._act, instances.stop),
            "restart": partial(self._act, instances.restart),
            "enablesso": self._refuse_instance_action,
        }

    def list(self, call: Call, request: PageRequest) -> Page:
        computes = actions.list_in(self._services.db, call.workspace.name)
        rows = [(compute.name, to_resource(call, compute, use)) for compute, use in computes]
        rows += [
            (instance.name, compute_instances.to_resource(self._services.db, call, instance))
            for instance in instances.list_in(self._services.db, call.workspace.name)
        ]
        return assets.page_of(call, request, rows)

    def get(self, call: Call, name: str) -> Resource:
        instance = self._instance(call, name)
        if instance is not None:
            return compute_instances.to_resource(self._services.db, call, instance)
        return self._resource(call, self._existing(call, name))

    def put(self, call: Call, name: str) -> PutResult:
        instance = self._instance(call, name)
        if instance is not None or compute_instances.is_instance(call):
            return self._put_instance(call, instance.name if instance else name, instance is None)
        patched = call.method == "PATCH"
        before = self._existing(call, name) if patched else self._find(call, name)
        document = document_of(call, before if patched else None)
        compute = actions.create(
            self._services.db,
            self._services.clock,
            call.workspace.name,
            {**document, "name": before.name if before else name},
            home=self._services.home,
            owner=call.identity.user,
            engines=self._services.engines.names,
            describe=self._services.engines.describe,
            may_name_files=people.administers(self._services.db, call.identity),
            has_runner=self._services.runner is not None,
        )
        return PutResult(self._resource(call, compute), before is None, slow=True)

    def delete(self, call: Call, name: str) -> None:
        instance = self._instance(call, name)
        if instance is not None:
            instances.delete(self._services, call.workspace.name, instance.name, call.identity.user)
            return
        action = assets.query_value(call, "underlyingresourceaction") or "Delete"
        compute = self._existing(call, name)
        if action.lower() != "delete":
            raise InvalidInput(
                f"compute `{compute.name}` is torchyard's own and can't be detached",
                "delete it: `underlyingResourceAction=Delete`",
            )
        clusters.delete(self._services, call.workspace.name, compute.name, call.identity.user)

    def _instance(self, call: Call, name: str) -> Instance | None:
        return instances.find(self._services.db, call.workspace.name, name)

    def _put_instance(self, call: Call, name: str, is_new: bool) -> PutResult:
        document = {**compute_instances.document_of(call), "name": name}
        made = instances.create(self._services, call.workspace.name, document, call.identity)
        resource = compute_instances.to_resource(self._services.db, call, made)
        return PutResult(resource, is_new, slow=True)

    def _act(
        self, act: Callable[[Services, str, str, str], Instance], call: Call, name: str
    ) -> Accepted:
        """Start, stop or restart an instance.

        Raises:
            NotServed: it is a cluster.
        """
        instance = self._instance(call, name)
        if instance is None:
            raise self._no_instance(call, name)
        act(self._services, call.workspace.name, instance.name, call.identity.user)
        return Accepted()

    def _find(self, call: Call, name: str) -> Compute | None:
        """In any case, as ARM compares names."""
        names = [
            compute.name for compute, _ in actions.list_in(self._services.db, call.workspace.name)
        ]
        written = assets.match_case(name, names) if name not in names else name
        if written not in names:
            return None
        return actions.get(self._services.db, call.workspace.name, written)

    def _existing(self, call: Call, name: str) -> Compute:
        try:
            return actions.get(self._services.db, call.workspace.name, name)
        except NotFound:
            compute = self._find(call, name)
            if compute is None:
                raise
            return compute

    def _resource(self, call: Call, compute: Compute) -> Resource:
        return to_resource(call, compute, actions.use(self._services.db, compute))

    def _nodes(self, call: Call, name: str) -> dict[str, Any]:
        compute = self._existing(call, name)
        nodes = clusters.nodes(self._services.db, call.workspace.name, compute.name)
        return {
            "nodes": [
                {
                    "nodeId": node.name,
                    "privateIpAddress": None,
                    "publicIpAddress": None,
                    "port": None,
                    "nodeState": node.state,
                    "runId": node.job or None,
                }
                for node in nodes
            ],
            # No `nextLink`: SDK v1 follows one that is null.
        }

    def _refuse_instance_action(self, call: Call, name: str) -> None:
        raise self._no_instance(call, name)

    def _no_instance(self, call: Call, name: str) -> NotServed:
        compute = self._existing(call, name)
        return NotServed(
            f"compute `{compute.name}` is a cluster, which is neither started nor stopped",
            "its nodes start and stop with its jobs",
        )


def document_of(call: Call, before: Compute | None = None) -> dict[str, Any]:
    """The YAML document that a PUT stands for; `before` has the values that a PATCH omits.

    Raises:
        NotServed: a kind of compute that torchyard does not have.
        InvalidSpec: a value of the wrong form.
        InvalidInput: `properties` of the wrong form.
    """
    kind = str(call.properties.get("computeType") or "AmlCompute")
    if kind.lower() != "amlcompute":
        subject = _KINDS.get(kind.lower(), f"compute of type `{kind[:40]}`")
        raise NotServed(
            f"torchyard does not serve {subject}",
            "create a cluster, `type: amlcompute`, or an instance, `type: computeinstance`",
            at=["properties", "computeType"],
        )
    inner = object_at(call.properties, "properties", ("properties",))
    document: dict[str, Any] = {"type": "amlcompute"}
    if before is not None:
        document |= {
            "size": before.size, "tier": before.tier, "description": before.description,
            "min_instances": before.min_instances, "max_instances": before.max_instances,
            "idle_time_before_scale_down": before.idle_time_before_scale_down,
            "tags": before.tags or {},
        }  # fmt: skip
    size = inner.get("vmSize")
    if size is not None:
        document["size"] = "" if str(size).lower() == THIS_MACHINE else size
    if inner.get("vmPriority") is not None:
        document["tier"] = str(inner["vmPriority"])
    if call.properties.get("description") is not None:
        document["description"] = call.properties["description"]
    if call.document.get("tags") is not None:
        tags = object_at(call.document, "tags")
        document["tags"] = {key: text for key, text in tags.items() if text is not None}
    return {**document, **_scale(inner), **_refused_settings(call, inner)}


def to_resource(call: Call, compute: Compute, use: Use) -> Resource:
    """A cluster as an ARM resource."""
    created = timestamp(compute.created_at)
    scale = {
        "minNodeCount": compute.min_instances,
        "maxNodeCount": compute.max_instances,
        "nodeIdleTimeBeforeScaleDown": f"PT{compute.idle_time_before_scale_down}S",
    }
    inner: dict[str, Any] = {
        "osType": "Linux",
        "vmSize": compute.size or THIS_MACHINE,
        "vmPriority": "LowPriority" if compute.tier == "low_priority" else "Dedicated",
        "virtualMachineImage": None,
        "isolatedNetwork": False,
        "scaleSettings": scale,
        "userAccountCredentials": None,
        "subnet": None,
        "remoteLoginPortPublicAccess": "Disabled",
        "allocationState": "Steady" if use.current == use.target else "Resizing",
        "allocationStateTransitionTime": created,
        "errors": [],
        "currentNodeCount": use.current,
        "targetNodeCount": use.target,
        "nodeStateCounts": {f"{state}NodeCount": use.counts[state] for state in _STATES},
        "enableNodePublicIp": None,
        "propertyBag": {},
    }
    properties: dict[str, Any] = {
        "computeType": "AmlCompute",
        "computeLocation": call.workspace.location,
        "description": compute.description,
        "resourceId": None,
        "createdOn": created,
        "modifiedOn": created,
        "provisioningState": compute.provisioning_state,
        "provisioningErrors": [],
        "isAttachedCompute": False,
        "disableLocalAuth": True,
        "properties": inner,
    }
    extra = {
        "location": call.workspace.location,
        "tags": {
            **(compute.tags or {}),
            **engine_settings.as_tags(compute.engine, compute.engine_settings or {}),
        },
        "identity": None,
        "sku": None,
    }
    return Resource(
        ("computes", compute.name), properties, compute.created_at, compute.owner, extra=extra
    )


def _scale(inner: Mapping[str, Any]) -> dict[str, Any]:
    settings = object_at(inner, "scaleSettings", ("properties", "properties"))
    scale = {
        key: settings[azure_key]
        for key, azure_key in (("min_instances", "minNodeCount"), ("max_instances", "maxNodeCount"))
        if settings.get(azure_key) is not None
    }
    idle = settings.get("nodeIdleTimeBeforeScaleDown")
    if idle is not None:
        at = ("properties", "properties", "scaleSettings", "nodeIdleTimeBeforeScaleDown")
        scale["idle_time_before_scale_down"] = duration_s(str(idle), at)
    return scale


def _refused_settings(call: Call, inner: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that the cluster's document refuses, in its terms, except those that clients always
    send.
    """
    refused: dict[str, Any] = {}
    if inner.get("userAccountCredentials"):
        refused["ssh_settings"] = inner["userAccountCredentials"]
    if str(inner.get("remoteLoginPortPublicAccess") or "").lower() == "enabled":
        refused["ssh_public_access_enabled"] = True
    if inner.get("subnet"):
        refused["network_settings"] = inner["subnet"]
    identity = object_at(call.document, "identity")
    if str(identity.get("type") or "None").lower() != "none":
        refused["identity"] = identity
    return refused
