"""Workspaces as documents: from Azure Resource Manager's body, and from the templates' parameters.

Owns: which property is which key of the workspace's document, and back.
Leaves: what the keys mean and which are refused to workspaces/; the routes to workspace_routes.py.
Always: a property that was set reaches workspaces/ under its key, which honours or refuses it;
resources that a template would have made are none that the user named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchyard.azureml.common.calls import object_at
from torchyard.azureml.common.containers import account
from torchyard.workspaces.types import Workspace

_PROPERTIES = {
    "friendlyName": "display_name",
    "description": "description",
    "hbiWorkspace": "hbi_workspace",
    "imageBuildCompute": "image_build_compute",
    "publicNetworkAccess": "public_network_access",
    "systemDatastoresAuthMode": "system_datastores_auth_mode",
    "enableDataIsolation": "enable_data_isolation",
    "allowRoleAssignmentOnRG": "allow_roleassignment_on_rg",
    "provisionNetworkNow": "provision_network_now",
    "primaryUserAssignedIdentity": "primary_user_assigned_identity",
    "hubResourceId": "workspace_hub",
    "serverlessComputeSettings": "serverless_compute",
}
_RESOURCES = {
    "storageAccount": "storage_account",
    "keyVault": "key_vault",
    "applicationInsights": "application_insights",
    "containerRegistry": "container_registry",
}
_OF_SDK_V1 = re.compile(r"(storage|keyvault|insights)[0-9a-f]{1,20}")
_PARAMETERS = {
    "friendlyName": "display_name",
    "description": "description",
    "confidential_data": "hbi_workspace",
    "imageBuildCompute": "image_build_compute",
    "publicNetworkAccess": "public_network_access",
    "systemDatastoresAuthMode": "system_datastores_auth_mode",
    "enable_data_isolation": "enable_data_isolation",
    "primaryUserAssignedIdentity": "primary_user_assigned_identity",
    "workspace_hub": "workspace_hub",
    "serverless_compute_settings": "serverless_compute",
}
_TRUTHS = {"true": True, "false": False}
# What the SDK's template says of everything that the user left out.
_DEFAULTS = {
    "hbi_workspace": False,
    "public_network_access": "Enabled",
    "enable_data_isolation": False,
}
_RESOURCE_PREFIX = "/subscriptions/"
_GIVEN_BACK = frozenset(_PROPERTIES.values()) - {"public_network_access"}


def of_body(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The keys that the body of a PUT or a PATCH sets.

    Raises:
        InvalidInput: its properties are not an object.
    """
    described = object_at(body, "properties")
    document = {
        key: described[name_in_azure]
        for name_in_azure, key in _PROPERTIES.items()
        if described.get(name_in_azure) is not None
    }
    for name_in_azure, key in _RESOURCES.items():
        resource = str(described.get(name_in_azure) or "")
        if resource.lower().startswith(_RESOURCE_PREFIX) and not _is_generated(resource, name):
            document[key] = resource
    return {**document, **_networks(described), **_outer(body)}


def _is_generated(resource: str, name: str) -> bool:
    """Whether nobody chose it: it is what we say of the workspace ourselves, or a new one that
    SDK v1 wants made.

    Source: `get_name_for_dependent_resource` of azureml-core's `azureml/_workspace/_utils.py`.
    """
    called = resource.lower().rpartition("/")[2]
    letters = "".join(character for character in name.lower() if character.isalnum())[:8]
    made = called.removeprefix(letters) if called.startswith(letters) else ""
    return called == account(name).lower() or _OF_SDK_V1.fullmatch(made) is not None


def of_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the parameters of SDK v2's template set."""
    document: dict[str, Any] = {}
    for parameter, key in _PARAMETERS.items():
        value = parameters.get(parameter)
        value = _TRUTHS.get(value.lower(), value) if isinstance(value, str) else value
        if value not in (None, "", {}) and value != _DEFAULTS.get(key):
            document[key] = value
    for resource, key in _RESOURCES.items():
        if parameters.get(f"{resource}Option") == "existing":
            document[key] = parameters.get(f"{resource}Name") or resource
    encryption = {"status": parameters.get("encryption_status")}
    networks = {"managedNetwork": parameters.get("managedNetwork"), "encryption": encryption}
    outer = {"tags": parameters.get("tagValues"), "identity": parameters.get("identity")}
    return {**document, **_networks(networks), **_outer(outer)}


def replaced_tags(workspace: Workspace, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with null for each tag that it lacks: Azure's update replaces all tags."""
    tags = document.get("tags")
    if not isinstance(tags, Mapping):
        return dict(document)
    return {**document, "tags": {**dict.fromkeys(workspace.tags), **tags}}


def properties_of(workspace: Workspace) -> dict[str, Any]:
    """What was set, as Azure's properties."""
    values = {
        "display_name": workspace.display_name or workspace.name,
        "description": workspace.description,
        "public_network_access": "Enabled",
        "hbi_workspace": False,
        **{key: value for key, value in workspace.azure_keys.items() if key in _GIVEN_BACK},
    }
    return {
        name_in_azure: values[key] for name_in_azure, key in _PROPERTIES.items() if key in values
    }


def _networks(properties: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    network = properties.get("managedNetwork")
    mode = network.get("isolationMode") if isinstance(network, Mapping) else None
    if mode:
        document["managed_network"] = {"isolation_mode": mode}
    encryption = properties.get("encryption")
    if isinstance(encryption, Mapping) and str(encryption.get("status")).lower() == "enabled":
        document["customer_managed_key"] = True
    if properties.get("networkAcls"):
        document["network_acls"] = properties["networkAcls"]
    return document


def _outer(body: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if body.get("tags") is not None:
        document["tags"] = body["tags"]
    identity = body.get("identity")
    if isinstance(identity, Mapping) and identity.get("type"):
        document["identity"] = {"type": identity["type"]}
    return document
