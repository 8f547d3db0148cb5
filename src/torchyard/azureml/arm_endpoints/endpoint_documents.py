"""An online endpoint as an ARM resource, and our file of one that a client puts.

Owns: the properties of an endpoint, both ways.
Leaves: the file's grammar to endpoints/spec/, its rows to endpoints/actions/.
Always: what a client reads and puts again changes nothing; no key or token is in it.

Source: https://learn.microsoft.com/rest/api/azureml/online-endpoints/create-or-update
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.azureml.arm.resources import Resource
from torchyard.azureml.common.calls import Call, object_at, refuse_others
from torchyard.base import fields
from torchyard.base.errors import InvalidSpec
from torchyard.endpoints.records import address
from torchyard.endpoints.records.types import AuthMode, Endpoint

TYPE = "onlineEndpoints"
_AUTH_MODES = {
    AuthMode.KEY: "Key",
    AuthMode.AML_TOKEN: "AMLToken",
    AuthMode.AAD_TOKEN: "AADToken",
}
_SAME = {
    "authMode": "auth_mode",
    "description": "description",
    "traffic": "traffic",
    "mirrorTraffic": "mirror_traffic",
    "publicNetworkAccess": "public_network_access",
    "compute": "compute",
}
# Azure's schema 2022-02-01-preview, PartialOnlineEndpoint.
_PATCHED = ("mirrorTraffic", "publicNetworkAccess", "traffic")
_READ_ONLY = ("provisioningState", "scoringUri", "swaggerUri")
_BESIDE = ("properties", "identity", "tags", "location", "kind", "sku")
# The client adds them to the properties that it has read, and sends them with the next change.
_OF_CLIENT = ("createdBy", "createdAt", "lastModifiedAt")


def read(call: Call, name: str) -> dict[str, Any]:
    """Our file of the endpoint that a PUT describes.

    Raises:
        InvalidInput: a value of the wrong form.
        InvalidSpec: a key that torchyard does not have.
    """
    document = read_same(call, name, _SAME, ("keys",), "an online endpoint")
    _refuse_chosen_keys(call.properties)
    return document


def read_same(
    call: Call, name: str, same: Mapping[str, str], others: Sequence[str], noun: str
) -> dict[str, Any]:
    """What a PUT says of an endpoint by the keys that mean the same in our file.

    Args:
        same: our names of such keys, by Azure's.
        others: the kind's other keys.
    """
    properties = call.properties
    keys = (*same, "properties", *others, *_READ_ONLY)
    refuse_others(properties, keys, ("properties",), f" of {noun}")
    document: dict[str, Any] = {"name": name}
    for key, value in properties.items():
        if key in same and value is not None:
            document[same[key]] = value
        elif key == "properties":
            texts = fields.texts(properties, key)
            document[key] = {name: texts[name] for name in texts if name not in _OF_CLIENT}
    return {**document, **_beside(call.document)}


def read_patch(call: Call) -> dict[str, Any]:
    """What a PATCH changes: tags and identity, as in Azure.

    Raises:
        InvalidSpec: another key.
    """
    return _patched_beside(call.document)


def read_online_patch(call: Call) -> dict[str, Any]:
    """What a PATCH of an online endpoint changes: traffic, too, which azureml-mlflow divides so.

    Raises:
        InvalidSpec: another key.
    """
    others = {key: value for key, value in call.document.items() if key != "properties"}
    properties = call.properties if "properties" in call.document else {}
    refuse_others(properties, _PATCHED, ("properties",), " that a PATCH changes")
    changes = {_SAME[key]: value for key, value in properties.items() if value is not None}
    return {**changes, **_patched_beside(others)}


def _patched_beside(document: Mapping[str, Any]) -> dict[str, Any]:
    refuse_others(document, ("tags", "identity", "location", "kind", "sku"))
    return _beside(document)


def to_resource(home: Path, call: Call, endpoint: Endpoint) -> Resource:
    url = address.of_endpoint(home, endpoint.workspace, endpoint.name)
    document = endpoint.document
    properties = {
        "authMode": _AUTH_MODES[endpoint.auth_mode],
        "compute": None,
        "description": document.get("description") or "",
        "mirrorTraffic": dict(endpoint.mirror_traffic),
        "properties": fields.texts(document, "properties"),
        "provisioningState": endpoint.state.value,
        "publicNetworkAccess": "Enabled",
        "scoringUri": f"{url}/score" if url else None,
        "swaggerUri": f"{url}/swagger.json" if url else None,
        "traffic": dict(endpoint.traffic),
    }
    return Resource(
        (TYPE, endpoint.name),
        properties,
        endpoint.created_at,
        endpoint.owner,
        endpoint.changed_at,
        shown_beside(call, document, "Managed"),
    )


def shown_beside(call: Call, document: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    return {
        "identity": {"type": "SystemAssigned", "principalId": None, "tenantId": None},
        "kind": kind,
        "location": call.workspace.location,
        "tags": fields.texts(document, "tags"),
    }


def _beside(document: Mapping[str, Any]) -> dict[str, Any]:
    """What stands beside the properties."""
    refuse_others(document, _BESIDE)
    document_fields: dict[str, Any] = {}
    if document.get("tags") is not None:
        document_fields["tags"] = fields.texts(document, "tags")
    identity = object_at(document, "identity")
    if identity.get("userAssignedIdentities"):
        document_fields["identity"] = {"type": "UserAssigned"}
    elif identity.get("type") is not None:
        document_fields["identity"] = {"type": fields.text(identity, "type", ("identity",))}
    return document_fields


def _refuse_chosen_keys(properties: Mapping[str, Any]) -> None:
    if any(object_at(properties, "keys").values()):
        raise InvalidSpec(
            "an endpoint with keys that its client chose is not served",
            "leave `keys` out: `online_endpoints.get_keys` returns those that were drawn",
            code="not_served",
            at=("properties", "keys"),
        )
