"""The app: every package behind HTTP, and what runs beside it.

Owns: putting the packages together, what their routes receive.
Leaves: the groups of routes to route_groups.py, errors to error_responses.py, the process, its
port and its end to server.py.
Always: a group's routes are imported when the first request comes for them.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import State

import torchyard
from torchyard.app import route_groups, server_routes
from torchyard.app.error_responses import answer_errors
from torchyard.app.forwarded import ForwardedRequests
from torchyard.app.monitoring import routes as monitoring_routes
from torchyard.app.monitoring.probes import Probes
from torchyard.app.monitoring.requests import Measuring, Requests
from torchyard.app.monitoring.server_metrics import ServerMetrics
from torchyard.app.request_guard import RequestGuard
from torchyard.azureml.common.context import OpenTls
from torchyard.azureml.common.paths import AzurePaths
from torchyard.base import machine as machines
from torchyard.base.addresses import Network
from torchyard.base.blobs import Blobs
from torchyard.base.bodies.body_spool import BodySpool
from torchyard.base.clock import Clock, SystemClock
from torchyard.base.db import Database
from torchyard.base.files import whole
from torchyard.base.home import home_database
from torchyard.base.home.node_folder import NodeFolder
from torchyard.base.lazy_routes import LazyRoutes, ShortWay, add_routes, every_route
from torchyard.compute import actions as computes
from torchyard.data.datastores import Datastores
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.environments.services import Environments
from torchyard.executors.executor import Executor
from torchyard.executors.local import LocalExecutor
from torchyard.executors.machine import Machine
from torchyard.executors.runner_client import RunnerClient
from torchyard.executors.spawner import RunnerSpawner
from torchyard.jobs.admission import machine, quota_checks
from torchyard.jobs.attempts.idle_time import IdleTime
from torchyard.jobs.cleanup import asset_deletion
from torchyard.jobs.files import data_sources, model_sources, owners
from torchyard.jobs.history.history import History
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.signals import Signals
from torchyard.jobs.requests import workspace_lifecycle
from torchyard.jobs.services import Services
from torchyard.servers import sharing as sharing_of
from torchyard.servers.lease import SingleServer
from torchyard.servers.sharing import Sharing
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.access import Access
from torchyard.workspaces.audit import Audit
from torchyard.workspaces.audit_sinks import Sink
from torchyard.workspaces.auditing import Auditing
from torchyard.workspaces.jwts import Signer
from torchyard.workspaces.spellings import Spellings

if TYPE_CHECKING:
    from torchyard.sign_in.routes import SignIn


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
    node: NodeFolder | None = None,
    private: Sequence[Path] = (),
    runner: RunnerClient | None = None,
) -> Parts:
    """Open the home folder and put the packages together; nothing runs yet.

    Args:
        environ: the environment of builds and jobs.
        database: its URL; empty for the one that the home had last.
        shared, for_others: other servers may serve the home, too; other machines reach it.
        node: what jobs reach of this machine, apart from the home where they are other users.
        private: more files that no datastore may show, such as keys.
        runner: starts them as these; None where jobs are the server's own user.

    Raises:
        InvalidInput: the database can't be used, or can't be shared.
        Conflict: it is another home's, or in use by servers that exclude this one.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    clock, node = clock or SystemClock(), node or NodeFolder(home)
    node.prepare()
    db = _open_database(home, database, shared)
    signals, wakeup = Signals(), threading.Event()
    if not shared:
        sharing_of.claim_alone(db, home, node)
    sharing = _share(db, home, node, url, wakeup, signals) if shared else None
    computes.ensure_local(db, clock, workspaces.ensure_default(db, clock).name)
    services = Services(
        home=home,
        node=node,
        db=db,
        clock=clock,
        blobs=Blobs(home / "blobs"),
        datastores=Datastores(home / "datastores", (node.root, *private)),
        environments=Environments(
            home, db, clock, environ, None, shared or for_others, node=node, runner=runner
        ),
        history=History(db),
        logs=Logs(home / "logs", shared, clock),
        signals=signals,
        wakeup=wakeup,
        server_id=_id_of(home),
        machine=machine.read(home),
        devices=Machine(environ),
        runner=runner,
        membership=sharing.lease if sharing else SingleServer(),
    )
    signer = Signer(home, services.server_id)
    access = Access(db, clock, partial(owners.of_name, services), signer)
    scheduler = Scheduler(services, executor or _executor(services, environ, shared), url)
    return Parts(services, access, scheduler, signer, sharing)


def _open_database(home: Path, database: str, shared: bool) -> Database:
    chosen = home_database.chosen(home, database)
    if shared:
        sharing_of.check_shareable(home, chosen)
    return home_database.open_for(home, chosen, shared)


def _executor(services: Services, environ: Mapping[str, str], shared: bool) -> Executor:
    here = machines.here() if shared else ""
    runner = RunnerSpawner(services.home, services.runner) if services.runner else None
    root = services.node.root
    return LocalExecutor(root, environ, devices=services.devices, machine=here, spawner=runner)


