"""A batch endpoint as an ARM resource, and our file of one that a client puts.

Owns: the properties of a batch endpoint, both ways; the address that its jobs are posted to.
Leaves: the file's grammar to batch_endpoints/spec/, its rows to batch_endpoints/actions/.
Always: what a client reads and puts again changes nothing.

Source: https://learn.microsoft.com/rest/api/azureml/batch-endpoints/create-or-update
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.resources import Resource
from torchyard.azureml.arm_endpoints.endpoint_documents import beside, texts_of
from torchyard.azureml.common.calls import Call, object_at, refuse_others
from torchyard.base import fields
from torchyard.batch_endpoints.records.types import BatchEndpoint

TYPE = "batchEndpoints"
_READ_ONLY = ("provisioningState", "scoringUri", "swaggerUri")
_TOKENS = "AADToken"


def read(call: Call, name: str) -> dict[str, Any]:
    """Our file of the endpoint that a PUT describes.

    Raises:
        InvalidInput: a value of the wrong form.
        InvalidSpec: a key that torchyard does not have.
    """
    properties = call.properties
    keys = ("authMode", "description", "defaults", "properties", *_READ_ONLY)
    refuse_others(properties, keys, ("properties",), " of a batch endpoint")
    document: dict[str, Any] = {"name": name}
    for key, value in properties.items():
        if key == "authMode" and value is not None:
            document["auth_mode"] = value
        elif key == "description" and value is not None:
            document["description"] = value
        elif key == "defaults":
            document.update(_defaults(properties))
        elif key == "properties":
            document["properties"] = texts_of(properties)
    return {**document, **beside(call.document)}


def to_resource(call: Call, endpoint: BatchEndpoint) -> Resource:
    document = endpoint.document
    properties = {
        "authMode": _TOKENS,
        # Not null without one: people set `endpoint.defaults.deployment_name` of what they read.
        "defaults": {"deploymentName": endpoint.default_deployment or None},
        "description": document.get("description") or "",
        "properties": fields.texts(document, "properties"),
        "provisioningState": "Succeeded",
        "scoringUri": f"{call.base}{call.id(TYPE, endpoint.name)}/jobs",
        "swaggerUri": None,
    }
    return Resource(
        (TYPE, endpoint.name),
        properties,
        endpoint.created_at,
        endpoint.owner,
        endpoint.changed_at,
        {
            "identity": {"type": "SystemAssigned", "principalId": None, "tenantId": None},
            "kind": None,
            "location": call.workspace.location,
            "tags": fields.texts(document, "tags"),
        },
    )


def _defaults(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing where no deployment is named: the default stays."""
    at = ("properties", "defaults")
    name = fields.text(object_at(properties, "defaults"), "deploymentName", at)
    return {"defaults": {"deployment_name": name}} if name else {}
