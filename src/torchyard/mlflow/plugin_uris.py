"""URIs of files as Azure ML's plug-in for MLflow writes them, azureml-mlflow.

Owns: the two spellings of one place, `mlflow-artifacts:/…` and `azureml://HOST/…`, and which
client wants which.
Leaves: what lies there to places.py and azureml/blob/artifact_places.py, which know the same paths.
Always: rooms and routes know the first only; the second goes to the plug-in alone, because a
plain client can't read it.

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
# Where azureml/common/paths.py leaves what the long path said.
_SCOPE_KEY = "azureml"
_FIELDS = frozenset({"artifact_uri", "artifact_location", "root_uri", "source"})
_OWN = "mlflow-artifacts:/"
_FORMS = (
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
_THEIRS = (
    (
        re.compile(
            r"azureml://[^/]+/(?:.*/)?experiments/(?P<experiment>[^/]+)/runs/(?P<name>[^/]+)"
            r"/(?P<rest>artifacts(?:/.*)?)"
        ),
        _OWN + "{experiment}/{name}/{rest}",
    ),
    (
        re.compile(r"azureml://[^/]+/LoggedModel/(?P<name>[^/]+)/(?P<rest>artifacts(?:/.*)?)"),
        _OWN + "0/models/{name}/{rest}",
    ),
    (
        re.compile(r"azureml://[^/]+/RegisteredModel/(?P<name>[^/]+)/(?P<rest>.+)"),
        _OWN + "registered/{name}/{rest}",
    ),
    (
        re.compile(r"azureml://artifacts/(?P<rest>.+)"),
        f"azureml://datastores/{ARTIFACT_STORE}/paths/{{rest}}",
    ),
)


@dataclass(frozen=True)
class Plugin:
    """A request by the plug-in; `host` is the server as it named it, `scope` the workspace's
    resource path.
    """

    host: str
    scope: str

    def shown(self, uri: str) -> str:
        """Our URI as the plug-in reads it; another is left as it is."""
        if uri.startswith(_OWN):
            for pattern, form in _FORMS:
                found = pattern.fullmatch(uri[len(_OWN) :])
                if found is not None:
                    below = form.format(scope=self.scope, **found.groupdict())
                    return f"azureml://{self.host}/{below}"
        return uri

    def answer(self, answer: Response) -> Response:
        """The answer with every URI of files in the plug-in's words."""
        content = bytes(answer.body)
        if not isinstance(answer, JSONResponse) or _OWN.encode() not in content:
            return answer
        return JSONResponse(self._json(json.loads(content)), answer.status_code)

    def _json(self, body: Any) -> Any:
        if isinstance(body, list):
            return [self._json(one) for one in body]
        if not isinstance(body, dict):
            return body
        return {
            key: self.shown(value)
            if key in _FIELDS and isinstance(value, str)
            else self._json(value)
            for key, value in body.items()
        }


def asking(request: Request) -> Plugin | None:
    """The plug-in, if it is who asks: it adds its name to the client's, and its paths are long."""
    asked = request.scope.get(_SCOPE_KEY)
    if asked is None or _PLUGIN not in request.headers.get("user-agent", ""):
        return None
    scope = (
        f"/subscriptions/{asked.subscription}/resourceGroups/{asked.resource_group}"
        "/providers/Microsoft.MachineLearningServices"
        f"/workspaces/{request.path_params['workspace']}"
    )
    return Plugin(request.headers.get("host", ""), scope)


def told(request: Request, answer: Response) -> Response:
    """The answer in the words of who asks."""
    plugin = asking(request)
    return answer if plugin is None else plugin.answer(answer)


def taken(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a request with the plug-in's URIs as ours."""
    source = fields.get("source")
    if not isinstance(source, str) or not source.startswith("azureml://"):
        return fields
    for pattern, form in _THEIRS:
        found = pattern.fullmatch(source)
        if found is not None:
            return {**fields, "source": form.format(**found.groupdict())}
    return fields
