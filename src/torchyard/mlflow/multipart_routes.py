"""Uploads of large artifacts in parts, as MLflow's clients send them.

Owns: the three endpoints of `mlflow-artifacts/mpu` and the one that takes a part.
Leaves: where the complete file is stored to artifact_repositories.py.
Always: a part is written to disk as it arrives; the file appears complete or not at all; parts of
an upload that nobody completes are deleted after a week. An upload is completed once: a client
that lost the response repeats the request and gets the same one.
"""

import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from torchyard.base.bodies.body_spool import in_body_thread
from torchyard.base.errors import NotFound
from torchyard.base.files import Writing
from torchyard.data.datastores import ARTIFACT_STORE, Datastores
from torchyard.jobs.services import ServicesOf
from torchyard.mlflow.artifact_repositories import checked_path, find_repository, open_part
from torchyard.mlflow.calls import Call, CallOf, CallRoute, integer, invalid_parameter, workspace_of
from torchyard.shared import locks
from torchyard.workspaces.guarded_routes import UNLIMITED, Person, needs
from torchyard.workspaces.permissions import Permission

_MPU = "/api/2.0/mlflow-artifacts/mpu"
_FOLDER = ".uploads"
_UPLOAD_ID = re.compile(r"[0-9a-f]{32}")
_RETENTION_S = 7 * 24 * 3600
_COMPLETE_RETENTION_S = 3600
_MAX_PARTS = 10_000
# Files beside the parts: the lock of the request that joins them, and the mark that it was done.
_LOCK, _COMPLETE = "lock", "complete"
_CHUNK_BYTES = 1 << 20

router = APIRouter(route_class=CallRoute)


@router.post(_MPU + "/create/{path:path}")
@router.post(_MPU + "/create")
@needs(Permission.LOG)
def create(request: Request, call: CallOf, services: ServicesOf, path: str = "") -> JSONResponse:
    call.text("path")
    count = call.count("num_parts", 1, _MAX_PARTS)
    find_repository(services, call.workspace, checked_path(path), call.identity)
    uploads = _uploads_folder(services.datastores, call.workspace)
    _delete_expired(uploads)
    upload_id = secrets.token_hex(16)
    (uploads / upload_id).mkdir(parents=True)
    # The client requests a part's URL exactly as it is, with these headers and no others.
    above = str(request.url).partition("/mpu/create")[0]
    headers = {"Authorization": request.headers["authorization"]}
    credentials = [
        {
            "url": f"{above}/mpu/parts/{upload_id}/{number}",
            "part_number": number,
            "headers": headers,
        }
        for number in range(1, count + 1)
    ]
    return JSONResponse({"upload_id": upload_id, "credentials": credentials})


@router.put(_MPU + "/parts/{upload}/{number}")
@needs(Permission.LOG, body_limit_bytes=UNLIMITED)
async def upload_part(
    request: Request, upload: str, number: int, identity: Person, services: ServicesOf
) -> JSONResponse:
    workspace = workspace_of(request, identity)
    folder = await run_in_threadpool(_upload_folder, services.datastores, workspace, upload)
    if not 1 <= number <= _MAX_PARTS:
        raise invalid_parameter("part_number", number, f"it must be from 1 to {_MAX_PARTS}.")
    opening = await run_in_threadpool(open_part, folder, f"{number:05}")
    with opening as part:
        async for chunk in request.stream():
            await in_body_thread(part.write, chunk)
    return JSONResponse({}, headers={"ETag": f'"{part.stored.sha256}"'})


@router.post(_MPU + "/complete/{path:path}")
@router.post(_MPU + "/complete")
@needs(Permission.LOG)
def complete(call: CallOf, services: ServicesOf, path: str = "") -> JSONResponse:
    folder = _upload_folder(services.datastores, call.workspace, call.text("upload_id"))
    numbers = _part_numbers(call)
    name = call.text("path").replace("\\", "/").rpartition("/")[2]
    file_path = checked_path(f"{path}/{name}" if path else name)
    repository, inner_path = find_repository(services, call.workspace, file_path, call.identity)
    with _locked(folder):
        if (folder / _COMPLETE).exists():
            return JSONResponse({})
        parts = [folder / f"{number:05}" for number in sorted(set(numbers))]
        if not parts or not all(part.is_file() for part in parts):
            raise invalid_parameter("parts", numbers, "a part was not uploaded.")
        with repository.writing(inner_path) as writing:
            _join(parts, writing)
        (folder / _COMPLETE).touch()
        for part in folder.glob("[0-9]*"):
            part.unlink()
    return JSONResponse({})


@router.post(_MPU + "/abort/{path:path}")
@router.post(_MPU + "/abort")
@needs(Permission.LOG)
def abort(call: CallOf, services: ServicesOf, path: str = "") -> JSONResponse:
    shutil.rmtree(_upload_folder(services.datastores, call.workspace, call.text("upload_id")))
    return JSONResponse({})


def _uploads_folder(datastores: Datastores, workspace: str) -> Path:
    return datastores.root(workspace, ARTIFACT_STORE) / _FOLDER


def _upload_folder(datastores: Datastores, workspace: str, upload_id: str) -> Path:
    """
    Raises:
        NotFound: the upload does not exist.
    """
    folder = _uploads_folder(datastores, workspace) / upload_id
    if not _UPLOAD_ID.fullmatch(upload_id) or not folder.is_dir():
        raise _upload_not_found(upload_id)
    return folder


def _part_numbers(call: Call) -> list[int]:
    return [integer(part.get("part_number"), "parts") for part in call.objects("parts")]


def _join(parts: list[Path], writing: Writing) -> None:
    for part in parts:
        with part.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                writing.write(chunk)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Only one request at a time joins the parts of an upload.

    Raises:
        NotFound: the upload was aborted in the meantime.
    """
    try:
        lock = open(folder / _LOCK, "ab")
    except FileNotFoundError as error:
        raise _upload_not_found(folder.name) from error
    with lock:
        locks.lock(lock)
        yield


def _upload_not_found(upload_id: str) -> NotFound:
    return NotFound(f"there is no upload `{upload_id[:64]}`", "start it again")


def _delete_expired(uploads: Path) -> None:
    if not uploads.is_dir():
        return
    for folder in uploads.iterdir():
        try:
            age_s = time.time() - folder.stat().st_mtime
        except FileNotFoundError:
            continue  # aborted in the meantime
        is_complete = (folder / _COMPLETE).exists()
        if age_s > (_COMPLETE_RETENTION_S if is_complete else _RETENTION_S):
            shutil.rmtree(folder, ignore_errors=True)
