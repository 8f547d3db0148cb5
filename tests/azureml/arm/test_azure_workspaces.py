"""What is above workspaces, in the requests of Azure ML's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from azureml.azure_server import Azure
from workspaces.served import served

GROUP = "/subscriptions/local/resourceGroups/torchyard/providers"
REGISTRIES = f"{GROUP}/Microsoft.MachineLearningServices/registries"
ACCOUNT = f"{GROUP}/Microsoft.Storage/storageAccounts/torchyard1"


@pytest.fixture
def azure(tmp_path: Path, database_url: str) -> Iterator[Azure]:
    with served(tmp_path, database_url) as site:
        yield Azure(site)


def test_a_list_of_registries_is_empty_and_one_is_refused_by_name(azure: Azure) -> None:
    assert azure.ask("GET", REGISTRIES) == {"value": []}
    assert azure.ask("GET", "/subscriptions/local/providers/" + REGISTRIES.split("/", 6)[6]) == {
        "value": []
    }
    answer = azure.answer("GET", f"{REGISTRIES}/azureml")
    assert answer.status_code != 404 and "has no registries" in answer.text


def test_only_the_servers_owner_deletes_a_workspace_with_its_account(azure: Azure) -> None:
    assert azure.answer("DELETE", ACCOUNT).status_code == 403
    owner = Azure(azure.site, "home")
    assert owner.answer("DELETE", ACCOUNT).status_code == 204


def test_what_was_set_is_given_back(azure: Azure) -> None:
    azure.user = "home"
    resource_id = f"{GROUP}/Microsoft.MachineLearningServices/workspaces/vision"
    properties = {
        "friendlyName": "Pictures",
        "description": "of the sea",
        "hbiWorkspace": True,
        "imageBuildCompute": "cpu",
        "storageAccount": "[resourceId('Microsoft.Storage/storageAccounts', 'made-with-it')]",
    }
    body = {"location": "eastus", "tags": {"a": "1", "b": "2"}, "properties": properties}
    assert azure.answer("PUT", resource_id, body).status_code == 201
    made = azure.ask("GET", resource_id)
    assert made["tags"] == {"a": "1", "b": "2"}
    assert {key: made["properties"][key] for key in properties if key != "storageAccount"} == {
        key: value for key, value in properties.items() if key != "storageAccount"
    }
    # The clients send the whole workspace back as they got it.
    assert azure.answer("PUT", resource_id, made).status_code == 200
    changes = {
        "tags": {"b": "3"},
        "properties": {"friendlyName": "Photos", "containerRegistry": ""},
    }
    changed = azure.ask("PATCH", resource_id, changes)
    assert (changed["tags"], changed["properties"]["friendlyName"]) == ({"b": "3"}, "Photos")
    assert changed["properties"]["description"] == "of the sea"
    assert azure.ask("PATCH", resource_id, {"properties": {}})["tags"] == {"b": "3"}


@pytest.mark.parametrize(
    ("properties", "key"),
    [
        ({"storageAccount": ACCOUNT}, "storage_account"),
        ({"keyVault": f"{GROUP}/Microsoft.KeyVault/vaults/v"}, "key_vault"),
        ({"publicNetworkAccess": "Disabled"}, "public_network_access"),
        ({"managedNetwork": {"isolationMode": "AllowInternetOutbound"}}, "managed_network"),
        ({"encryption": {"status": "Enabled"}}, "customer_managed_key"),
    ],
)
def test_resources_and_networks_of_azure_are_refused_by_name(
    azure: Azure, properties: dict[str, object], key: str
) -> None:
    azure.user = "home"
    resource_id = f"{GROUP}/Microsoft.MachineLearningServices/workspaces/vision"
    error = azure.refused(400, "PUT", resource_id, {"location": "x", "properties": properties})
    assert key in error["message"]


def test_resources_that_sdk_v1_wants_made_are_not_a_persons_choice(azure: Azure) -> None:
    azure.user = "home"
    resource_id = f"{GROUP}/Microsoft.MachineLearningServices/workspaces/sdk-v1-made"
    properties = {
        "storageAccount": f"{GROUP}/Microsoft.Storage/storageAccounts/sdkv1madstorage0a1b2c3d4",
        "keyVault": f"{GROUP}/Microsoft.KeyVault/vaults/sdkv1madkeyvault0a1b2c3d",
        "applicationInsights": f"{GROUP}/microsoft.insights/components/sdkv1madinsights0a1b2c3d",
    }
    made = azure.ask("PUT", resource_id, {"location": "x", "properties": properties})
    assert made["name"] == "sdk-v1-made"
    other = {"storageAccount": f"{GROUP}/Microsoft.Storage/storageAccounts/labstorage1"}
    azure.refused(400, "PUT", resource_id, {"location": "x", "properties": other})
