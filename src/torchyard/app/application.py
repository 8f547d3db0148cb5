"""The app: every package behind HTTP, and what runs beside it.

Owns: putting the packages together.
Leaves: what routes receive to app_state.py, the groups of routes to route_groups.py, errors to
error_responses.py, the process, its port and its end to server.py.
Always: a group's routes are imported when the first request comes for them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI

import torchyard
from torchyard.app import app_state, openapi_document, route_groups, server_routes
from torchyard.app.error_responses import answer_errors
from torchyard.app.monitoring import routes as monitoring_routes
from torchyard.app.monitoring.requests import Measuring, Requests
from torchyard.app.parts import Parts as Parts
from torchyard.app.request_guard import RequestGuard
from torchyard.app.wrong_tokens import WrongTokens
from torchyard.azureml.common.context import OpenTls
from torchyard.azureml.common.paths import AzurePaths
from torchyard.base import machine as machines
from torchyard.base.blob_folders import BlobFolders
from torchyard.base.clock import Clock, SystemClock
from torchyard.base.db import Database
from torchyard.base.feature import load
from torchyard.base.files import write_atomically
from torchyard.base.home import hold, home_database
from torchyard.base.home.node_folder import NodeFolder
from torchyard.base.home.secrets_keys import NOT_GIVEN, Given
from torchyard.base.lazy_routes import add_routes
from torchyard.compute import actions as computes
from torchyard.compute.machine_counts import MachineCounts
from torchyard.data.datastores import Datastores
from torchyard.endpoints.running.router_process import ScoringAt
from torchyard.environments.assembly import Environments
from torchyard.environments.requested_builds import RequestedBuilds
from torchyard.executors import engines
from torchyard.executors.engines import Engines, Opener
from torchyard.executors.executor import Executor
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.local import LocalExecutor
from torchyard.executors.machine import Machine
from torchyard.executors.ray import head_nodes
from torchyard.executors.runner_client import RunnerClient
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.executors.spawner import RunnerSpawner
from torchyard.features import features
from torchyard.interactive.running_services import ServicesAt
from torchyard.jobs.admission import machine
from torchyard.jobs.cleanup import references
from torchyard.jobs.history.history import History
from torchyard.jobs.messages.sender import Sender
from torchyard.jobs.messages.settings import MessageSettings
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.wakeups import Signals
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.servers import sharing as sharing_of
from torchyard.servers.lease import SingleServer
from torchyard.servers.sharing import Sharing
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces.access import Access
from torchyard.workspaces.audit import Audit
from torchyard.workspaces.audit_sink import Sink
from torchyard.workspaces.auditing import Auditing
from torchyard.workspaces.jwts import Signer
from torchyard.workspaces.spellings import Spellings

if TYPE_CHECKING:
    from torchyard.sign_in.routes import SignIn

_log = logging.getLogger(__name__)
# A new database gets the tables of every feature.
for _module in (name for feature in features() for name in feature.tables):
    import_module(f"torchyard.{_module}")


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
    node_addresses: Callable[[], NodeAddresses] | None = None,
    openers: Mapping[str, Opener] | None = None,
    messages: MessageSettings | None = None,
    wheel_folder: Path | None = None,
    datastore_folders: Sequence[Path] = (),
    secrets_key: Given = NOT_GIVEN,
) -> Parts:
    """Open the home folder and put the packages together; nothing runs yet.

    Args:
        environ, openers: the environment of builds and jobs; further engines, by name.
        database, secrets_key: its URL, empty for the last one; of its secrets, if it is given.
        shared, for_others, node_addresses: other servers serve the home; machines reach it; where.
        node, runner, wheel_folder: what jobs reach; who starts them as other users; for wheels.
        private, datastore_folders: what no datastore may show; what any may, with a runner.

    Raises:
        InvalidInput: the database can't be used, or can't be shared.
        Conflict: it is another home's, or in use by servers that exclude this one.
    """
    clock, node = clock or SystemClock(), _prepared(home, node or NodeFolder(home))
    db, signals, wakeup = _open(home, database, shared, secrets_key), Signals(), threading.Event()
    sharing = _share(db, home, node, url, wakeup, signals, shared)
    devices, for_nodes = Machine(environ), ServerForNodes(_id_of(home), node_addresses or _at(url))
    executor = executor or _executor(home, node, environ, shared, devices, runner)
    services = Services(
        home=home,
        node=node,
        db=db,
        clock=clock,
        blobs=_divided_blobs(home, db),
        datastores=_datastores(home, node, private, runner, datastore_folders),
        environments=_environments(
            home, db, clock, environ, shared or for_others, node, runner, wheel_folder
        ),
        history=History(db, clock),
        logs=Logs(home / "logs", shared, clock),
        signals=signals,
        wakeup=wakeup,
        machine=machine.read(home),
        devices=devices,
        engines=_engines(home, environ, executor, for_nodes, openers or {}, runner),
        for_nodes=for_nodes,
        runner=runner,
        membership=sharing.lease if sharing else SingleServer(),
        messages=messages or MessageSettings(),
    )
    return _parts(services, environ, url, sharing)


def _datastores(
    home: Path,
    node: NodeFolder,
    private: Sequence[Path],
    runner: RunnerClient | None,
    listed: Sequence[Path],
) -> Datastores:
    return Datastores(home / "datastores", (node.root, *private), runner, listed)


def _prepared(home: Path, node: NodeFolder) -> NodeFolder:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    node.prepare()
    return node


def _divided_blobs(home: Path, db: Database) -> BlobFolders:
    blobs = BlobFolders(home / "blobs")

    def named() -> list[tuple[str, str]]:
        with db.read() as connection:
            return references.snapshots_by_workspace(connection)

    blobs.divide(named)
    return blobs


def _parts(
    services: Services, environ: Mapping[str, str], url: str, sharing: Sharing | None
) -> Parts:
    default = workspaces.ensure_default(services.db, services.clock)
    computes.ensure_local(services.db, services.clock, default.name)
    for feature in features():
        services.job_types.update({kind: load(name) for kind, name in feature.job_types.items()})
    signer = Signer(services.home, services.for_nodes.server_id)
    access = Access(services.db, services.clock, signer, hold.is_held(services.home))
    scheduler = Scheduler(services, services.engines, url)
    ray_heads = head_nodes.of_server(services.home, environ, services.runner)
    sender = Sender(services.db, services.clock, services.messages)
    counts = MachineCounts(services.db, services.clock, services.engines)
    return Parts(services, access, scheduler, sender, signer, ray_heads, counts, sharing)


def _environments(
    home: Path,
    db: Database,
    clock: Clock,
    environ: Mapping[str, str],
    for_others: bool,
    node: NodeFolder,
    runner: RunnerClient | None,
    wheel_folder: Path | None,
) -> Environments:
    return Environments(
        home, db, clock, environ, None, for_others,
        node=node, runner=runner, wheel_folder=wheel_folder,
    )  # fmt: skip


def _engines(
    home: Path,
    environ: Mapping[str, str],
    local: Executor,
    for_nodes: ServerForNodes,
    further: Mapping[str, Opener],
    runner: RunnerClient | None,
) -> Engines:
    installed = engines.openers(home, environ, LaunchFiles(home), for_nodes, runner)
    return Engines(local, {**installed, **further}, engines.refused(runner))


def _open(home: Path, database: str, shared: bool, secrets_key: Given) -> Database:
    chosen = home_database.chosen(home, database)
    if shared:
        sharing_of.check_shareable(home, chosen)
    return home_database.open_for(home, chosen, shared, secrets_key)


def _executor(
    home: Path,
    node: NodeFolder,
    environ: Mapping[str, str],
    shared: bool,
    devices: Machine,
    runner: RunnerClient | None,
) -> Executor:
    here = machines.here() if shared else ""
    spawner = RunnerSpawner(home, runner) if runner else None
    return LocalExecutor(node.root, environ, devices=devices, machine=here, spawner=spawner)


def _at(url: str) -> Callable[[], NodeAddresses]:
    return lambda: NodeAddresses((url,))


def _share(
    db: Database,
    home: Path,
    node: NodeFolder,
    url: str,
    wakeup: threading.Event,
    signals: Signals,
    shared: bool,
) -> Sharing | None:
    """What servers that share the home have of each other; None where this one is alone."""
    if not shared:
        sharing_of.claim_alone(db, home, node)
        return None
    sharing = sharing_of.share(db, home, url, wakeup.set, signals.heard, signals.missed, node)
    signals.share(sharing.notifier.notify)
    return sharing


def create_app(
    parts: Parts,
    hosts: Sequence[str] = (),
    open_tls: OpenTls | None = None,
    storage_domain: str = "",
    audit_sink: Sink | None = None,
    public_url: str = "",
    sign_in: SignIn | None = None,
    services_at: ServicesAt | None = None,
    scoring_at: ScoringAt | None = None,
) -> FastAPI:
    """Create the HTTP application.

    Args:
        hosts: the Host names that requests without TLS may use; any when empty.
        open_tls: see azureml/common/context.py, as `storage_domain`.
        audit_sink: gets copies of the audit's lines.
        public_url: where people on other machines reach the server; empty when they don't.
        sign_in: beside tokens; None for tokens alone.
        services_at: where the services of jobs are reached; None for this machine alone.
        scoring_at: where the router of online endpoints listens; None for this machine alone.
    """
    services = parts.services
    builds = RequestedBuilds(services.environments, parts.scheduler.preparer.secrets)
    audit, requests = Audit(services.home, services.clock, audit_sink), Requests()
    app = _App(
        title="torchyard",
        version=torchyard.__version__,
        lifespan=partial(_lifespan, parts, builds, audit),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    _add_middleware(app, parts, hosts, audit, requests)
    app_state.fill(app.state, parts, builds, audit, open_tls, storage_domain, services_at)
    app.state.public_url, app.state.sign_in = public_url, sign_in
    app.state.scoring_at, app.state.backup_settings = scoring_at, None
    app_state.fill_monitoring(app.state, parts, requests, audit)
    add_routes(app.router, server_routes.router, monitoring_routes.router)
    app.router.routes.extend(route_groups.lazy_routes())
    answer_errors(app)
    return app


@asynccontextmanager
async def _lifespan(
    parts: Parts,
    builds: RequestedBuilds,
    audit: Audit,
    app: FastAPI,
) -> AsyncIterator[None]:
    """What runs beside the requests, from the server's start to its end."""
    services = parts.services
    app.state.body_spool.clear()
    services.signals.attach(asyncio.get_running_loop())
    if hold.is_held(services.home):
        _log.warning("%s: %s", hold.TROUBLE, hold.HINT)
        app.state.trouble = f"{hold.TROUBLE}: {hold.HINT}"
        yield
    else:
        _start(parts)
        async with AsyncExitStack() as stack:
            for keeper in (name for feature in features() for name in feature.keepers):
                await stack.enter_async_context(load(keeper)(services, app.state))
            yield
        _stop(parts)
    app.state.job_services.close()
    _close(parts, builds, audit)


