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
