"""An MLflow server with a real database and without a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI, Request

from torchyard.base.blob_folders import BlobFolders
from torchyard.base.bodies.body_spool import BodySpool
from torchyard.base.clock import SystemClock
from torchyard.base.db import Database
from torchyard.base.errors import NotAuthenticated
from torchyard.base.home.node_folder import NodeFolder
from torchyard.base.lazy_routes import LazyRoutes
from torchyard.data.datastores import Datastores
from torchyard.environments.assembly import Environments
from torchyard.jobs import actions
from torchyard.jobs.history.history import History
from torchyard.jobs.history.history_records import SampledMetric, metric
from torchyard.jobs.records import store
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.types import Job, NewJob, Status
from torchyard.jobs.records.wakeups import Signals
from torchyard.jobs.requests import runs
from torchyard.jobs.services import Services
from torchyard.mlflow.feature import FEATURE
from torchyard.mlflow.routes import router
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, TokenKind

TOKENS = {
    "yard_p_ada": Identity("ada", TokenKind.PERSON),
    "yard_r_job": Identity("ada", TokenKind.RUN, "default", "lucky_job"),
    "yard_r_vision": Identity("bob", TokenKind.RUN, "vision", "other_job"),
}


class TokenAccess:
    """Lets in any holder of one of `TOKENS`, whatever the permission."""

    def known(self, request: Request, permission: Permission) -> None:
        return None

    def enforce(self, request: Request, permission: Permission) -> Identity:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in TOKENS:
            raise NotAuthenticated("the request has no valid token")
        return TOKENS[token]


@dataclass
class Server:
    """Runs requests without a socket."""

    app: FastAPI
    services: Services

    def call(
        self, method: str, path: str, expect: int = 200, token: str = "yard_p_ada", **options: Any
    ) -> Any:
        response = self.request(method, f"/api/2.0/mlflow/{path}", token, **options)
        assert response.status_code == expect, response.text
        return response.json()

    def request(
        self,
        method: str,
        path: str,
        token: str = "yard_p_ada",
        extra_headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> httpx2.Response:
        async def once() -> httpx2.Response:
            transport = httpx2.ASGITransport(self.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://yard") as client:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                headers |= extra_headers or {}
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(once())

    def post(
        self, path: str, /, expect: int = 200, token: str = "yard_p_ada", **fields: Any
    ) -> Any:
        return self.call("POST", path, expect, token, json=fields)

    def get(self, path: str, /, expect: int = 200, token: str = "yard_p_ada", **fields: Any) -> Any:
        return self.call("GET", path, expect, token, params=fields)

    def sample(self, run_id: str, key: str, value: float) -> None:
        """What the worker of the run's node would send."""
        job = actions.get(self.services, "default", run_id)
        self.services.history.append(job.id, [SampledMetric(metric(key, value, 1))])

    def new_run(self, experiment_id: str = "0", **fields: Any) -> str:
        run = self.post("runs/create", experiment_id=experiment_id, **fields)
        run_id: str = run["run"]["info"]["run_id"]
        return run_id


def add_job(
    server: Server,
    workspace: str,
    name: str,
    experiment_id: int,
    status: Status = Status.RUNNING,
) -> Job:
    """Make what a client can't: a run that is a job's own."""
    services = server.services
    now = services.clock.now()
    new = NewJob(
        workspace=workspace,
        name=name,
        type="command",
        experiment_id=runs.experiment(services, workspace, experiment_id).id,
        status=status,
        owner="someone",
        display_name=name,
        document={"command": "python train.py"},
        created_at=now,
        compute="local",
        node_count=1,
        processes_per_node=1,
        started_at=now,
    )
    with services.db.write() as connection:
        return store.add_job(connection, new)


def services_in(folder: Path, db: Database) -> Services:
    clock = SystemClock()
    return Services(
        home=folder,
        node=NodeFolder(folder),
        db=db,
        clock=clock,
        blobs=BlobFolders(folder / "blobs"),
        datastores=Datastores(folder / "datastores"),
        environments=Environments(folder, db, clock, {}),
        history=History(db, clock),
        logs=Logs(folder / "logs"),
        signals=Signals(),
        wakeup=threading.Event(),
    )


def server_in(folder: Path, url: str) -> Iterator[Server]:
    db = Database(url)
    db.upgrade()
    app = FastAPI()
    app.state.access = TokenAccess()
    app.state.services = services_in(folder, db)
    app.state.body_spool = BodySpool(folder / "spool")
    app.router.routes.append(LazyRoutes([""], lambda: router, within="/mlflow/{workspace}"))
    app.router.routes.append(
        LazyRoutes([path for paths in FEATURE.routes for path in paths], lambda: router)
    )
    yield Server(app, app.state.services)
    db.close()
