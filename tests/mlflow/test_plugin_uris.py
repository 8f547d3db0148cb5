"""The plug-in's spelling of places, and whom it is told to."""

from __future__ import annotations

import json

import pytest
from fastapi import Request
from fastapi.responses import JSONResponse

from torchyard.azureml.common.paths import KEY, Asked
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


@pytest.mark.parametrize("ours", PAIRS)
def test_there_and_back(ours: str) -> None:
    theirs = f"azureml://h:1/{PAIRS[ours]}"
    assert PLUGIN.to_plugin_uri(ours) == theirs
    assert plugin_uris.translate_fields({"source": theirs}) == {"source": ours}


@pytest.mark.parametrize("uri", ["s3://bucket/x", "mlflow-artifacts:/7", "models:/tree/1", ""])
def test_other_places_stay(uri: str) -> None:
    assert PLUGIN.to_plugin_uri(uri) == uri
    assert plugin_uris.translate_fields({"source": uri}) == {"source": uri}


def test_what_the_plugin_uploaded_lies_in_the_artifact_store() -> None:
    taken = plugin_uris.translate_fields(
        {"source": "azureml://artifacts/LocalUpload/x/m", "name": "m"}
    )
    path = "azureml://datastores/workspaceartifactstore/paths/LocalUpload/x/m"
    assert taken == {"source": path, "name": "m"}


def _request(agent: str, asked: Asked | None) -> Request:
    scope = {
        "type": "http",
        "headers": [(b"user-agent", agent.encode()), (b"host", b"h:1")],
        "path_params": {"workspace": "w"},
        KEY: asked,
    }
    return Request(scope)


@pytest.mark.parametrize(
    ("agent", "asked", "told"),
    [
        ("mlflow-python-client/3 azureml-mlflow/1.62", Asked("/", "s", "g"), True),
        # The plug-in is installed beside a client that uses the plain door.
        ("mlflow-python-client/3 azureml-mlflow/1.62", None, False),
        ("mlflow-python-client/3", Asked("/", "s", "g"), False),
    ],
)
def test_only_the_plugin_is_told(agent: str, asked: Asked | None, told: bool) -> None:
    uri = "mlflow-artifacts:/7/run/artifacts"
    body = {"run": {"info": {"artifact_uri": uri}, "data": {"tags": [{"value": uri}]}}}
    answer = plugin_uris.translate_response(_request(agent, asked), JSONResponse(body))
    seen = json.loads(bytes(answer.body))
    shown = PLUGIN.to_plugin_uri(uri) if told else uri
    # What people wrote themselves is theirs.
    assert seen == {"run": {"info": {"artifact_uri": shown}, "data": {"tags": [{"value": uri}]}}}
