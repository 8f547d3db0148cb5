"""SDK v1's model management: assets and models.

Owns: the JSON of a model and of the asset that holds its files.
Leaves: models to models/, their files and those of runs to the artifact service.
Always: an asset is nothing but the places that it was made of, and its id says them.
"""

import base64
import json
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import unquote, urlencode

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import ask_of, mark_of, timestamp
from torchyard.azureml.blob.artifact_places import REGISTERED
from torchyard.azureml.common.calls import Call, Caller, items
from torchyard.azureml.common.errors import AzureRoute, Handle, NotServed
from torchyard.base import fields
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.datastores import ARTIFACT_STORE
from torchyard.jobs.files import model_sources
from torchyard.jobs.services import Services
from torchyard.models import actions, documents
from torchyard.models.types import Model

_RUN = "ExperimentRun/dcid."
_SAID = "azureml.v1."


class ModelRoute(AzureRoute):
    """A route whose errors have, beside Azure's envelope, what azureml.core.Model reads of them."""

    def get_route_handler(self) -> Handle:
        handle = super().get_route_handler()

        async def answering(request: Request) -> Response:
            response = await handle(request)
            if response.status_code < 400:
                return response
            body = json.loads(bytes(response.body))
            code, message = body["error"]["code"], body["error"].get("message") or ""
            told = {
                "code": code,
                "statusCode": response.status_code,
                "message": message,
                "details": [{"code": code, "message": message}],
                # All that the client shows of an error that it does not expect.
                "correlation": {"message": message},
            }
            return JSONResponse({**body, **told}, response.status_code)

        return answering


