"""HTTP: what a node of another machine needs before its worker runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.environments.build import transport
from torchyard.executors import bundle
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.services import Services, ServicesOf
from torchyard.shared.environment_mark import mark_of
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

_BYTES = "application/octet-stream"
_LISTS = "carried"
# A node waits for a minute, in which the files are listed, too, and then asks again.
_COMPILING_S = 40.0

router = APIRouter(prefix="/v1/attempts/{attempt_id}", tags=["attempts"], route_class=GuardedRoute)


@router.get("/plan")
@needs(Permission.WORKER)
def get_plan(services: ServicesOf, attempt_id: str) -> dict[str, Any]:
    plan = _plan(services, attempt_id)
    environment = plan.get("environment")
    if environment:
        plan["environment_mark"] = mark_of(Path(environment))
    return plan


@router.get("/worker")
@needs(Permission.WORKER)
def get_worker(services: ServicesOf, attempt_id: str, sha256: str = "") -> OpenFileResponse:
    worker_reports.get(services, attempt_id)
    file = bundle.kept_zip(services.home, sha256) if sha256 else bundle.worker_zip(services.home)
    if file is None:
        raise NotFound(
            "the worker's program that this node was told to run is not on this server",
            "nothing needs to be done: the next attempt runs the server's own",
        )
    return OpenFileResponse(file, media_type=_BYTES)


@router.get("/environment")
@needs(Permission.WORKER)
def list_environment(
    services: ServicesOf, attempt_id: str, part: str = transport.ENVIRONMENT
) -> Response:
    files = _files(services, attempt_id, part)
    return Response(files.content, media_type=_BYTES)


@router.get("/environment/files")
@needs(Permission.WORKER)
def get_environment(
    services: ServicesOf,
    attempt_id: str,
    of: str,
    part: str = transport.ENVIRONMENT,
    offset: Annotated[int, Query(ge=0)] = 0,
    only: str = "",
) -> StreamingResponse:
    """The bytes of all files of the list whose sha256 is `of`, or of those that `only` names."""
    files = _files(services, attempt_id, part)
    if files.sha256 != of:
        raise Conflict(
            "the environment was built again since the node asked for its files",
            "nothing needs to be done: the node asks again",
            code="environment_changed",
        )
    blocks: Iterator[bytes] = transport.read_from(files, offset, only)
    return StreamingResponse(blocks, media_type=_BYTES)


def _plan(services: Services, attempt_id: str) -> dict[str, Any]:
    worker_reports.get(services, attempt_id)
    text = services.launches.read(attempt_id)
    if text is None:
        raise NotFound(
            f"attempt `{attempt_id}` is not one for nodes of other machines",
            "nothing needs to be done",
        )
    plan: dict[str, Any] = json.loads(text)
    return plan


def _files(services: Services, attempt_id: str, part: str) -> transport.FileList:
    if part not in transport.PARTS:
        raise InvalidInput(f"`part` must be one of {', '.join(transport.PARTS)}")
    environment = _plan(services, attempt_id).get("environment")
    if not environment:
        raise NotFound("the job has no environment of its own", "nothing needs to be done")
    folder, lists = Path(environment), services.home / "environments" / _LISTS
    # It is listed once: what is compiled later, jobs on the nodes compile for themselves.
    compiler = services.environments.compiler
    return transport.file_list(
        folder, part, lists, lambda: compiler.is_ready(folder.name, _COMPILING_S)
    )
