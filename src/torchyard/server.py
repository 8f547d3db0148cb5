"""`yard-server`: wires the rooms to HTTP and to the executor, and decides nothing.

Owns: the app, the order in which things start and stop, what answers without a token.
Leaves: everything else to the rooms.
Always: the port stays the same over restarts; a server that is killed loses nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import getpass
import json
import logging
import os
import signal
import socket
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, IntegrityError
from starlette.exceptions import HTTPException

import torchyard
from torchyard import listening
from torchyard.base import disk, home_database, settings
from torchyard.base.blobs import Blobs
from torchyard.base.clock import Clock, SystemClock
from torchyard.base.errors import Conflict, Internal, InvalidInput, NotFound, TorchyardError
from torchyard.base.files import whole
from torchyard.compute import actions as computes
from torchyard.compute import routes as compute_routes
from torchyard.data import asset_routes
from torchyard.data import routes as data_routes
from torchyard.data.datastores import Datastores
from torchyard.doors import LOOPBACK_NAMES, Doors
from torchyard.environments import routes as environment_routes
from torchyard.environments.actions import Environments
from torchyard.executors.executor import Executor
from torchyard.executors.local import LocalExecutor
from torchyard.jobs import (
    bundles,
    data_sources,
    deletion_routes,
    experiment_routes,
    history_routes,
    logged_metrics,
    model_sources,
    reclaiming_routes,
    runs,
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
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import routes as workspace_routes
from torchyard.workspaces.access import Access, Person, person
from torchyard.workspaces.types import Identity, TokenKind

_log = logging.getLogger(__name__)
_DEFAULT_PORT = 8765
_DEFAULT_TLS_PORT = 8766


@dataclass(frozen=True)
class Parts:
    """Everything that lives as long as the server."""

    room: Room
    access: Access
    scheduler: Scheduler


def build(
    home: Path,
    url: str,
    environ: Mapping[str, str],
    clock: Clock | None = None,
    executor: Executor | None = None,
    database: str = "",
) -> Parts:
    """Open the home folder and put the rooms together; nothing runs yet.

    Args:
        environ: what builds and jobs inherit.
        database: its URL; empty for the one that the home had last.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    clock = clock or SystemClock()
    db = home_database.open_for(home, home_database.chosen(home, database))
    default = workspaces.ensure_default(db, clock)
    computes.ensure_local(db, clock, default.name)
    room = Room(
        home=home,
        db=db,
        clock=clock,
        blobs=Blobs(home / "blobs"),
        datastores=Datastores(home / "datastores"),
        environments=Environments(home, db, clock, environ),
        history=History(db, store.merge_tags, logged_metrics.add),
        logs=Logs(home / "logs"),
        signals=Signals(),
        bell=threading.Event(),
        server_id=_id_of(home),
    )
    scheduler = Scheduler(room, executor or LocalExecutor(home, environ), url)
    return Parts(room, Access(db, clock), scheduler)


def create_app(parts: Parts, hosts: Sequence[str] = ()) -> FastAPI:
    """The HTTP face of the rooms.

    Args:
        hosts: the names that plain requests may call the server by; any when empty.
    """
    room = parts.room

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        room.signals.attach(asyncio.get_running_loop())
        parts.scheduler.start()
        yield
        parts.scheduler.stop()
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
        )
        app.include_router(tracking, prefix=prefix)
    app.include_router(
        workspace_routes.router(
            room.db,
            room.clock,
            lambda name: workspace_life.furnish(room, name),
            lambda name: workspace_life.delete_empty(room, name),
        )
    )
    app.include_router(compute_routes.router(room.db, room.clock))
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
            room.environments, lambda workspace: runs.environment_hashes(room, workspace)
        ),
        prefix="/v1/workspaces/{workspace}",
        dependencies=[Depends(person)],
    )
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


def ensure_token(parts: Parts, token_file: Path) -> None:
    """The owner's token in a file that only the owner reads; a lost or foreign one is replaced."""
    room = parts.room
    if token_file.exists() and workspaces.is_known(
        room.db, room.clock, token_file.read_text().strip()
    ):
        return
    token = workspaces.new_token(TokenKind.PERSON)
    with room.db.write() as connection:
        identity = Identity(getpass.getuser(), TokenKind.PERSON)
        workspaces.keep_token(connection, token, identity, room.clock.now())
    with whole(token_file, mode=0o600) as writing:
        writing.write(token.encode() + b"\n")


def hold_home(home: Path) -> IO[bytes]:
    """Lock the home folder for one server; let go by closing the file, or by dying.

    Raises:
        Conflict: another server serves it.
    """
    held = open(home / "served.lock", "ab")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise Conflict(
            f"another server serves `{home}`", "see it with `yard server status`"
        ) from None
    return held


