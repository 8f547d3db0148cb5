"""SDK v1's model management: models.

Owns: the JSON of a model.
Leaves: models to models/, the asset that has a model's files to assets.py, the files and those of
runs to the artifact service.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlencode

from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import continuation_id, page_request, timestamp
from torchyard.azureml.blob.artifact_places import REGISTERED
from torchyard.azureml.common.calls import AzureCall, Call, objects_at
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.azureml.sdk_v1 import assets
from torchyard.base import fields
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.batch_endpoints.actions import model_uses
from torchyard.data.datastores import ARTIFACT_STORE
from torchyard.jobs.files import model_sources
from torchyard.jobs.services import FileServices, ServicesOf
from torchyard.models import actions, documents
from torchyard.models.types import Model
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_RUN = "ExperimentRun/dcid."
_PREFIX = "azureml.v1."


routes = RouteTable("/modelmanagement", assets.ModelRoute)


@routes.post("/models")
@needs(Permission.WRITE)
def register(call: AzureCall, services: ServicesOf) -> JSONResponse:
    return JSONResponse(to_json(_register(services, call)))


@routes.get("/models")
@needs(Permission.READ)
def list_all(call: AzureCall, services: ServicesOf) -> JSONResponse:
    return JSONResponse(_list(services.db, call))


@routes.get("/models/{model}")
@needs(Permission.READ)
def get(call: AzureCall, services: ServicesOf, model: str) -> JSONResponse:
    return JSONResponse(to_json(find(services.db, call, model)))


@routes.patch("/models/{model}")
@needs(Permission.WRITE)
def patch(call: AzureCall, services: ServicesOf, model: str) -> JSONResponse:
    before = find(services.db, call, model)
    changes = _changes(call.body, before)
    workspace, version = call.workspace.name, str(before.version)
    changed = actions.update(
        services.db,
        services.clock,
        workspace,
        before.name,
        version,
        changes,
        user=call.identity.user,
    )
    return JSONResponse(to_json(changed))


@routes.delete("/models/{model}")
@needs(Permission.WRITE)
def delete(call: AzureCall, services: ServicesOf, model: str) -> JSONResponse:
    version = find(services.db, call, model)
    model_uses.refuse_deployed(services.db, version.workspace, version.name, str(version.version))
    actions.delete(
        services.db,
        services.clock,
        services.datastores,
        version.workspace,
        version.name,
        version.version,
        user=call.identity.user,
    )
    return JSONResponse({})


@routes.get("/images")
@needs(Permission.READ)
def list_images(call: AzureCall) -> JSONResponse:
    # No `nextLink`: the client follows one that is null.
    return JSONResponse({"value": []})


@routes.post("/images", "/environments", "/packages", "/profiles")
@needs(Permission.WRITE)
def make_image(call: AzureCall) -> JSONResponse:
    raise NotServed(
        "torchyard makes no images, packages and profiles of models",
        "serve the model with `Model.deploy`; `model.download` gives you its files",
    )


def _register(services: FileServices, call: Call) -> Model:
    body = call.document
    url = str(body.get("url") or "")
    artifacts = assets.artifacts_of(url.removeprefix("aml://asset/"))
    if len(artifacts) != 1:
        raise InvalidInput("a model is one file or one folder", "put its files into a folder")
    document = {
        "name": body.get("name"),
        "path": _source(artifacts[0]),
        "description": body.get("description") or "",
        "tags": fields.texts(body, "kvTags"),
        "properties": {**fields.texts(body, "properties"), **_v1_properties(body)},
    }
    workspace = call.workspace.name
    request = documents.read({k: v for k, v in document.items() if v})
    with model_sources.find(services, workspace, request.path) as source:
        return actions.keep(
            services.db,
            services.clock,
            services.datastores,
            workspace,
            request,
            source,
            call.identity.user,
        )


def _v1_properties(body: Mapping[str, Any]) -> dict[str, str]:
    """What only SDK v1 knows of a model, as properties of it."""
    keys = ("framework", "frameworkVersion", "experimentName", "runId", "mimeType")
    properties = {f"{_PREFIX}{key}": str(body[key]) for key in keys if body.get(key)}
    if body.get("unpack"):
        properties[f"{_PREFIX}unpack"] = "true"
    if body.get("datasets"):
        properties[f"{_PREFIX}datasets"] = _datasets(body["datasets"])
    if body.get("resourceRequirements"):
        properties[f"{_PREFIX}resourceRequirements"] = json.dumps(body["resourceRequirements"])
    return properties


def _datasets(references: Any, existing: str = "[]") -> str:
    """References to datasets, the existing ones first, as text."""
    datasets = json.loads(existing)
    for reference in references if isinstance(references, list) else [None]:
        if not isinstance(reference, Mapping) or not reference.get("id"):
            raise InvalidInput("a dataset of a model has a `name` and an `id`", at=["datasets"])
        dataset = {"name": str(reference.get("name") or ""), "id": str(reference["id"])}
        datasets += [dataset] if dataset not in datasets else []
    return json.dumps(datasets)


def _list(db: Database, call: Call) -> dict[str, Any]:
    query = {key.lower(): value for key, value in call.query.items()}
    models = [
        model
        for model in actions.list_versions(db, call.workspace.name, query.get("name", ""))
        if not model.archived and _matches(model, query)
    ]
    if query.get("latestversiononly", "").lower() == "true":
        newest: dict[str, Model] = {}
        for model in models:
            if model.name not in newest or newest[model.name].version < model.version:
                newest[model.name] = model
        models = list(newest.values())
    page = page_request(call)
    start = continuation_id(page.after) or 0
    end = start + page.limit
    body: dict[str, Any] = {"value": [to_json(model) for model in models[start:end]]}
    body["nextLink"] = None
    if end < len(models):
        parameters = {k: v for k, v in call.query.items() if k.lower() != "$skiptoken"}
        text = urlencode({**parameters, "$skipToken": str(end)})
        body["nextLink"] = f"{call.base}/modelmanagement/v1.0{call.workspace_id}/models?{text}"
    return body


def _matches(model: Model, query: Mapping[str, str]) -> bool:
    """Whether a list shows a model."""
    properties = model.properties
    run, framework = query.get("runid"), query.get("framework")
    if run and run not in (model.job, properties.get(f"{_PREFIX}runId")):
        return False
    if framework and properties.get(f"{_PREFIX}framework") != framework:
        return False
    if query.get("datasetid"):
        dataset = json.dumps(query["datasetid"])
        if dataset not in properties.get(f"{_PREFIX}datasets", ""):
            return False
    kinds = {"tags": model.tags, "tag": model.tags, "properties": properties}
    return all(assets.has_all(texts, query.get(kind) or "") for kind, texts in kinds.items())


def find(db: Database, call: Call, model: str) -> Model:
    """The version with this id, `name:version`.

    Raises:
        NotFound: it does not exist.
    """
    name, _, version = unquote(model).rpartition(":")
    if not name:
        raise NotFound(f"model `{model[:200]}` does not exist", "its id is `name:version`")
    return actions.get(db, call.workspace.name, name, version)


def framework_of(model: Model) -> tuple[str, str]:
    """Its framework, `Custom` without one, and the version of that, empty without one."""
    properties = model.properties
    version = properties.get(f"{_PREFIX}frameworkVersion", "")
    return properties.get(f"{_PREFIX}framework") or "Custom", version


def to_json(model: Model) -> dict[str, Any]:
    """A model as azureml.core.Model reads it."""
    v1 = {
        key.removeprefix(_PREFIX): value
        for key, value in model.properties.items()
        if key.startswith(_PREFIX)
    }
    properties = {
        key: value for key, value in model.properties.items() if not key.startswith(_PREFIX)
    }
    requirements = v1.get("resourceRequirements")
    return {
        "id": f"{model.name}:{model.version}",
        "name": model.name,
        "version": model.version,
        "framework": v1.get("framework") or "Custom",
        "frameworkVersion": v1.get("frameworkVersion"),
        "datasets": json.loads(v1.get("datasets") or "[]"),
        "url": f"aml://asset/{assets.asset_id([_artifact_of(model)])}",
        "mimeType": v1.get("mimeType") or "application/json",
        "description": model.description or None,
        "createdTime": timestamp(model.created_at),
        "modifiedTime": timestamp(model.updated_at or model.created_at),
        "unpack": v1.get("unpack") == "true",
        "parentModelId": None,
        "runId": model.job or v1.get("runId"),
        "experimentName": v1.get("experimentName"),
        "kvTags": dict(model.tags),
        "properties": properties,
        "derivedModelIds": [],
        "sampleInputData": None,
        "sampleOutputData": None,
        "resourceRequirements": json.loads(requirements) if requirements else None,
        "createdBy": {"userObjectId": "", "userTenantId": "", "userName": model.owner},
    }


def _artifact_of(model: Model) -> dict[str, str]:
    container = f"{REGISTERED}/{model.name}"
    if model.single:
        return {"id": f"{container}/{model.version}/{model.files[0].path}"}
    # The last part is the name of the folder that a download creates.
    return {"prefix": f"{container}/{model.version}:/{folder_name(model)}"}


def folder_name(model: Model) -> str:
    """The folder that holds a model's files in a download and in AZUREML_MODEL_DIR."""
    return model.source.rstrip("/").rpartition("/")[2] or model.name