def routes(services: Services, caller: Caller) -> APIRouter:
    """`/modelmanagement/v1.0`, the requests of azureml.core.Model."""
    found = APIRouter(prefix="/modelmanagement", route_class=ModelRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.post("/assets")
    def create_asset(call: the_call) -> JSONResponse:
        return JSONResponse(_asset(_places(call.document), call.document))

    @found.get("/assets/{asset}")
    def asset(call: the_call, asset: str) -> JSONResponse:
        return JSONResponse(_asset(_places_of(asset), {}))

    @found.post("/models")
    def register(call: the_call) -> JSONResponse:
        return JSONResponse(_json(_registered(services, call)))

    @found.get("/models")
    def list_all(call: the_call) -> JSONResponse:
        return JSONResponse(_listed(services, call))

    @found.get("/models/{model}")
    def get(call: the_call, model: str) -> JSONResponse:
        return JSONResponse(_json(_find(services, call, model)))

    @found.patch("/models/{model}")
    def patch(call: the_call, model: str) -> JSONResponse:
        there = _find(services, call, model)
        changes = _changes(call.body, there)
        workspace, version = call.workspace.name, str(there.version)
        changed = actions.update(
            services.db, services.clock, workspace, there.name, version, changes
        )
        return JSONResponse(_json(changed))

    @found.delete("/models/{model}")
    def delete(call: the_call, model: str) -> JSONResponse:
        there = _find(services, call, model)
        actions.delete(
            services.db,
            services.clock,
            services.datastores,
            there.workspace,
            there.name,
            there.version,
        )
        return JSONResponse({})

    @found.get("/services")
    @found.get("/images")
    def web_services(call: the_call) -> JSONResponse:
        # The client follows `nextLink` wherever it is.
        return JSONResponse({"value": []})

    @found.post("/services")
    @found.post("/images")
    @found.post("/environments")
    @found.post("/packages")
    @found.post("/profiles")
    def deploy(call: the_call) -> JSONResponse:
        raise NotServed(
            "torchyard does not serve web services and their images yet",
            "`model.download` gives you the files, for a server of your own",
        )

    return found


def _registered(services: Services, call: Call) -> Model:
    body = call.document
    url = str(body.get("url") or "")
    places = _places_of(url.removeprefix("aml://asset/"))
    if len(places) != 1:
        raise InvalidInput("a model is one file or one folder", "put its files into a folder")
    asked = {
        "name": body.get("name"),
        "path": _source(places[0]),
        "description": body.get("description") or "",
        "tags": fields.texts(body, "kvTags"),
        "properties": {**fields.texts(body, "properties"), **_said(body)},
    }
    workspace = call.workspace.name
    request = documents.read({k: v for k, v in asked.items() if v})
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


def _said(body: Mapping[str, Any]) -> dict[str, str]:
    """What SDK v1 knows of a model beyond ours, as properties of it."""
    keys = ("framework", "frameworkVersion", "experimentName", "runId", "mimeType")
    said = {f"{_SAID}{key}": str(body[key]) for key in keys if body.get(key)}
    if body.get("unpack"):
        said[f"{_SAID}unpack"] = "true"
    if body.get("datasets"):
        said[f"{_SAID}datasets"] = _datasets(body["datasets"])
    if body.get("resourceRequirements"):
        said[f"{_SAID}resourceRequirements"] = json.dumps(body["resourceRequirements"])
    return said


def _datasets(given: Any, known: str = "[]") -> str:
    """References to datasets, those of `known` first, as text."""
    found = json.loads(known)
    for one in given if isinstance(given, list) else [None]:
        if not isinstance(one, Mapping) or not one.get("id"):
            raise InvalidInput("a dataset of a model has a `name` and an `id`", at=["datasets"])
        reference = {"name": str(one.get("name") or ""), "id": str(one["id"])}
        found += [reference] if reference not in found else []
    return json.dumps(found)


def _listed(services: Services, call: Call) -> dict[str, Any]:
    query = {key.lower(): value for key, value in call.query.items()}
    found = actions.list_versions(services.db, call.workspace.name, query.get("name", ""))
    found = [one for one in found if not one.archived]
    if query.get("runid"):
        run = query["runid"]
        found = [one for one in found if run in (one.job, one.properties.get(f"{_SAID}runId"))]
    if query.get("framework"):
        framework = query["framework"]
        found = [one for one in found if one.properties.get(f"{_SAID}framework") == framework]
    if query.get("datasetid"):
        mark = json.dumps(query["datasetid"])
        found = [one for one in found if mark in one.properties.get(f"{_SAID}datasets", "")]
    for kind in ("tags", "properties", "tag"):
        if query.get(kind):
            found = [one for one in found if _has(one, kind, query[kind])]
    if query.get("latestversiononly", "").lower() == "true":
        newest: dict[str, Model] = {}
        for one in found:
            if one.name not in newest or newest[one.name].version < one.version:
                newest[one.name] = one
        found = list(newest.values())
    ask = ask_of(call)
    start = mark_of(ask.after) or 0
    page = found[start : start + ask.most]
    body: dict[str, Any] = {"value": [_json(one) for one in page], "nextLink": None}
    if start + ask.most < len(found):
        kept = {k: v for k, v in call.query.items() if k.lower() != "$skiptoken"}
        going_on = urlencode({**kept, "$skipToken": str(start + ask.most)})
        top = f"{call.base}/modelmanagement/v1.0{call.workspace_id}/models"
        body["nextLink"] = f"{top}?{going_on}"
    return body


def _has(model: Model, kind: str, wanted: str) -> bool:
    """`a=1,b`: a key with its value, or a key alone; all of them."""
    held = model.properties if kind == "properties" else model.tags
    for one in wanted.split(","):
        key, equals, value = one.partition("=")
        if key not in held or (equals and held[key] != value):
            return False
    return True


def _find(services: Services, call: Call, model: str) -> Model:
    name, _, version = unquote(model).rpartition(":")
    if not name:
        raise NotFound(f"model `{model[:200]}` does not exist", "its id is `name:version`")
    return actions.get(services.db, call.workspace.name, name, version)


def _json(model: Model) -> dict[str, Any]:
    said = {
        key.removeprefix(_SAID): value
        for key, value in model.properties.items()
        if key.startswith(_SAID)
    }
    own = {key: value for key, value in model.properties.items() if not key.startswith(_SAID)}
    needs = said.get("resourceRequirements")
    return {
        "id": f"{model.name}:{model.version}",
        "name": model.name,
        "version": model.version,
        "framework": said.get("framework") or "Custom",
        "frameworkVersion": said.get("frameworkVersion"),
        "datasets": json.loads(said.get("datasets") or "[]"),
        "url": f"aml://asset/{_asset_id([_place_of(model)])}",
        "mimeType": said.get("mimeType") or "application/json",
        "description": model.description or None,
        "createdTime": timestamp(model.created_at),
        "modifiedTime": timestamp(model.updated_at or model.created_at),
        "unpack": said.get("unpack") == "true",
        "parentModelId": None,
        "runId": model.job or said.get("runId"),
        "experimentName": said.get("experimentName"),
        "kvTags": dict(model.tags),
        "properties": own,
        "derivedModelIds": [],
        "sampleInputData": None,
        "sampleOutputData": None,
        "resourceRequirements": json.loads(needs) if needs else None,
        "createdBy": {"userObjectId": "", "userTenantId": "", "userName": model.owner},
    }


def _place_of(model: Model) -> dict[str, str]:
    container = f"{REGISTERED}/{model.name}"
    if model.single:
        return {"id": f"{container}/{model.version}/{model.files[0].path}"}
    # Its last part is the folder's name, which a download keeps.
    return {"prefix": f"{container}/{model.version}:/{_folder_name(model)}"}


def _folder_name(model: Model) -> str:
    return model.source.rstrip("/").rpartition("/")[2] or model.name


def _changes(body: Any, model: Model) -> dict[str, Any]:
    """From a JSON patch of tags, properties, datasets and description."""
    changes: dict[str, Any] = {}
    for one in items({"patch": body}, "patch"):
        parts = str(one.get("path") or "").strip("/").split("/", 1)
        word = {"kvTags": "tags", "properties": "properties"}.get(parts[0])
        value = None if one.get("op") == "remove" else one.get("value")
        if parts[0] == "description":
            changes["description"] = value or ""
        elif parts == ["datasets"]:
            key = f"{_SAID}datasets"
            known = model.properties.get(key) or "[]"
            changes.setdefault("properties", {})[key] = _datasets(value, known)
        elif word and len(parts) == 2:
            key = parts[1].replace("~1", "/").replace("~0", "~")
            changes.setdefault(word, {})[key] = None if value is None else str(value)
        elif word and isinstance(value, Mapping):
            if word == "tags" and one.get("op") == "replace":
                changes.setdefault(word, {}).update(dict.fromkeys(model.tags))
            changes.setdefault(word, {}).update({k: str(v) for k, v in value.items()})
        else:
            raise InvalidInput(f"`{str(one.get('path'))[:100]}` of a model can't be changed")
    return changes


def _asset(places: list[dict[str, str]], said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": _asset_id(places),
        "name": said.get("name") or "asset",
        "type": said.get("type"),
        "description": said.get("description"),
        "artifacts": places,
        "kvTags": said.get("kvTags") or {},
        "properties": said.get("properties") or {},
        "runid": said.get("runid"),
        "meta": said.get("meta") or {},
    }


def _asset_id(places: list[dict[str, str]]) -> str:
    text = json.dumps(places, sort_keys=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _places_of(asset: str) -> list[dict[str, str]]:
    try:
        text = base64.urlsafe_b64decode(asset + "=" * (-len(asset) % 4)).decode()
        return _places({"artifacts": json.loads(text)})
    except (ValueError, RecursionError) as error:
        raise NotFound(f"asset `{asset[:100]}` does not exist") from error


def _places(document: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    for one in items(document, "artifacts"):
        for key in ("id", "prefix"):
            if isinstance(one.get(key), str) and one[key]:
                found.append({key: one[key]})
                break
    if not found:
        raise InvalidInput("an asset is made of artifacts, and there are none")
    return found


def _source(place: Mapping[str, str]) -> str:
    """Where our models take their files from."""
    path = place.get("id") or place.get("prefix") or ""
    if path.startswith(_RUN):
        run, _, inner = path.removeprefix(_RUN).partition("/")
        return f"azureml://jobs/{run}/outputs/artifacts/paths/{inner}"
    return f"azureml://datastores/{ARTIFACT_STORE}/paths/{path}"
