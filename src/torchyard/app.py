"""The app: every room behind HTTP, and what runs beside it.

Owns: putting the rooms together, the routes, how errors are told, what answers without a token.
Leaves: everything else to the rooms; the process, its port and its end to server.py.
Always: whatever goes wrong is answered as `error`, `hint` and a code.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, IntegrityError
from starlette.exceptions import HTTPException

import torchyard
from torchyard.azureml import entry_routes, page_routes
from torchyard.azureml import room as azure_room
from torchyard.azureml.paths import AzurePaths
from torchyard.azureml.room import Lazily
from torchyard.base import disk, home_database
from torchyard.base import machine as machines
from torchyard.base.blobs import Blobs
from torchyard.base.clock import Clock, SystemClock
from torchyard.base.errors import Conflict, Internal, InvalidInput, NotFound, TorchyardError
from torchyard.base.files import whole
from torchyard.components import routes as component_routes
from torchyard.compute import actions as computes
from torchyard.compute import routes as compute_routes
from torchyard.data import asset_routes
from torchyard.data import routes as data_routes
from torchyard.data.datastores import Datastores
from torchyard.doors import Doors
from torchyard.environments import routes as environment_routes
from torchyard.environments.actions import Environments
from torchyard.environments.builds import Builds
from torchyard.executors.executor import Executor
from torchyard.executors.local import LocalExecutor
from torchyard.executors.machine import Machine
from torchyard.jobs import (
    allowances,
    bundles,
    cluster_routes,
    data_sources,
    deletion_routes,
    experiment_routes,
    history_routes,
    logged_metrics,
    machine,
    model_sources,
    owners,
    reclaiming_routes,
    runs,
    secrets,
    store,
    worker_routes,
    workspace_life,
)
from torchyard.jobs import routes as job_routes
from torchyard.jobs.actions import job_key
from torchyard.jobs.history import History
from torchyard.jobs.logs import Logs
from torchyard.jobs.room import Room
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.signals import Signals
from torchyard.mlflow import routes as mlflow_routes
from torchyard.mlflow.job_runs import JobRuns
from torchyard.mlflow.registry import Registry
from torchyard.models import routes as model_routes
from torchyard.servers import sharing as sharing_of
from torchyard.servers.lease import Alone
from torchyard.servers.sharing import Sharing
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import people_routes, quota_routes
from torchyard.workspaces import routes as workspace_routes
from torchyard.workspaces.access import Access, Person
from torchyard.workspaces.audit import Audit
from torchyard.workspaces.auditing import Auditing
from torchyard.workspaces.jwts import Signer
from torchyard.workspaces.spellings import Spellings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """Everything that lives as long as the server."""

    room: Room
    access: Access
    scheduler: Scheduler
    signer: Signer
    sharing: Sharing | None = None


def build(
    home: Path,
    url: str,
    environ: Mapping[str, str],
    clock: Clock | None = None,
    executor: Executor | None = None,
    database: str = "",
    shared: bool = False,
    for_others: bool = False,
) -> Parts:
    """Open the home folder and put the rooms together; nothing runs yet.

    Args:
        environ: what builds and jobs inherit.
        database: its URL; empty for the one that the home had last.
        shared: other servers may serve the home, too.
        for_others: it is reached from other machines.

    Raises:
        InvalidInput: the database can't be used, or can't be shared.
        Conflict: it is another home's, or in use by servers that this one can't be beside.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    clock = clock or SystemClock()
    chosen = home_database.chosen(home, database)
    if shared:
        sharing_of.refuse_unshareable(home, chosen)
    db = home_database.open_for(home, chosen, shared)
    signals, bell = Signals(), threading.Event()
    sharing = None
    if shared:
        sharing = sharing_of.made(db, home, url, bell.set, signals.heard, signals.missed)
        signals.share(sharing.wire.tell)
    else:
        sharing_of.be_alone(db, home)
    default = workspaces.ensure_default(db, clock)
    computes.ensure_local(db, clock, default.name)
    devices = Machine(environ)
    room = Room(
        home=home,
        db=db,
        clock=clock,
        blobs=Blobs(home / "blobs"),
        datastores=Datastores(home / "datastores"),
        environments=Environments(home, db, clock, environ, is_shared=shared or for_others),
        history=History(db, store.merge_tags, logged_metrics.add),
        logs=Logs(home / "logs", shared),
        signals=signals,
        bell=bell,
        server_id=_id_of(home),
        machine=machine.read(home),
        devices=devices,
        standing=sharing.lease if sharing else Alone(),
    )
    here = machines.here() if shared else ""
    local = executor or LocalExecutor(home, environ, devices=devices, machine=here)
    scheduler = Scheduler(room, local, url)
    signer = Signer(home, room.server_id)
    access = Access(db, clock, lambda workspace, job: owners.of_name(room, workspace, job), signer)
    return Parts(room, access, scheduler, signer, sharing)