def _start(parts: Parts) -> None:
    """What starts jobs, or tells people of them."""
    parts.scheduler.start()
    parts.sender.start()
    parts.heads.start_keeping(lambda: computes.ray_heads(parts.services.db))
    parts.machine_counts.start()
    parts.services.environments.compiler.start()


def _stop(parts: Parts) -> None:
    parts.scheduler.stop()
    parts.sender.stop()


def _close(parts: Parts, builds: RequestedBuilds, audit: Audit) -> None:
    builds.close()
    parts.services.environments.compiler.close()
    audit.close()
    if parts.sharing is not None:
        parts.sharing.stop()
    parts.heads.close()
    parts.machine_counts.stop()
    parts.services.engines.close()
    parts.services.db.close()


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if not self.openapi_schema:
            self.openapi_schema = openapi_document.of(self)
        return self.openapi_schema


def _add_middleware(
    app: FastAPI,
    parts: Parts,
    hosts: Sequence[str],
    audit: Audit,
    requests: Requests,
) -> None:
    """From the innermost to what a request comes to first."""
    services = parts.services
    app.add_middleware(RequestGuard, hosts=hosts, server_id=services.for_nodes.server_id)
    app.add_middleware(Auditing, lines=audit)
    app.add_middleware(AzurePaths, spellings=Spellings(services.db))
    app.add_middleware(WrongTokens, access=parts.access)
    app.add_middleware(Measuring, requests=requests)


def _id_of(home: Path) -> str:
    """The id that distinguishes this home's servers from any other; it survives restarts."""
    file = home / "server.id"
    if not file.exists():
        with write_atomically(file, mode=0o600) as writing:
            writing.write(uuid.uuid4().hex.encode())
    return file.read_text().strip()
