"""The files of runs and models, as MLflow's artifact proxy serves them."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse, JSONResponse
from starlette.concurrency import run_in_threadpool

from torchyard.base.errors import InvalidInput
from torchyard.mlflow import places
from torchyard.mlflow.calls import Authenticate, Call, Caller, workspace_of
from torchyard.mlflow.file_answers import file_answer
from torchyard.mlflow.places import Place, RunPlace, VersionPlace, clean, entries, safe
from torchyard.mlflow.registry import Registry
from torchyard.mlflow.run_routes import run_of
from torchyard.mlflow.runs import Runs
from torchyard.mlflow.translate import artifact_root
from torchyard.workspaces.types import Identity

_PROXY = "/api/2.0/mlflow-artifacts/artifacts"
_SMALL_BYTES = 10 << 20


def router(runs: Runs, services: Registry, authenticate: Authenticate, caller: Caller) -> APIRouter:
    routes = APIRouter(route_class=caller.route_class)
    the_call = Annotated[Call, Depends(caller)]
    person = Annotated[Identity, Depends(authenticate)]

    def find(workspace: str, path: str, identity: Identity | None = None) -> tuple[Place, str]:
        return places.find(runs, services, workspace, path, identity)

    @routes.get("/api/2.0/mlflow/artifacts/list")
    def list_of_run(call: the_call) -> JSONResponse:
        job = run_of(runs, call.workspace, call.text("run_id", "run_uuid"))
        folder = clean(safe(call.text("path", default="")))
        files = entries(RunPlace(runs, services, call.workspace, job.name), folder)
        above = f"{folder}/" if folder else ""
        for entry in files:
            entry["path"] = above + entry["path"]
        return JSONResponse({"root_uri": artifact_root(job), "files": files})

    @routes.get(_PROXY)
    def list_files(call: the_call) -> JSONResponse:
        place, folder = find(call.workspace, safe(call.text("path", default="")))
        return JSONResponse({"files": entries(place, folder)})

    @routes.get(_PROXY + "/{path:path}")
    def download(request: Request, path: str, identity: person) -> FileResponse:
        place, inner = find(workspace_of(request, identity), safe(path))
        return file_answer(place.file(inner))

    @routes.get("/get-artifact")
    def download_of_run(call: the_call) -> FileResponse:
        name, path = call.text("run_id", "run_uuid"), safe(call.text("path"))
        job = run_of(runs, call.workspace, name)
        return file_answer(RunPlace(runs, services, call.workspace, job.name).file(clean(path)))

    # MLflow's own tests ask for it with two slashes, and its server takes them for one.
    @routes.get("//model-versions/get-artifact")
    @routes.get("/model-versions/get-artifact")
    def download_of_version(call: the_call) -> FileResponse:
        name, version = call.text("name"), call.text("version")
        path = clean(safe(call.text("path")))
        found = services.version(call.workspace, name, version)
        return file_answer(VersionPlace(services, found).file(path))

    @routes.post("/api/2.0/mlflow/upload-artifact")
    async def upload_small(request: Request, identity: person) -> JSONResponse:
        workspace = workspace_of(request, identity)
        name, path = (request.query_params.get(one, "") for one in ("run_uuid", "path"))
        for field, value in (("run_uuid", name), ("path", path)):
            if not value:
                raise InvalidInput(f"Request must specify {field}.")
        safe(path)
        length = int(request.headers.get("content-length", "0"))
        if not length:
            raise InvalidInput("Request must specify data.")
        if length > _SMALL_BYTES:
            raise InvalidInput("Artifact size is too large. Max size is 10MB.")
        job = await run_in_threadpool(run_of, runs, workspace, name, identity)
        opening = await run_in_threadpool(runs.write_artifact, workspace, job.name, clean(path))
        with opening as writing:
            async for chunk in request.stream():
                await run_in_threadpool(writing.write, chunk)
        return JSONResponse({})

    @routes.put(_PROXY + "/{path:path}")
    async def upload(request: Request, path: str, identity: person) -> JSONResponse:
        workspace = workspace_of(request, identity)
        place, inner = await run_in_threadpool(find, workspace, safe(path), identity)
        opening = await run_in_threadpool(place.writing, inner)
        with opening as writing:
            async for chunk in request.stream():
                await run_in_threadpool(writing.write, chunk)
        return JSONResponse({})

    @routes.delete(_PROXY + "/{path:path}")
    def delete(request: Request, path: str, identity: person) -> JSONResponse:
        workspace = workspace_of(request, identity)
        place, inner = find(workspace, safe(path), identity)
        place.delete(inner)
        return JSONResponse({})

    return routes
