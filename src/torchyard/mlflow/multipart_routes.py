"""Uploads of large artifacts in parts, as MLflow's clients send them.

Owns: the three endpoints of `mlflow-artifacts/mpu` and the one that takes a part.
Leaves: where the whole file lies to places.py.
Always: a part goes to disk as it comes; the file is there whole or not at all; parts of an upload
that nobody completes go after a week. An upload is completed once: a client whose answer was late
asks again, and is told so.
"""

import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from torchyard.base.errors import NotFound
from torchyard.data.datastores import ARTIFACT_STORE
from torchyard.mlflow import places
from torchyard.mlflow.calls import Authenticate, Call, Caller, integer, invalid, workspace_of
from torchyard.mlflow.registry import Registry
from torchyard.mlflow.runs import Runs
from torchyard.shared import locks
from torchyard.workspaces.types import Identity

_MPU = "/api/2.0/mlflow-artifacts/mpu"
_FOLDER = ".uploads"
_UPLOAD = re.compile(r"[0-9a-f]{32}")
_KEPT_S = 7 * 24 * 3600
_DONE_KEPT_S = 3600
_PARTS_LIMIT = 10_000
# Files beside the parts: what one holds who puts them together, and that it was done.
_LOCK, _COMPLETE = "lock", "complete"
_CHUNK_BYTES = 1 << 20


def router(runs: Runs, services: Registry, authenticate: Authenticate, caller: Caller) -> APIRouter:
    routes = APIRouter(route_class=caller.route_class)
    person = Annotated[Identity, Depends(authenticate)]

    def folder_of(workspace: str, upload: str) -> Path:
        found = _uploads(services, workspace) / upload
        if not _UPLOAD.fullmatch(upload) or not found.is_dir():
            raise _no_upload(upload)
        return found

    @routes.post(_MPU + "/create/{path:path}")
    @routes.post(_MPU + "/create")
    def create(
        request: Request, call: Annotated[Call, Depends(caller)], path: str = ""
    ) -> JSONResponse:
        call.text("path")
        count = call.size("num_parts", 1, _PARTS_LIMIT)
        places.find(runs, services, call.workspace, places.safe(path), call.identity)
        uploads = _uploads(services, call.workspace)
        _drop_old(uploads)
        upload = secrets.token_hex(16)
        (uploads / upload).mkdir(parents=True)
        # The client asks for a part's address as it stands, with these headers and no others.
        above = str(request.url).partition("/mpu/create")[0]
        headers = {"Authorization": request.headers["authorization"]}
        credentials = [
            {
                "url": f"{above}/mpu/parts/{upload}/{number}",
                "part_number": number,
                "headers": headers,
            }
            for number in range(1, count + 1)
        ]
        return JSONResponse({"upload_id": upload, "credentials": credentials})

    @routes.put(_MPU + "/parts/{upload}/{number}")
    async def take_part(
        request: Request, upload: str, number: int, identity: person
    ) -> JSONResponse:
        folder = await run_in_threadpool(folder_of, workspace_of(request, identity), upload)
        if not 1 <= number <= _PARTS_LIMIT:
            raise invalid("part_number", number, f"it is from 1 to {_PARTS_LIMIT}.")
        name = f"{number:05}"
        writing = await run_in_threadpool(places.part_in, folder, name)
        with writing as part:
            async for chunk in request.stream():
                await run_in_threadpool(part.write, chunk)
        return JSONResponse({}, headers={"ETag": f'"{part.stored.sha256}"'})

    @routes.post(_MPU + "/complete/{path:path}")
    @routes.post(_MPU + "/complete")
    def complete(call: Annotated[Call, Depends(caller)], path: str = "") -> JSONResponse:
        folder = folder_of(call.workspace, call.text("upload_id"))
        numbers = [integer(part.get("part_number"), "parts") for part in call.objects("parts")]
        name = call.text("path").replace("\\", "/").rpartition("/")[2]
        whole = places.safe(f"{path}/{name}" if path else name)
        place, inner = places.find(runs, services, call.workspace, whole, call.identity)
        with _alone(folder):
            if (folder / _COMPLETE).exists():
                return JSONResponse({})
            parts = [folder / f"{number:05}" for number in sorted(set(numbers))]
            if not parts or not all(part.is_file() for part in parts):
                raise invalid("parts", numbers, "a part was not uploaded.")
            with place.writing(inner) as writing:
                for part in parts:
                    with part.open("rb") as file:
                        while chunk := file.read(_CHUNK_BYTES):
                            writing.write(chunk)
            (folder / _COMPLETE).touch()
            for part in folder.glob("[0-9]*"):
                part.unlink()
        return JSONResponse({})

    @routes.post(_MPU + "/abort/{path:path}")
    @routes.post(_MPU + "/abort")
    def abort(call: Annotated[Call, Depends(caller)], path: str = "") -> JSONResponse:
        shutil.rmtree(folder_of(call.workspace, call.text("upload_id")))
        return JSONResponse({})

    return routes


def _uploads(services: Registry, workspace: str) -> Path:
    return services.datastores.root(workspace, ARTIFACT_STORE) / _FOLDER


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While nobody else puts this upload's parts together.

    Raises:
        NotFound: the upload was aborted meanwhile.
    """
    try:
        lock = open(folder / _LOCK, "ab")
    except FileNotFoundError as error:
        raise _no_upload(folder.name) from error
    with lock:
        locks.lock(lock)
        yield


def _no_upload(upload: str) -> NotFound:
    return NotFound(f"there is no upload `{upload[:64]}`", "begin it again")


def _drop_old(uploads: Path) -> None:
    if not uploads.is_dir():
        return
    for folder in uploads.iterdir():
        try:
            age_s = time.time() - folder.stat().st_mtime
        except FileNotFoundError:
            continue  # aborted this moment
        if age_s > (_DONE_KEPT_S if (folder / _COMPLETE).exists() else _KEPT_S):
            shutil.rmtree(folder, ignore_errors=True)
