"""The files of runs and models, as MLflow's artifact proxy serves them.

Owns: the routes, the headers of a file.
Leaves: which files a path names to artifact_repositories.py.
Always: a browser saves a file and never displays it, because it may hold anything that a run wrote.
"""

import mimetypes
import re
from pathlib import Path
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from torchyard.base.bodies.body_spool import in_body_thread
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.errors import InvalidInput
from torchyard.jobs.services import ServicesOf
from torchyard.mlflow.artifact_repositories import (
    RunArtifacts,
    VersionArtifacts,
    checked_path,
    find_repository,
    list_folder,
    list_folder_from_root,
    normalize,
)
from torchyard.mlflow.calls import CallOf, CallRoute, workspace_of
from torchyard.mlflow.lookups import get_run
from torchyard.mlflow.model_json import get_version
from torchyard.mlflow.translate import artifact_uri
from torchyard.workspaces.guarded_routes import UNLIMITED, Person, needs
from torchyard.workspaces.permissions import Permission

_PROXY = "/api/2.0/mlflow-artifacts/artifacts"
_MAX_SMALL_BYTES = 10 << 20
_BINARY = "application/octet-stream"
_TEXT_EXTENSIONS = frozenset(
    "txt log err cfg conf cnf cf ini properties prop hocon toml yaml yml xml json js py py3 csv tsv"
    " md rst MLmodel mlproject".split()
)
_PLAIN_NAME = re.compile(r"[\w.+%!&^~@=-]+", re.ASCII)

router = APIRouter(route_class=CallRoute)


@router.get("/api/2.0/mlflow/artifacts/list")
@needs(Permission.READ)
def list_run_files(call: CallOf, services: ServicesOf) -> JSONResponse:
    job = get_run(services, call.workspace, call.text("run_id", "run_uuid"))
    folder = normalize(checked_path(call.text("path", default="")))
    files = list_folder_from_root(RunArtifacts(services, job), folder)
    return JSONResponse({"root_uri": artifact_uri(job), "files": files})


@router.get(_PROXY)
@needs(Permission.READ)
def list_files(call: CallOf, services: ServicesOf) -> JSONResponse:
    path = checked_path(call.text("path", default=""))
    repository, folder = find_repository(services, call.workspace, path)
    return JSONResponse({"files": list_folder(repository, folder)})


@router.get(_PROXY + "/{path:path}")
@needs(Permission.READ)
def download(
    request: Request, path: str, identity: Person, services: ServicesOf
) -> OpenFileResponse:
    workspace = workspace_of(request, identity)
    repository, inner_path = find_repository(services, workspace, checked_path(path))
    return _file_response(repository.file(inner_path))


@router.get("/get-artifact")
@needs(Permission.READ)
def download_run_file(call: CallOf, services: ServicesOf) -> OpenFileResponse:
    run_id, path = call.text("run_id", "run_uuid"), checked_path(call.text("path"))
    job = get_run(services, call.workspace, run_id)
    return _file_response(RunArtifacts(services, job).file(normalize(path)))


# MLflow's own tests request it with two slashes, which its server treats as one.
@router.get("//model-versions/get-artifact")
@router.get("/model-versions/get-artifact")
@needs(Permission.READ)
def download_version_file(call: CallOf, services: ServicesOf) -> OpenFileResponse:
    name, version = call.text("name"), call.text("version")
    path = normalize(checked_path(call.text("path")))
    model = get_version(services.db, call.workspace, name, version)
    return _file_response(VersionArtifacts(services, model).file(path))


@router.post("/api/2.0/mlflow/upload-artifact")
@needs(Permission.LOG, body_limit_bytes=UNLIMITED)
async def upload_small(request: Request, identity: Person, services: ServicesOf) -> JSONResponse:
    workspace = workspace_of(request, identity)
    run_id, path = (request.query_params.get(name, "") for name in ("run_uuid", "path"))
    for name, value in (("run_uuid", run_id), ("path", path)):
        if not value:
            raise InvalidInput(f"Request must specify {name}.")
    checked_path(path)
    length = int(request.headers.get("content-length", "0"))
    if not length:
        raise InvalidInput("Request must specify data.")
    if length > _MAX_SMALL_BYTES:
        raise InvalidInput("Artifact size is too large. Max size is 10MB.")
    job = await run_in_threadpool(get_run, services, workspace, run_id, identity)
    opening = await run_in_threadpool(RunArtifacts(services, job).writing, normalize(path))
    with opening as writing:
        async for chunk in request.stream():
            await in_body_thread(writing.write, chunk)
    return JSONResponse({})


@router.put(_PROXY + "/{path:path}")
@needs(Permission.LOG, body_limit_bytes=UNLIMITED)
async def upload(
    request: Request, path: str, identity: Person, services: ServicesOf
) -> JSONResponse:
    workspace = workspace_of(request, identity)
    repository, inner_path = await run_in_threadpool(
        find_repository, services, workspace, checked_path(path), identity
    )
    opening = await run_in_threadpool(repository.writing, inner_path)
    with opening as writing:
        async for chunk in request.stream():
            await in_body_thread(writing.write, chunk)
    return JSONResponse({})


@router.delete(_PROXY + "/{path:path}")
@needs(Permission.JOB)
def delete(request: Request, path: str, identity: Person, services: ServicesOf) -> JSONResponse:
    workspace = workspace_of(request, identity)
    repository, inner_path = find_repository(services, workspace, checked_path(path), identity)
    repository.delete(inner_path)
    return JSONResponse({})


def _file_response(file: Path) -> OpenFileResponse:
    name = file.name
    if _PLAIN_NAME.fullmatch(name):
        disposition = f"attachment; filename={name}"
    else:
        disposition = f"attachment; filename*=utf-8''{quote(name)}"
    headers = {
        "Content-Disposition": disposition,
        "X-Content-Type-Options": "nosniff",
        # Set here, or FastAPI adds a charset to a text's type.
        "Content-Type": _content_type(name),
    }
    return OpenFileResponse(file, headers=headers)


def _content_type(name: str) -> str:
    extension = name.rpartition(".")[2]
    if extension in _TEXT_EXTENSIONS:
        return "text/plain"
    return mimetypes.guess_type(name)[0] or _BINARY