def create_app(
    parts: Parts,
    hosts: Sequence[str] = (),
    open_tls: entry_routes.OpenTls | None = None,
    storage_domain: str = "",
) -> FastAPI:
    """The HTTP face of the rooms.

    Args:
        hosts: the names that plain requests may call the server by; any when empty.
        open_tls: see azureml/entry_routes.py, as `storage_domain`.
    """
    room = parts.room
    builds = Builds(room.environments, parts.scheduler.preparer.secrets)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        room.signals.attach(asyncio.get_running_loop())
        parts.scheduler.start()
        yield
        parts.scheduler.stop()
        builds.close()
        audit.close()
        if parts.sharing is not None:
            parts.sharing.stop()
        room.db.close()

    app = FastAPI(
        title="torchyard",
        version=torchyard.__version__,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.access = parts.access
    app.add_middleware(Doors, hosts=hosts, server_id=room.server_id)
    audit = Audit(room.home, room.clock)
    app.add_middleware(Auditing, lines=audit)
    app.add_middleware(AzurePaths, spellings=Spellings(room.db))

    @app.get("/health", tags=["server"])
    def health() -> dict[str, Any]:
        trouble = parts.scheduler.trouble
        return {
            "status": "degraded" if trouble else "ok",
            "trouble": trouble,
            "version": torchyard.__version__,
            "pid": os.getpid(),
        }

    @app.get("/openapi.json", include_in_schema=False)
    def openapi(identity: Person) -> dict[str, Any]:
        return app.openapi()

    find_model = partial(model_sources.find, room)
    registry = Registry(room.db, room.clock, room.datastores, find_model)
    # Routes are tried in turn, and no others are called as often.
    for prefix in ("", "/mlflow/{workspace}"):
        tracking = mlflow_routes.router(
            JobRuns(room),
            registry,
            room.history,
            parts.access.person,
            lambda job: room.signals.notify(job_key(job)),
            partial(secrets.masker_of_script, room.db),
        )
        app.include_router(tracking, prefix=prefix)
    app.include_router(
        workspace_routes.router(
            room.db,
            room.clock,
            partial(workspace_life.furnish, room),
            partial(workspace_life.delete_empty, room),
        )
    )
    app.include_router(
        people_routes.router(room.db, room.clock, audit, lambda user: owners.cancel_all(room, user))
    )
    app.include_router(
        quota_routes.router(
            room.db,
            room.clock,
            lambda workspace, user: allowances.use_of(room, workspace, user),
        )
    )
    app.include_router(compute_routes.router(room.db, room.clock, room.home, room.devices))
    app.include_router(cluster_routes.router(room))
    app.include_router(data_routes.router(room.blobs))
    app.include_router(
        asset_routes.router(
            room.db,
            room.clock,
            room.datastores,
            room.blobs,
            room.fetcher,
            lambda workspace, type, path: data_sources.pin(room, workspace, type, path).path,
        )
    )
    app.include_router(
        environment_routes.router(
            room.environments,
            builds,
            room.clock,
            lambda workspace: runs.environment_hashes(room, workspace),
        )
    )
    app.include_router(component_routes.router(room.db, room.clock, room.blobs))
    app.include_router(job_routes.router(room))
    app.include_router(deletion_routes.router(room))
    app.include_router(history_routes.router(room))
    app.include_router(experiment_routes.router(room))
    app.include_router(bundles.router(room))
    app.include_router(reclaiming_routes.router(room))
    app.include_router(worker_routes.router(room))
    app.include_router(
        model_routes.router(
            room.db,
            room.clock,
            room.datastores,
            find_model,
        )
    )
    app.include_router(
        entry_routes.router(
            room.clock,
            parts.signer,
            parts.access.person,
            parts.access.holder,
            open_tls,
            storage_domain,
        )
    )
    app.include_router(page_routes.router())
    app.router.routes.append(
        Lazily(lambda: azure_room.router(room, parts.access, find_model, storage_domain))
    )
    _answer_errors(app)
    return app


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(TorchyardError)
    def refused(request: Request, error: TorchyardError) -> JSONResponse:
        return JSONResponse(error.to_json(), error.http_status)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        refusal = InvalidInput(f"the request's `{place}` is wrong: {first['msg']}")
        return JSONResponse(refusal.to_json(), refusal.http_status)

    @app.exception_handler(HTTPException)
    def no_route(request: Request, error: HTTPException) -> JSONResponse:
        kind = NotFound if error.status_code == 404 else InvalidInput
        refusal = kind(f"nothing answers {request.method} `{request.url.path}`")
        return JSONResponse(refusal.to_json(), error.status_code)

    @app.exception_handler(IntegrityError)
    def collided(request: Request, error: IntegrityError) -> JSONResponse:
        _log.warning("collision on %s: %s", request.url.path, error)
        refusal = Conflict("another request changed the same thing", "try again")
        return JSONResponse(refusal.to_json(), refusal.http_status)

    @app.exception_handler(NotADirectoryError)
    @app.exception_handler(IsADirectoryError)
    @app.exception_handler(FileExistsError)
    def in_the_way(request: Request, error: Exception) -> JSONResponse:
        _log.warning("%s %s: %r", request.method, request.url.path, error)
        refusal = Conflict("a file and a folder would have one path", "choose another path")
        return JSONResponse(refusal.to_json(), refusal.http_status)

    @app.exception_handler(OSError)
    def disk_failed(request: Request, error: OSError) -> JSONResponse:
        found = disk.meaning(error)
        if found is None:
            return failed(request, error)
        _log.warning("%s %s: %s: %r", request.method, request.url.path, found.message, error)
        return JSONResponse(found.to_json(), found.http_status)

    @app.exception_handler(OverflowError)
    @app.exception_handler(RecursionError)
    @app.exception_handler(UnicodeEncodeError)
    @app.exception_handler(DataError)
    def beyond(request: Request, error: Exception) -> JSONResponse:
        _log.warning("%s %s: %r", request.method, request.url.path, error)
        refusal = InvalidInput(
            "the request holds a number, a text or a nesting that nothing here can keep",
            "numbers have 63 bits at the most, and texts are Unicode",
        )
        return JSONResponse(refusal.to_json(), refusal.http_status)

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        fault = Internal("the server failed at this request", "see `yard server logs`")
        return JSONResponse(fault.to_json(), fault.http_status)


def _id_of(home: Path) -> str:
    """What tells this home's server from any other, over restarts."""
    file = home / "server.id"
    if not file.exists():
        with whole(file, mode=0o600) as writing:
            writing.write(uuid.uuid4().hex.encode())
    return file.read_text().strip()
