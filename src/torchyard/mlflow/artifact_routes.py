"""The files of runs, as MLflow's artifact proxy serves them."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse, JSONResponse
from starlette.concurrency import run_in_threadpool

from torchyard.base.errors import NotFound
from torchyard.mlflow.calls import Authenticate, Call, workspace_of
from torchyard.mlflow.errors import MlflowRoute
from torchyard.mlflow.run_routes import run_of
from torchyard.mlflow.runs import Artifact, Runs
from torchyard.mlflow.translate import artifact_root
from torchyard.workspaces.types import Identity

_PROXY = "/api/2.0/mlflow-artifacts/artifacts"


def router(runs: Runs, authenticate: Authenticate, caller: Callable[..., Any]) -> APIRouter:
    routes = APIRouter(route_class=MlflowRoute)
    the_call = Annotated[Call, Depends(caller)]
    person = Annotated[Identity, Depends(authenticate)]

    def find(workspace: str, path: str) -> tuple[str, str]:
        # mlflow-artifacts:/<experiment>/<run>/artifacts/<path>
        parts = [part for part in path.split("/") if part]
        if len(parts) < 3 or parts[2] != "artifacts":
            raise NotFound(f"`{path[:200]}` names no run's artifacts")
        return run_of(runs, workspace, parts[1]).name, "/".join(parts[3:])

    @routes.get("/api/2.0/mlflow/artifacts/list")
    def list_of_run(call: the_call) -> JSONResponse:
        job = run_of(runs, call.workspace, call.text("run_id", "run_uuid"))
        folder = _clean(call.text("path", default=""))
        files = _entries(runs.artifacts(call.workspace, job.name), folder)
        above = f"{folder}/" if folder else ""
        for entry in files:
            entry["path"] = above + entry["path"]
        return JSONResponse({"root_uri": artifact_root(job), "files": files})

    @routes.get(_PROXY)
    def list_files(call: the_call) -> JSONResponse:
        run, folder = find(call.workspace, call.text("path", default=""))
        return JSONResponse({"files": _entries(runs.artifacts(call.workspace, run), folder)})

    @routes.get(_PROXY + "/{path:path}")
    def download(request: Request, path: str, identity: person) -> FileResponse:
        workspace = workspace_of(request, identity)
        run, inner = find(workspace, path)
        found = runs.artifact(workspace, run, inner)
        return FileResponse(found, media_type="application/octet-stream")

    @routes.put(_PROXY + "/{path:path}")
    async def upload(request: Request, path: str, identity: person) -> JSONResponse:
        workspace = workspace_of(request, identity)
        run, inner = await run_in_threadpool(find, workspace, path)
        with runs.write_artifact(workspace, run, inner) as writing:
            async for chunk in request.stream():
                await run_in_threadpool(writing.write, chunk)
        return JSONResponse({})

    @routes.delete(_PROXY + "/{path:path}")
    def delete(request: Request, path: str, identity: person) -> JSONResponse:
        workspace = workspace_of(request, identity)
        run, inner = find(workspace, path)
        runs.delete_artifact(workspace, run, inner)
        return JSONResponse({})

    return routes


def _clean(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _entries(artifacts: Sequence[Artifact], folder: str) -> list[dict[str, Any]]:
    """What lies right below `folder`, folders as such, sorted."""
    above = f"{folder}/" if folder else ""
    files: dict[str, dict[str, Any]] = {}
    for artifact in artifacts:
        if not artifact.path.startswith(above):
            continue
        name, deeper, _ = artifact.path[len(above) :].partition("/")
        entry: dict[str, Any] = {"path": name, "is_dir": bool(deeper)}
        if not deeper:
            entry["file_size"] = artifact.size_bytes
        files[name] = entry
    return [files[name] for name in sorted(files)]
