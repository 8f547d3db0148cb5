"""One MLflow server over runs in memory and a real history."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI, Request

from torchyard.base.db import Database
from torchyard.base.errors import NotAuthenticated
from torchyard.jobs import history_store
from torchyard.jobs.history import History
from torchyard.mlflow import routes
from torchyard.mlflow.fake_runs import FakeRuns
from torchyard.workspaces.types import Identity, TokenKind

TOKENS = {
    "yard_p_ada": Identity("ada", TokenKind.PERSON),
    "yard_r_job": Identity("ada", TokenKind.RUN, "default", "lucky_job"),
    "yard_r_vision": Identity("bob", TokenKind.RUN, "vision", "other_job"),
}


def authenticate(request: Request) -> Identity:
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token not in TOKENS:
        raise NotAuthenticated("the request carries no good token")
    return TOKENS[token]


@dataclass
class Server:
    """Answers without a socket."""

    app: FastAPI
    runs: FakeRuns
    history: History

    def call(
        self, method: str, path: str, expect: int = 200, token: str = "yard_p_ada", **what: Any
    ) -> Any:
        answer = self.ask(method, f"/api/2.0/mlflow/{path}", token, **what)
        assert answer.status_code == expect, answer.text
        return answer.json()

    def ask(
        self, method: str, path: str, token: str = "yard_p_ada", **what: Any
    ) -> httpx2.Response:
        async def once() -> httpx2.Response:
            transport = httpx2.ASGITransport(self.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://yard") as client:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                return await client.request(method, path, headers=headers, **what)

        return asyncio.run(once())

    def post(
        self, path: str, /, expect: int = 200, token: str = "yard_p_ada", **fields: Any
    ) -> Any:
        return self.call("POST", path, expect, token, json=fields)

    def get(self, path: str, /, expect: int = 200, token: str = "yard_p_ada", **fields: Any) -> Any:
        return self.call("GET", path, expect, token, params=fields)

    def new_run(self, experiment_id: str = "0", **fields: Any) -> str:
        made = self.post("runs/create", experiment_id=experiment_id, **fields)
        run_id: str = made["run"]["info"]["run_id"]
        return run_id


def server_in(folder: Path) -> Iterator[Server]:
    db = Database(f"sqlite:///{folder / 'history.db'}")
    history_store.metadata.create_all(
        db.engine,
        tables=[
            history_store.metrics,
            history_store.metric_blocks_table,
            history_store.params,
            history_store.history_cursors,
        ],
    )
    runs = FakeRuns(folder / "artifacts")
    history = History(db, lambda connection, job_id, tags: runs.merge_tags(job_id, tags))
    app = FastAPI()
    mlflow = routes.router(runs, history, authenticate)
    app.include_router(mlflow, prefix="/mlflow/{workspace}")
    app.include_router(mlflow)
    yield Server(app, runs, history)
    db.close()