def listen(
    home: Path, host: str, port: int | None, known_as: str = "port", default: int = _DEFAULT_PORT
) -> socket.socket:
    """A listening socket on the port asked for, else the one used last, else a free one.

    Args:
        known_as: the file of the home folder that remembers the port.

    Raises:
        Conflict: the port asked for is taken.
    """
    remembered = home / known_as
    wanted = [port] if port is not None else [_remembered(remembered) or default, 0]
    for number in wanted:
        # asyncio turns Nagle's delay off only for sockets that name their protocol.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
        except OSError:
            listener.close()
            continue
        listener.listen(1024)
        if _remembered(remembered) != listener.getsockname()[1]:
            with whole(remembered) as writing:
                writing.write(str(listener.getsockname()[1]).encode())
        return listener
    raise Conflict(f"port {port} of `{host}` is taken", "choose another with `--port`")


def _remembered(file: Path) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


def run(
    home: Path,
    host: str,
    port: int | None,
    ready_fd: int | None,
    tls: listening.Tls | None = None,
    database: str = "",
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        tls: `host` and `port` are the listener's that has it; workers and commands of this machine
            go on using a plain one on loopback.
        database: its URL; empty for the one that the home had last.
    """
    context = listening.context_of(tls) if tls is not None else None
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    configured = settings.Settings(home)
    held = hold_home(home)
    secure = None
    if context is not None:
        secure = (listen(home, host, port, "tls-port", _DEFAULT_TLS_PORT), context)
        host, port = LOOPBACK_NAMES[0], None
    listener = listen(home, host, port)
    url = f"http://{host}:{listener.getsockname()[1]}"
    parts = build(home, url, settings.for_jobs(os.environ), database=database)
    ensure_token(parts, configured.token_file)
    app = create_app(parts, (*LOOPBACK_NAMES, host) if listening.is_loopback(host) else ())
    server = _Server(
        uvicorn.Config(
            app,
            http=listening.PacedProtocol,
            log_level="warning",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=5,
        ),
        secure,
    )
    server.signals = parts.room.signals
    _write_server_file(configured.server_file, url)
    if ready_fd is not None:
        os.write(ready_fd, f"{url}\n".encode())
        os.close(ready_fd)
    _log.warning("torchyard %s serves %s at %s", torchyard.__version__, home, url)
    try:
        server.run(sockets=[listener])
    finally:
        configured.server_file.unlink(missing_ok=True)
        held.close()


class _Server(listening.Server):
    """Lets the streams go as soon as a signal comes, so that the shutdown need not wait."""

    signals: Signals

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.signals.close()
        super().handle_exit(sig, frame)


def _write_server_file(file: Path, url: str) -> None:
    start_time = 0
    if sys.platform == "linux":
        stat = Path("/proc/self/stat").read_text()
        start_time = int(stat.rpartition(")")[2].split()[19])
    body = {
        "url": url,
        "pid": os.getpid(),
        "start_time": start_time,
        "version": torchyard.__version__,
    }
    with whole(file, mode=0o600) as writing:
        writing.write(json.dumps(body).encode())


def main() -> None:
    parser = argparse.ArgumentParser("yard-server", description="Serve a torchyard home folder.")
    parser.add_argument("--home", type=Path, default=None, help="default: TORCHYARD_HOME")
    parser.add_argument("--host", default="127.0.0.1", help="beyond loopback it needs TLS")
    parser.add_argument("--tls-cert", type=Path, default=None, help="PEM file, with its chain")
    parser.add_argument("--tls-key", type=Path, default=None, help="PEM file, without a password")
    parser.add_argument(
        "--insecure", action="store_true", help="listen beyond loopback without TLS"
    )
    parser.add_argument("--port", type=int, default=None, help="default: the one used last")
    parser.add_argument(
        "--database",
        default="",
        metavar="URL",
        help="postgresql://user@host/name; default: TORCHYARD_DATABASE, then the one used last",
    )
    parser.add_argument("--ready-fd", type=int, default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # The terminal's Ctrl-C is for the command that started an embedded server.
    if asked.ready_fd is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        tls = listening.tls_of(asked.host, asked.tls_cert, asked.tls_key, asked.insecure)
        configured = settings.read()
        home = asked.home.absolute() if asked.home else configured.home
        if asked.database:
            home_database.refuse_password(asked.database)
        database = asked.database or configured.database
        run(home, asked.host, asked.port, asked.ready_fd, tls, database)
    except TorchyardError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
