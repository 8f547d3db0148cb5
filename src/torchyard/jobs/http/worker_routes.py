"""HTTP: attempts, for their workers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Body, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from torchyard.base import files
from torchyard.base.bodies.body_spool import in_body_thread
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.dependencies import from_state
from torchyard.base.errors import NotFound
from torchyard.jobs import actions
from torchyard.jobs.attempts import node_reports, report_fields, worker_history, worker_reports
from torchyard.jobs.attempts.idle_time import IdleTime
from torchyard.jobs.attempts.worker_reports import StopRequest
from torchyard.jobs.files import artifacts, inputs, log_quota
from torchyard.jobs.records.types import parse_job
from torchyard.jobs.records.wakeups import Signals
from torchyard.jobs.services import FileServices, ServicesOf
from torchyard.workspaces.guarded_routes import UNLIMITED, GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

_MAX_WAIT_S = 30.0
# A worker's chunk is 1 MiB.
_LOG_LIMIT_BYTES = 4 << 20
_T = TypeVar("_T")

IdleTimeOf = Annotated[IdleTime, Depends(from_state("idle_time"))]

router = APIRouter(prefix="/v1/attempts/{attempt_id}", tags=["attempts"], route_class=GuardedRoute)


@router.post("/report")
@needs(Permission.WORKER)
def report(
    services: ServicesOf,
    idle_time: IdleTimeOf,
    attempt_id: str,
    node: Annotated[int, Body()],
    events: Annotated[list[dict[str, Any]], Body()],
    watched: Annotated[bool, Body()] = False,
    steady_s: Annotated[float | None, Body()] = None,
    ran_s: Annotated[float | None, Body()] = None,
) -> dict[str, Any]:
    node_events = report_fields.read_events(node, events, steady_s)
    report_fields.check_seconds("ran_s", ran_s)
    receipt = node_reports.receive(services, attempt_id, node, node_events, ran_s)
    attempt = receipt.attempt
    stop = StopRequest(attempt.order, attempt.order_reason)
    response = {"next": receipt.following, **_control(stop)}
    if watched:
        response["idle_s"] = idle_time.seconds(attempt)
    return response


@router.get("/control")
@needs(Permission.WORKER)
async def stop_request(
    services: ServicesOf,
    attempt_id: str,
    node: int = 0,
    wait_s: float = 0.0,
    after: str = "",
    after_reason: str = "",
) -> dict[str, Any]:
    tunnels = services.tunnels

    def is_news(stop: StopRequest) -> bool:
        if stop.control and after_reason and stop.reason != after_reason:
            return True
        return stop.control not in ("", after) or tunnels.is_wanted(attempt_id, node)

    stop = await _until(
        services.signals,
        attempt_id,
        wait_s,
        lambda: worker_reports.stop_request(services, attempt_id),
        is_news,
    )
    extras = {"tunnel": True} if tunnels.is_wanted(attempt_id, node) else {}
    return {**_control(stop), **extras}


@router.post("/rendezvous")
@needs(Permission.WORKER)
def join(
    services: ServicesOf,
    attempt_id: str,
    node: Annotated[int, Body()],
    address: Annotated[str, Body()],
    port: Annotated[int | None, Body()] = None,
    facts: Annotated[dict[str, Any] | None, Body()] = None,
) -> dict[str, Any]:
    report_fields.check_node(node, port)
    report_fields.check_facts(facts or {})
    worker_reports.join(services, attempt_id, node, address, port, facts)
    return {}


@router.get("/rendezvous")
@needs(Permission.WORKER)
async def rendezvous(services: ServicesOf, attempt_id: str, wait_s: float = 0.0) -> dict[str, Any]:
    state = await _until(
        services.signals,
        attempt_id,
        wait_s,
        lambda: worker_reports.rendezvous(services, attempt_id),
        lambda state: state.ready,
    )
    return {
        "ready": state.ready,
        "nodes": state.nodes,
        "port": state.port,
        "facts": state.facts if state.ready else [],
    }


@router.put("/logs")
@needs(Permission.WORKER, body_limit_bytes=_LOG_LIMIT_BYTES)
async def put_log(
    services: ServicesOf, attempt_id: str, path: str, offset: int, request: Request
) -> Response:
    content = await request.body()
    return await run_in_threadpool(_append, services, attempt_id, path, offset, content)


@router.post("/history")
@needs(Permission.WORKER)
async def history(
    services: ServicesOf,
    attempt_id: str,
    node: Annotated[int, Body()],
    seq: Annotated[int, Body()],
    records: Annotated[list[dict[str, Any]], Body()],
    first: Annotated[int | None, Body()] = None,
) -> dict[str, Any]:
    report_fields.check_records(node, seq, records)
    return await services.history.threads.run(
        worker_history.receive, services, attempt_id, node, seq, records, first
    )


@router.get("/blobs/{sha256}")
@needs(Permission.WORKER)
def get_blob(services: ServicesOf, attempt_id: str, sha256: str) -> OpenFileResponse:
    _, job = worker_reports.get(services, attempt_id)
    blobs = services.blobs.of(job.workspace)
    if not blobs.has(sha256):
        raise NotFound(f"blob `{sha256[:12]}…` is not on this server")
    return OpenFileResponse(blobs.path(sha256), media_type="application/octet-stream")


@router.get("/inputs/{name}")
@needs(Permission.WORKER)
def list_input(services: ServicesOf, attempt_id: str, name: str) -> dict[str, Any]:
    _, job = worker_reports.get(services, attempt_id)
    source = inputs.source(services, parse_job(job), name)
    return {"single": inputs.is_single(source), "files": inputs.files_of(source)}


@router.get("/inputs/{name}/files/{path:path}")
@needs(Permission.WORKER)
def get_input(services: ServicesOf, attempt_id: str, name: str, path: str) -> OpenFileResponse:
    _, job = worker_reports.get(services, attempt_id)
    file = inputs.file(inputs.source(services, parse_job(job), name), path)
    return OpenFileResponse(file, media_type="application/octet-stream")


@router.get("/previous-outputs")
@needs(Permission.WORKER)
def list_earlier(services: ServicesOf, attempt_id: str) -> dict[str, Any]:
    _, job = worker_reports.get(services, attempt_id)
    return {
        "files": [
            {"output": output, "path": file.path, "size_bytes": file.size_bytes}
            for output, file in artifacts.list_earlier(services, job)
        ]
    }


@router.get("/previous-outputs/{output}/{path:path}")
@needs(Permission.WORKER)
def get_earlier(services: ServicesOf, attempt_id: str, output: str, path: str) -> OpenFileResponse:
    _, job = worker_reports.get(services, attempt_id)
    # `-` is ./outputs: no named output can be called so.
    file = artifacts.earlier_file(services, job, "" if output == "-" else output, path)
    return OpenFileResponse(file, media_type="application/octet-stream")


@router.put("/files/{path:path}")
@needs(Permission.WORKER, body_limit_bytes=UNLIMITED)
async def put_file(
    services: ServicesOf, attempt_id: str, path: str, request: Request
) -> dict[str, Any]:
    _, job = await run_in_threadpool(worker_reports.get, services, attempt_id)
    return await _receive(artifacts.writing(services.datastores, job, path), request.stream())


@router.delete("/files/{path:path}")
@needs(Permission.WORKER)
def delete_file(services: ServicesOf, attempt_id: str, path: str) -> dict[str, Any]:
    """Of a checkpoint that its script has deleted."""
    _, job = worker_reports.get(services, attempt_id)
    artifacts.delete(services.datastores, job, path)
    return {}


@router.put("/outputs/{output}/{path:path}")
@needs(Permission.WORKER, body_limit_bytes=UNLIMITED)
async def put_output(
    services: ServicesOf, attempt_id: str, output: str, path: str, request: Request
) -> dict[str, Any]:
    _, job = await run_in_threadpool(worker_reports.get, services, attempt_id)
    return await _receive(artifacts.writing_output(services, job, output, path), request.stream())


def _control(stop: StopRequest) -> dict[str, Any]:
    """As it is sent: to workers of the previous release, `kill` is a `stop` as any other."""
    is_urgent = stop.control == actions.KILL
    control = actions.STOP if is_urgent else stop.control
    return {"control": control, "reason": stop.reason, "urgent": is_urgent}


async def _until(
    signals: Signals,
    attempt_id: str,
    wait_s: float,
    read: Callable[[], _T],
    enough: Callable[[_T], bool],
) -> _T:
    """Read at each change of the attempt, until `enough` says so or the time is over."""
    # NaN compares as false: it waits for nothing.
    until = time.monotonic() + (min(wait_s, _MAX_WAIT_S) if wait_s > 0 else 0.0)
    key = actions.attempt_key(attempt_id)
    while True:
        seen = signals.count(key)
        state = await run_in_threadpool(read)
        left_s = until - time.monotonic()
        if enough(state) or left_s <= 0 or signals.closed:
            return state
        await signals.wait(key, seen, left_s)


async def _receive(
    opened: AbstractContextManager[files.Writing], stream: AsyncIterator[bytes]
) -> dict[str, Any]:
    # A remote datastore is called when the file is opened and when it is closed.
    writing = await run_in_threadpool(opened.__enter__)
    try:
        async for chunk in stream:
            await in_body_thread(writing.write, chunk)
    except BaseException as error:
        if not await run_in_threadpool(opened.__exit__, type(error), error, error.__traceback__):
            raise
    else:
        await run_in_threadpool(opened.__exit__, None, None, None)
    return {"sha256": writing.stored.sha256, "size_bytes": writing.stored.size_bytes}


def _append(
    services: FileServices, attempt_id: str, path: str, offset: int, content: bytes
) -> Response:
    attempt, job = worker_reports.get(services, attempt_id)
    status, body = log_quota.answer(services, job, attempt.number, path, offset, content)
    return JSONResponse(body, status)
