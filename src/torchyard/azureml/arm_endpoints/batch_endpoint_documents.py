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
from torchyard.azureml.arm_endpoints.endpoint_documents import read_same, shown_beside
from torchyard.azureml.common.calls import Call, object_at
from torchyard.base import fields
from torchyard.batch_endpoints.records.types import BatchEndpoint

TYPE = "batchEndpoints"
_SAME = {"authMode": "auth_mode", "description": "description"}
_TOKENS = "AADToken"


def read(call: Call, name: str) -> dict[str, Any]:
    """Our file of the endpoint that a PUT describes.

    Raises:
        InvalidInput: a value of the wrong form.
        InvalidSpec: a key that torchyard does not have.
    """
    document = read_same(call, name, _SAME, ("defaults",), "a batch endpoint")
    return {**document, **_defaults(call.properties)}


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
        shown_beside(call, document, None),
    )


def _defaults(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing where no deployment is named: the default stays."""
    at = ("properties", "defaults")
    name = fields.text(object_at(properties, "defaults"), "deploymentName", at)
    return {"defaults": {"deployment_name": name}} if name else {}