def _changes(body: Any, model: Model) -> dict[str, Any]:
    """From a JSON patch of tags, properties, datasets and description."""
    changes: dict[str, Any] = {}
    for change in objects_at({"patch": body}, "patch"):
        parts = str(change.get("path") or "").strip("/").split("/", 1)
        field = {"kvTags": "tags", "properties": "properties"}.get(parts[0])
        value = None if change.get("op") == "remove" else change.get("value")
        if parts[0] == "description":
            changes["description"] = value or ""
        elif parts == ["datasets"]:
            key = f"{_PREFIX}datasets"
            existing = model.properties.get(key) or "[]"
            changes.setdefault("properties", {})[key] = _datasets(value, existing)
        elif field and len(parts) == 2:
            key = parts[1].replace("~1", "/").replace("~0", "~")
            changes.setdefault(field, {})[key] = None if value is None else str(value)
        elif field and isinstance(value, Mapping):
            if field == "tags" and change.get("op") == "replace":
                changes.setdefault(field, {}).update(dict.fromkeys(model.tags))
            changes.setdefault(field, {}).update({k: str(v) for k, v in value.items()})
        else:
            raise InvalidInput(f"`{str(change.get('path'))[:100]}` of a model can't be changed")
    return changes


def _source(artifact: Mapping[str, str]) -> str:
    """The URI from which a model copies its files."""
    path = artifact.get("id") or artifact.get("prefix") or ""
    if path.startswith(_RUN):
        run, _, inner = path.removeprefix(_RUN).partition("/")
        return f"azureml://jobs/{run}/outputs/artifacts/paths/{inner}"
    return f"azureml://datastores/{ARTIFACT_STORE}/paths/{path}"
