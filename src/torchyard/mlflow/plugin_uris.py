"""URIs of files as azureml-mlflow, Azure ML's plug-in for MLflow, writes them.

Owns: the two spellings of a file's URI, `mlflow-artifacts:/…` and `azureml://HOST/…`, and which
client needs which.
Leaves: the files to artifact_repositories.py and azureml/blob/artifact_places.py, which know the
same paths.
Always: everything else knows only the first; only the plug-in gets the second, because plain
clients can't read it.

    mlflow-artifacts:/7/RUN/artifacts/model  azureml://HOST/artifact/v2.0/subscriptions/…/
                                                 experiments/7/runs/RUN/artifacts/model
    mlflow-artifacts:/7/models/ID/artifacts  azureml://HOST/LoggedModel/ID/artifacts
    mlflow-artifacts:/registered/NAME/2      azureml://HOST/RegisteredModel/NAME/2
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from torchyard.data.datastores import ARTIFACT_STORE

_PLUGIN = "azureml-mlflow/"
# The plug-in of MLflow 1 does not name itself; plain clients don't use Azure's paths.
_MLFLOW_1 = "mlflow-python-client/1."
# Where azureml/common/paths.py leaves the parts of an Azure resource path.
_SCOPE_KEY = "azureml"
_FIELDS = frozenset({"artifact_uri", "artifact_location", "root_uri", "source"})
_SERVER_URI = "mlflow-artifacts:/"
_PLUGIN_FORMS = (
    (re.compile(r"registered/(?P<name>[^/]+)/(?P<rest>.+)"), "RegisteredModel/{name}/{rest}"),
    (
        re.compile(r"[^/]+/models/(?P<name>[^/]+)/(?P<rest>artifacts(?:/.*)?)"),
        "LoggedModel/{name}/{rest}",
    ),
    (
        re.compile(r"(?P<experiment>[^/]+)/(?P<name>[^/]+)/(?P<rest>artifacts(?:/.*)?)"),
        "artifact/v2.0{scope}/experiments/{experiment}/runs/{name}/{rest}",
    ),
)
_SERVER_FORMS = (
    (
        re.compile(
            r"azureml://[^/]+/(?:.*/)?experiments/(?P<experiment>[^/]+)/runs/(?P<name>[^/]+)"
            r"/(?P<rest>artifacts(?:/.*)?)"
        ),
        _SERVER_URI + "{experiment}/{name}/{rest}",
    ),
    (
        re.compile(r"azureml://[^/]+/LoggedModel/(?P<name>[^/]+)/(?P<rest>artifacts(?:/.*)?)"),
        _SERVER_URI + "0/models/{name}/{rest}",
    ),
    (
        re.compile(r"azureml://[^/]+/RegisteredModel/(?P<name>[^/]+)/(?P<rest>.+)"),
        _SERVER_URI + "registered/{name}/{rest}",
    ),
    (
        re.compile(r"azureml://artifacts/(?P<rest>.+)"),
        f"azureml://datastores/{ARTIFACT_STORE}/paths/{{rest}}",
    ),
)


@dataclass(frozen=True)
class Plugin:
    """The plug-in, as a client.

    `host` is the server's name in its request, `scope` the workspace's resource path.
    """

    host: str
    scope: str

    def to_plugin_uri(self, uri: str) -> str:
        """A URI of this server as the plug-in reads it; any other stays as it is."""
        if uri.startswith(_SERVER_URI):
            for pattern, plugin_form in _PLUGIN_FORMS:
                match = pattern.fullmatch(uri[len(_SERVER_URI) :])
                if match is not None:
                    path = plugin_form.format(scope=self.scope, **match.groupdict())
                    return f"azureml://{self.host}/{path}"
        return uri

    def translate(self, response: Response) -> Response:
        """The response with every URI of a file as the plug-in reads it."""
        content = bytes(response.body)
        if not isinstance(response, JSONResponse) or _SERVER_URI.encode() not in content:
            return response
        return JSONResponse(self._translate_json(json.loads(content)), response.status_code)

    def _translate_json(self, body: Any) -> Any:
        if isinstance(body, list):
            return [self._translate_json(item) for item in body]
        if not isinstance(body, dict):
            return body
        return {
            key: self.to_plugin_uri(value)
            if key in _FIELDS and isinstance(value, str)
            else self._translate_json(value)
            for key, value in body.items()
        }


def plugin_of(request: Request) -> Plugin | None:
    """The plug-in, if it sent the request: its name is in the User-Agent, its paths are Azure's."""
    azure_path = request.scope.get(_SCOPE_KEY)
    user_agent = request.headers.get("user-agent", "")
    if azure_path is None or not (_PLUGIN in user_agent or user_agent.startswith(_MLFLOW_1)):
        return None
    scope = (
        f"/subscriptions/{azure_path.subscription}/resourceGroups/{azure_path.resource_group}"
        "/providers/Microsoft.MachineLearningServices"
        f"/workspaces/{request.path_params['workspace']}"
    )
    return Plugin(request.headers.get("host", ""), scope)


def translate_response(request: Request, response: Response) -> Response:
    """The response with the URIs that the client of the request can read."""
    plugin = plugin_of(request)
    return response if plugin is None else plugin.translate(response)


def translate_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a request with the plug-in's URIs as this server's."""
    source = fields.get("source")
    if not isinstance(source, str) or not source.startswith("azureml://"):
        return fields
    for pattern, server_form in _SERVER_FORMS:
        match = pattern.fullmatch(source)
        if match is not None:
            return {**fields, "source": server_form.format(**match.groupdict())}
    return fields