def _share(
    db: Database,
    home: Path,
    node: NodeFolder,
    url: str,
    wakeup: threading.Event,
    signals: Signals,
) -> Sharing:
    sharing = sharing_of.share(db, home, url, wakeup.set, signals.heard, signals.missed, node)
    signals.share(sharing.notifier.notify)
    return sharing


def create_app(
    parts: Parts,
    hosts: Sequence[str] = (),
    open_tls: OpenTls | None = None,
    storage_domain: str = "",
    proxies: Sequence[Network] = (),
    audit_sink: Sink | None = None,
    public_url: str = "",
    sign_in: SignIn | None = None,
) -> FastAPI:
    """Create the HTTP application.

    Args:
        hosts: the Host names that requests without TLS may use; any when empty.
        open_tls: see azureml/common/context.py, as `storage_domain`.
        proxies: whose `X-Forwarded-` headers are believed.
        audit_sink: gets copies of the audit's lines.
        public_url: where people on other machines reach the server; empty when they don't.
        sign_in: beside tokens; None for tokens alone.
    """
    services = parts.services
    builds = RequestedBuilds(services.environments, parts.scheduler.preparer.secrets)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.body_spool.clear()
        services.signals.attach(asyncio.get_running_loop())
        parts.scheduler.start()
        yield
        parts.scheduler.stop()
        builds.close()
        audit.close()
        if parts.sharing is not None:
            parts.sharing.stop()
        services.history.close()
        services.db.close()

    app = _App(
        title="torchyard",
        version=torchyard.__version__,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    audit, requests = Audit(services.home, services.clock, audit_sink), Requests()
    app.add_middleware(ShortWay, routes=app.router.routes)
    app.add_middleware(RequestGuard, hosts=hosts, server_id=services.server_id)
    app.add_middleware(Auditing, lines=audit)
    app.add_middleware(AzurePaths, spellings=Spellings(services.db))
    app.add_middleware(ForwardedRequests, proxies=proxies)
    app.add_middleware(Measuring, requests=requests)

    _fill_state(app.state, parts, builds, audit, open_tls, storage_domain)
    app.state.public_url, app.state.sign_in = public_url, sign_in
    _fill_monitoring(app.state, parts, requests, audit)
    add_routes(app.router, server_routes.router, monitoring_routes.router)
    app.router.routes.extend(route_groups.lazy_routes())
    answer_errors(app)
    return app


class _App(FastAPI):
    """The app, whose OpenAPI document covers the described groups only."""

    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            described = [
                route
                for route in self.router.routes
                if not isinstance(route, LazyRoutes) or route.described
            ]
            self.openapi_schema = get_openapi(
                title=self.title,
                version=self.version,
                openapi_version=self.openapi_version,
                routes=[route for _, route in every_route(tuple(described))],
            )
        return self.openapi_schema


def _fill_state(
    state: State,
    parts: Parts,
    builds: RequestedBuilds,
    audit: Audit,
    open_tls: OpenTls | None,
    storage_domain: str,
) -> None:
    """What routes receive by `Depends`; see base/dependencies.py."""
    services = parts.services
    state.access = parts.access
    state.signer = parts.signer
    state.scheduler = parts.scheduler
    state.audit = audit
    state.body_spool = BodySpool(services.home / "spool")
    state.services = services
    state.home = services.home
    state.jobs_as_server_user = services.runner is None
    state.db = services.db
    state.clock = services.clock
    state.blobs = services.blobs
    state.datastores = services.datastores
    state.environments = services.environments
    state.devices = services.devices
    state.fetcher = services.fetcher
    state.idle_time = IdleTime(services)
    state.builds = builds
    state.open_tls = open_tls
    state.storage_domain = storage_domain
    # What lower packages call of higher ones.
    state.find_model = partial(model_sources.find, services)
    state.resolve_data = partial(_resolve_data, services)
    state.delete_assets = partial(asset_deletion.delete, services)
    state.provision_workspace = partial(workspace_lifecycle.provision, services)
    state.delete_workspace = partial(workspace_lifecycle.delete_empty, services)
    state.quota_use = partial(quota_checks.use_of, services)
    state.cancel_jobs_of = partial(owners.cancel_all, services)


def _fill_monitoring(state: State, parts: Parts, requests: Requests, audit: Audit) -> None:
    state.requests = requests
    state.probes = Probes(parts.services, parts.scheduler)
    state.server_metrics = ServerMetrics(parts.services, parts.scheduler, state.probes, audit)


def _resolve_data(services: Services, workspace: str, type: str, path: str) -> str:
    return data_sources.pin(services, workspace, type, path).path


def _id_of(home: Path) -> str:
    """The id that distinguishes this home's servers from any other; it survives restarts."""
    file = home / "server.id"
    if not file.exists():
        with whole(file, mode=0o600) as writing:
            writing.write(uuid.uuid4().hex.encode())
    return file.read_text().strip()
