"""The whole app with one job, its running attempt and a little of everything else."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from torchyard import server
from torchyard.app import application
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor

SHA256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
"""Of `hello`."""


@dataclass
class Api:
    """`names` are those that exist, by the parameter of the path that takes them."""

    app: FastAPI
    parts: application.Parts
    person: str
    worker: str
    names: dict[str, str]
    executor: FakeExecutor


def make(home: Path) -> Api:
    """Nothing runs by itself: the scheduler runs only when it is called."""
    executor = FakeExecutor()
    parts = application.build(home, "http://127.0.0.1:1", os.environ, executor=executor)
    token_file = Settings(home).token_file
    server.ensure_token(parts, token_file)
    face = application.create_app(parts)
    services = parts.services
    services.environments.builds.run(services.environments.resolver.resolve("python"))
    api = Api(face, parts, token_file.read_text().strip(), "", {"workspace": "default"}, executor)
    _provision(api)
    for _ in range(5):
        parts.scheduler.run_round()
    plan = next(plan for plan in executor.launches if plan.job == "running")
    api.worker = plan.report_token
    api.names |= {
        "attempt_id": plan.attempt_id,
        "sha256": SHA256,
        "path": "outputs/a.txt",
        "output": "best",
        "version": "1",
        "snapshot_id": api.names["snapshot_id"],
    }
    return api


def _provision(api: Api) -> None:
    from fastapi.testclient import TestClient

    client = TestClient(api.app)
    client.headers["Authorization"] = f"Bearer {api.person}"
    base = "/v1/workspaces/default"

    def ask(method: str, path: str, **options: Any) -> Any:
        answer = client.request(method, base + path, **options)
        assert answer.status_code < 300, answer.text
        return answer.json()

    ask("PUT", f"/blobs/{SHA256}", content=b"hello")
    files = [{"path": "a.txt", "sha256": SHA256, "size": 5}]
    snapshot = ask("PUT", "/snapshots", json={"files": files})["id"]
    api.names["snapshot_id"] = snapshot
    job = {"command": "true", "environment": "python", "outputs": {"best": None}}
    # A job that never gets a node has no stream that ends; this one is canceled at once.
    ask("POST", "/jobs", json={**job, "name": "ended"})
    ask("POST", "/jobs/ended/cancel")
    ask("POST", "/jobs", json={**job, "name": "running", "code": f"snapshot:{snapshot}"})
    data = {"name": "words", "path": f"snapshot:{snapshot}", "type": "uri_folder"}
    ask("POST", "/data", json=data)
    client.close()
