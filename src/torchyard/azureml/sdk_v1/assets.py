"""SDK v1's model management: assets, which are named lists of artifacts.

Owns: the JSON of an asset, its id, the shape of an error that model management's clients read.
Leaves: models to models.py, the table of runs' assets to jobs/records/run_assets.py, files to the
    artifact service.
Always: an asset's id encodes the list of its artifacts; one that names a run is kept with it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import continuation_id, page_request, timestamp
from torchyard.azureml.common.calls import AzureCall, Call, objects_at
from torchyard.azureml.common.errors import AzureRoute, Handle, NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs import actions
from torchyard.jobs.records import run_assets
from torchyard.jobs.records.run_assets import RunAsset
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_TEXT_MAX = 256


class ModelRoute(AzureRoute):
    """A route whose errors have the keys that azureml.core.Model reads beside Azure's envelope."""

    def get_route_handler(self) -> Handle:
        handle = super().get_route_handler()

        async def answering(request: Request) -> Response:
            response = await handle(request)
            if response.status_code < 400:
                return response
            body = json.loads(bytes(response.body))
            code, message = body["error"]["code"], body["error"].get("message") or ""
            top = {
                "code": code,
                "statusCode": response.status_code,
                "message": message,
                "details": [{"code": code, "message": message}],
                # The only part of an unexpected error that the client shows.
                "correlation": {"message": message},
            }
            return JSONResponse({**body, **top}, response.status_code)

        return answering


routes = RouteTable("/modelmanagement", ModelRoute)


@routes.post("/assets")
@needs(Permission.WRITE)
def create_asset(call: AzureCall, services: ServicesOf) -> JSONResponse:
    asset, run = _read(services.clock, call)
    if run:
        job = actions.get(services, call.workspace.name, run)
        with services.db.write() as connection:
            run_assets.put(connection, job.id, asset)
    return JSONResponse(_json(asset, run))


@routes.get("/assets")
@needs(Permission.READ)
def list_assets(call: AzureCall, services: ServicesOf) -> JSONResponse:
    return JSONResponse(_list(services, call))


@routes.get("/assets/{asset}")
@needs(Permission.READ)
def get_asset(call: AzureCall, services: ServicesOf, asset: str) -> JSONResponse:
    return JSONResponse(_json(RunAsset("asset", artifacts_of(asset), services.clock.now())))


def asset_id(artifacts: Sequence[Mapping[str, str]]) -> str:
    text = json.dumps([*map(dict, artifacts)], sort_keys=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def artifacts_of(asset: str) -> list[dict[str, str]]:
    """
    Raises:
        NotFound: no asset has this id.
    """
    try:
        text = base64.urlsafe_b64decode(asset + "=" * (-len(asset) % 4)).decode()
        return _artifacts({"artifacts": json.loads(text)})
    except (ValueError, RecursionError) as error:
        raise NotFound(f"asset `{asset[:100]}` does not exist") from error


def _read(clock: Clock, call: Call) -> tuple[RunAsset, str]:
    """The asset of a request, and the run that it names."""
    document = call.document
    asset = RunAsset(
        name=str(document.get("name") or "asset"),
        artifacts=_artifacts(document),
        created_at=clock.now(),
        type=fields.bounded(str(document.get("type") or ""), _TEXT_MAX, "an asset's `type`"),
        description=str(document.get("description") or ""),
        tags=_texts(document, "kvTags"),
        properties=_texts(document, "properties"),
        meta=_texts(document, "meta"),
    )
    return asset, str(document.get("runid") or "")


def _texts(document: Mapping[str, Any], key: str) -> dict[str, str | None]:
    """A mapping of texts; keys without a value stay, as explanations' readers look for them."""
    pairs = document.get(key)
    if not isinstance(pairs, dict):
        return {**fields.texts(document, key)}
    empty = [name for name, value in pairs.items() if value is None]
    filled = {name: value for name, value in pairs.items() if value is not None}
    return {**fields.texts({key: filled}, key), **dict.fromkeys(empty)}


def _list(services: RecordServices, call: Call) -> dict[str, Any]:
    """The assets of the run that the query names, a page of them."""
    query = {key.lower(): value for key, value in call.query.items()}
    run = query.get("runid")
    if not run:
        raise NotServed("torchyard lists the assets of one run", "name it by `run_id`")
    job = actions.get(services, call.workspace.name, run)
    with services.db.read() as connection:
        matching = [asset for asset in run_assets.of_job(connection, job.id) if _fits(asset, query)]
    page = page_request(call)
    start = continuation_id(page.after) or 0
    end = start + page.limit
    body: dict[str, Any] = {"value": [_json(asset, run) for asset in matching[start:end]]}
    body["nextLink"] = None
    if end < len(matching):
        parameters = {k: v for k, v in call.query.items() if k.lower() != "$skiptoken"}
        text = urlencode({**parameters, "$skipToken": str(end)})
        body["nextLink"] = f"{call.base}/modelmanagement/v1.0{call.workspace_id}/assets?{text}"
    return body


def _fits(asset: RunAsset, query: Mapping[str, str]) -> bool:
    """Whether a list shows an asset."""
    if any(query.get(key) not in (None, "", getattr(asset, key)) for key in ("name", "type")):
        return False
    kinds = {"tags": asset.tags, "tag": asset.tags, "properties": asset.properties}
    return all(has_all(texts, query.get(kind) or "") for kind, texts in kinds.items())


def has_all(texts: Mapping[str, str | None], conditions: str) -> bool:
    """Whether all conditions hold; `a=1,b` is a key with its value, and a key alone."""
    for condition in conditions.split(",") if conditions else ():
        key, equals, value = condition.partition("=")
        if key not in texts or (equals and texts[key] != value):
            return False
    return True


def _json(asset: RunAsset, run: str = "") -> dict[str, Any]:
    return {
        "id": asset_id(asset.artifacts),
        "name": asset.name,
        "type": asset.type or None,
        "description": asset.description or None,
        "artifacts": [dict(artifact) for artifact in asset.artifacts],
        "kvTags": dict(asset.tags),
        "properties": dict(asset.properties),
        "runid": run or None,
        "meta": dict(asset.meta),
        "createdTime": timestamp(asset.created_at),
    }


def _artifacts(document: Mapping[str, Any]) -> list[dict[str, str]]:
    artifacts = []
    for artifact in objects_at(document, "artifacts"):
        for key in ("id", "prefix"):
            if isinstance(artifact.get(key), str) and artifact[key]:
                artifacts.append({key: artifact[key]})
                break
    if not artifacts:
        raise InvalidInput("an asset consists of artifacts, and this one has none")
    return artifacts
