"""An online deployment as an ARM resource, and our file of one that a client puts.

Owns: the properties of a deployment, both ways; what a client only sends back.
Leaves: its parts to parts.py, what it names to references.py, the file's grammar to
endpoints/spec/, pinning to endpoints/actions/.
Always: what a client reads and puts again means the same deployment, also where it was made by
`yard` with what Azure has no word for; no secret is shown, and a hidden one stays as it is.

Source: https://learn.microsoft.com/rest/api/azureml/online-deployments/create-or-update
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.resources import Resource
from torchyard.azureml.arm_endpoints import parts, references
from torchyard.azureml.arm_endpoints.endpoint_documents import TYPE
from torchyard.azureml.arm_endpoints.references import SnapshotOf
from torchyard.azureml.common.calls import Call, object_at, refuse_others
from torchyard.base import fields
from torchyard.base.documents import secret_variables
from torchyard.endpoints.records.types import Deployment
from torchyard.endpoints.spec import deployment_spec

_SAME = {
    "endpointComputeType": "type",
    "description": "description",
    "appInsightsEnabled": "app_insights_enabled",
    "instanceType": "instance_type",
    "egressPublicNetworkAccess": "egress_public_network_access",
    "modelMountPath": "model_mount_path",
    "containerResourceRequirements": "resources",
}
_READ_ONLY = ("provisioningState",)
_BESIDE = ("properties", "tags", "sku", "location", "kind", "identity")
_OWN, _OWN_PREFIX = "torchyard", "torchyard."


def read(
    call: Call, endpoint: str, name: str, before: Deployment | None, snapshot_of: SnapshotOf
) -> dict[str, Any]:
    """Our file of the deployment that a PUT describes.

    Args:
        before: the deployment as it is, if there is one.

    Raises:
        InvalidInput: a value of the wrong form.
        InvalidSpec: a key that torchyard does not have.
        NotFound: it names something in another workspace, or code that is gone.
    """
    properties = call.properties
    keys = (*_SAME, *parts.KEYS, *references.NAMED, *_READ_ONLY)
    keys = (*keys, "properties", "environmentVariables")
    refuse_others(properties, keys, ("properties",), " of an online deployment")
    stored = {} if before is None else before.document
    shown = {} if before is None else _properties(call, before)
    document: dict[str, Any] = {"name": name, "endpoint_name": endpoint}
    document |= references.named(call, properties, _model, snapshot_of, stored, shown)
    for key, value in properties.items():
        if value is None:
            continue
        if key in _SAME:
            document[_SAME[key]] = value
        elif key in parts.KEYS:
            document.update(parts.read(call, key, properties, f"{endpoint}-{name}"))
        elif key == "properties":
            document[key] = fields.texts(properties, key)
        elif key == "environmentVariables":
            document["environment_variables"] = references.variables(properties, stored)
    return {**document, **_beside(call.document)}


def read_patch(call: Call) -> dict[str, Any]:
    """What a PATCH changes: tags, and the number of instances.

    Raises:
        InvalidSpec: another key.
    """
    refuse_others(call.document, ("tags", "sku"))
    return _beside(call.document)


def to_resource(call: Call, deployment: Deployment) -> Resource:
    spec = deployment_spec.read(deployment.document)
    return Resource(
        (TYPE, deployment.endpoint, "deployments", deployment.name),
        _properties(call, deployment),
        deployment.created_at,
        deployment.owner,
        deployment.changed_at,
        {
            "kind": "Managed",
            "location": call.workspace.location,
            "sku": {"name": "Default", "capacity": spec.instance_count},
            "tags": dict(spec.tags),
        },
    )


def _properties(call: Call, deployment: Deployment) -> dict[str, Any]:
    document = secret_variables.masked_document(deployment.document)
    spec = deployment_spec.read(deployment.document)
    return {
        "appInsightsEnabled": bool(document.get("app_insights_enabled") or False),
        "codeConfiguration": references.code_json(call, spec.code),
        "dataCollector": parts.data_collector(call, document),
        "description": spec.description,
        "egressPublicNetworkAccess": "Enabled",
        "endpointComputeType": "Managed",
        "environmentId": references.environment_id(call, spec.environment),
        "environmentVariables": fields.texts(document, "environment_variables"),
        "instanceType": spec.instance_type or None,
        "livenessProbe": parts.probe(spec.liveness_probe),
        "model": references.model_id(call, spec.model),
        "modelMountPath": None,
        "properties": _texts_shown(document),
        "provisioningState": deployment.state.value,
        "readinessProbe": parts.probe(spec.readiness_probe),
        "requestSettings": parts.request_settings(spec.request_settings),
        "scaleSettings": parts.scale_settings(spec.scale_settings),
    }


def _model(call: Call, properties: Mapping[str, Any]) -> str:
    return references.reference(call, fields.text(properties, "model", ("properties",)), "models")


def _texts_shown(document: Mapping[str, Any]) -> dict[str, str]:
    """The properties, with what stands below `torchyard:` as Azure's clients say it."""
    settings = {
        f"{_OWN_PREFIX}{key}": value if isinstance(value, str) else json.dumps(value)
        for key, value in object_at(document, _OWN).items()
        if value is not None
    }
    return {**fields.texts(document, "properties"), **settings}


def _beside(document: Mapping[str, Any]) -> dict[str, Any]:
    """What stands beside the properties."""
    refuse_others(document, _BESIDE)
    fields_to_keep: dict[str, Any] = {}
    if document.get("tags") is not None:
        fields_to_keep["tags"] = fields.texts(document, "tags")
    capacity = object_at(document, "sku").get("capacity")
    if capacity is not None:
        fields_to_keep["instance_count"] = capacity
    return fields_to_keep
