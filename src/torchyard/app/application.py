"""The app: every room behind HTTP, and what runs beside it.

Owns: putting the rooms together, which paths are whose, what answers without a token.
Leaves: everything else to the rooms, errors to error_responses.py, the process, its port and its
end to server.py.
Always: a room's routes are made when the first request comes for them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

import torchyard
from torchyard.app.error_responses import answer_errors
from torchyard.app.request_guard import Doors
from torchyard.azureml import apis as azure_room
from torchyard.azureml import entry_routes, page_routes
from torchyard.azureml.common.paths import AzurePaths
from torchyard.base import home_database
from torchyard.base import machine as machines
from torchyard.base.blobs import Blobs
from torchyard.base.clock import Clock, SystemClock
from torchyard.base.files import whole
from torchyard.base.lazy_routes import LazyRoutes, add_routes, every_route
from torchyard.components import routes as component_routes
from torchyard.compute import actions as computes
from torchyard.compute import routes as compute_routes
from torchyard.data import asset_routes
from torchyard.data import routes as data_routes
from torchyard.data.datastores import Datastores
from torchyard.environments import routes as environment_routes
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.environments.services import Environments
from torchyard.executors.executor import Executor
from torchyard.executors.local import LocalExecutor
from torchyard.executors.machine import Machine
from torchyard.jobs.actions import job_key
from torchyard.jobs.admission import machine, quota_checks
from torchyard.jobs.files import data_sources, model_sources, owners
from torchyard.jobs.history import logged_metrics, logged_properties
from torchyard.jobs.history.history import History
from torchyard.jobs.http import (
    bundle_routes,
    cluster_routes,
    deletion_routes,
    experiment_routes,
    history_routes,
    reclaiming_routes,
    worker_routes,
)
from torchyard.jobs.http import routes as job_routes
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.jobs.records import store
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.signals import Signals
from torchyard.jobs.requests import runs, workspace_lifecycle
from torchyard.jobs.services import Services
from torchyard.jobs.spec import secrets
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

_W = "/v1/workspaces/{workspace}"


@dataclass(frozen=True)
class Parts:
    """Everything that lives as long as the server."""

    services: Services
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
    services = Services(
        home=home,
        db=db,
        clock=clock,
        blobs=Blobs(home / "blobs"),
        datastores=Datastores(home / "datastores"),
        environments=Environments(home, db, clock, environ, is_shared=shared or for_others),
        history=History(db, store.merge_tags, logged_metrics.add, logged_properties.add),
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
    scheduler = Scheduler(services, local, url)
    signer = Signer(home, services.server_id)
    access = Access(
        db, clock, lambda workspace, job: owners.of_name(services, workspace, job), signer
    )
    return Parts(services, access, scheduler, signer, sharing)


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
    services = parts.services
    builds = RequestedBuilds(services.environments, parts.scheduler.preparer.secrets)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services.signals.attach(asyncio.get_running_loop())
        parts.scheduler.start()
        yield
        parts.scheduler.stop()
        builds.close()
        audit.close()
        if parts.sharing is not None:
            parts.sharing.stop()
        services.db.close()

    app = _App(
        title="torchyard",
        version=torchyard.__version__,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.access = parts.access
    app.add_middleware(Doors, hosts=hosts, server_id=services.server_id)
    audit = Audit(services.home, services.clock)
    app.add_middleware(Auditing, lines=audit)
    app.add_middleware(AzurePaths, spellings=Spellings(services.db))

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

    app.router.routes.extend(_groups(parts, builds, audit, open_tls, storage_domain))
    answer_errors(app)
    return app


class _App(FastAPI):
    """Its OpenAPI tells of the groups that are meant for everyone."""

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            told = (
                one
                for one in self.router.routes
                if not isinstance(one, LazyRoutes) or one.described
            )
            self.openapi_schema = get_openapi(
                title=self.title,
                version=self.version,
                openapi_version=self.openapi_version,
                routes=[route for _, route in every_route(tuple(told))],
            )
        return self.openapi_schema


def _groups(
    parts: Parts,
    builds: RequestedBuilds,
    audit: Audit,
    open_tls: entry_routes.OpenTls | None,
    storage_domain: str,
) -> list[LazyRoutes]:
    """Every room's routes, those first that are asked for most often."""
    services, access = parts.services, parts.access
    db, clock = services.db, services.clock
    find_model = partial(model_sources.find, services)

    @cache
    def tracking() -> APIRouter:
        return mlflow_routes.router(
            JobRuns(services),
            Registry(db, clock, services.datastores, find_model),
            services.history,
            access.person,
            lambda job: services.signals.notify(job_key(job)),
            partial(secrets.masker_of_script, db),
        )

    def of_jobs() -> APIRouter:
        others = deletion_routes.router(services), history_routes.router(services)
        return add_routes(job_routes.router(services), *others)

    def of_computes() -> APIRouter:
        sizes_too = compute_routes.router(db, clock, services.home, services.devices)
        return add_routes(sizes_too, cluster_routes.router(services))

    def of_environments() -> APIRouter:
        in_use = partial(runs.environment_hashes, services)
        return environment_routes.router(services.environments, builds, clock, in_use)

    def of_assets() -> APIRouter:
        return asset_routes.router(
            db,
            clock,
            services.datastores,
            services.blobs,
            services.fetcher,
            lambda workspace, type, path: data_sources.pin(services, workspace, type, path).path,
        )

    def of_workspaces() -> APIRouter:
        furnish = partial(workspace_lifecycle.furnish, services)
        return workspace_routes.router(
            db, clock, furnish, partial(workspace_lifecycle.delete_empty, services)
        )

    def of_people() -> APIRouter:
        return people_routes.router(db, clock, audit, partial(owners.cancel_all, services))

    def entry() -> APIRouter:
        return entry_routes.router(
            clock, parts.signer, access.person, access.holder, open_tls, storage_domain
        )

    def group(make: Callable[[], APIRouter], *paths: str) -> LazyRoutes:
        return LazyRoutes(paths, make, described=True)

    return [
        LazyRoutes([""], tracking, within="/mlflow/{workspace}"),
        LazyRoutes(mlflow_routes.PATHS, tracking),
        group(partial(worker_routes.router, services), "/v1/attempts"),
        group(of_jobs, f"{_W}/jobs", f"{_W}/metrics"),
        group(partial(data_routes.router, services.blobs), f"{_W}/blobs", f"{_W}/snapshots"),
        group(of_environments, f"{_W}/environments"),
        group(of_computes, f"{_W}/computes", f"{_W}/compute-sizes"),
        group(of_assets, f"{_W}/data", f"{_W}/datastores", f"{_W}/url-maps"),
        group(
            partial(model_routes.router, db, clock, services.datastores, find_model), f"{_W}/models"
        ),
        group(partial(component_routes.router, db, clock, services.blobs), f"{_W}/components"),
        group(partial(experiment_routes.router, services), f"{_W}/experiments"),
        group(partial(bundle_routes.router, services), f"{_W}/bundle"),
        group(
            partial(quota_routes.router, db, clock, partial(quota_checks.use_of, services)),
            f"{_W}/quotas",
            f"{_W}/quota-requests",
        ),
        group(of_people, "/v1/whoami", "/v1/users", "/v1/audit", f"{_W}/people", f"{_W}/audit"),
        group(of_workspaces, "/v1/workspaces"),
        group(partial(reclaiming_routes.router, services), "/v1/gc"),
        LazyRoutes(entry_routes.PATHS, entry),
        LazyRoutes(["/runs"], page_routes.router),
        LazyRoutes(
            ["/azureml", "/azureml-above", "/azureml-blob"],
            lambda: azure_room.router(services, access, find_model, builds, storage_domain),
        ),
    ]


def _id_of(home: Path) -> str:
    """What tells this home's server from any other, over restarts."""
    file = home / "server.id"
    if not file.exists():
        with whole(file, mode=0o600) as writing:
            writing.write(uuid.uuid4().hex.encode())
    return file.read_text().strip()
