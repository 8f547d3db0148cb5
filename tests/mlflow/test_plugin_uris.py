"""The plug-in's spelling of file URIs, and which clients get it."""

from __future__ import annotations

import json

import pytest
from fastapi import Request
from fastapi.responses import JSONResponse

from torchyard.azureml.common.paths import SCOPE_KEY, AzurePath
from torchyard.mlflow import plugin_uris
from torchyard.mlflow.plugin_uris import Plugin

SCOPE = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
PLUGIN = Plugin("h:1", SCOPE)
PAIRS = {
    "mlflow-artifacts:/7/run/artifacts": f"artifact/v2.0{SCOPE}/experiments/7/runs/run/artifacts",
    "mlflow-artifacts:/7/run/artifacts/a/b": (
        f"artifact/v2.0{SCOPE}/experiments/7/runs/run/artifacts/a/b"
    ),
    "mlflow-artifacts:/0/models/m-1/artifacts": "LoggedModel/m-1/artifacts",
    "mlflow-artifacts:/registered/tree/2": "RegisteredModel/tree/2",
}


@pytest.mark.parametrize("server_uri", PAIRS)
def test_uris_are_translated_in_both_directions(server_uri: str) -> None:
    plugin_uri = f"azureml://h:1/{PAIRS[server_uri]}"
    assert PLUGIN.to_plugin_uri(server_uri) == plugin_uri
    assert plugin_uris.translate_fields({"source": plugin_uri}) == {"source": server_uri}


@pytest.mark.parametrize("uri", ["s3://bucket/x", "mlflow-artifacts:/7", "models:/tree/1", ""])
def test_other_uris_stay_unchanged(uri: str) -> None:
    assert PLUGIN.to_plugin_uri(uri) == uri
    assert plugin_uris.translate_fields({"source": uri}) == {"source": uri}


def test_files_that_the_plugin_uploaded_are_in_the_artifact_store() -> None:
    fields = plugin_uris.translate_fields(
        {"source": "azureml://artifacts/LocalUpload/x/m", "name": "m"}
    )
    path = "azureml://datastores/workspaceartifactstore/paths/LocalUpload/x/m"
    assert fields == {"source": path, "name": "m"}


def _request(user_agent: str, azure_path: AzurePath | None) -> Request:
    scope = {
        "type": "http",
        "headers": [(b"user-agent", user_agent.encode()), (b"host", b"h:1")],
        "path_params": {"workspace": "w"},
        SCOPE_KEY: azure_path,
    }
    return Request(scope)


@pytest.mark.parametrize(
    ("user_agent", "azure_path", "is_plugin"),
    [
        ("mlflow-python-client/3 azureml-mlflow/1.62", AzurePath("/", "s", "g"), True),
        # The plug-in is installed beside a client that uses the plain API.
        ("mlflow-python-client/3 azureml-mlflow/1.62", None, False),
        ("mlflow-python-client/3", AzurePath("/", "s", "g"), False),
        # Early versions of the plug-in, which know no other MLflow, don't name themselves.
        ("mlflow-python-client/1.30.1", AzurePath("/", "s", "g"), True),
        ("mlflow-python-client/1.30.1", None, False),
    ],
)
def test_only_the_plugin_gets_azureml_uris(
    user_agent: str, azure_path: AzurePath | None, is_plugin: bool
) -> None:
    uri = "mlflow-artifacts:/7/run/artifacts"
    body = {"run": {"info": {"artifact_uri": uri}, "data": {"tags": [{"value": uri}]}}}
    response = plugin_uris.translate_response(_request(user_agent, azure_path), JSONResponse(body))
    content = json.loads(bytes(response.body))
    expected_uri = PLUGIN.to_plugin_uri(uri) if is_plugin else uri
    # Tags that users wrote stay as they are.
    assert content == {
        "run": {"info": {"artifact_uri": expected_uri}, "data": {"tags": [{"value": uri}]}}
    }
