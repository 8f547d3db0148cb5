"""A relay between a stub server and scripts that the test plays."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torchyard.shared.connection import AttemptOver, Connection
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.relay.relay import Relay
from torchyard.worker.relay.relay_server import RelayServer
from torchyard.worker.relay.run_state import RunState
from worker.stub_server import StubServer

TOKEN = "yard_r_" + "r" * 43
RUNS = "/api/2.0/mlflow/runs"


class MlflowStub(StubServer):
    """Answers MLflow's routes too, with what was asked; keeps every request to them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answers: dict[str, tuple[int, Any]] = {}

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        if not path.startswith("/mlflow/default/"):
            return super().answer(method, path, query, body)
        inner = path[len("/mlflow/default") :]
        self.asked.append((method, inner, query, body))
        return self.answers.get(inner, (200, {"path": inner, "size": len(body)}))


class Script:
    """What runs in a job: one connection to the relay."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        self.port = urlsplit(url).port
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        self._connection.request(method, path, body, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def post(self, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        status, content = self.send("POST", RUNS + path, json.dumps(fields))
        return status, json.loads(content)

    def metric(self, step: int, key: str = "loss", value: Any = 0.5) -> None:
        fields = {"run_id": "job-1", "key": key, "value": value, "timestamp": 7, "step": step}
        assert self.post("/log-metric", **fields) == (200, {})


def plan_for(server_url: str) -> LaunchPlan:
    return LaunchPlan(
        attempt_id="att",
        attempt=1,
        job="job-1",
        workspace="default",
        experiment="exp",
        command="",
        server_url=server_url,
        report_token="yard_a_" + "a" * 43,
        run_token=TOKEN,
        scratch="",
        variables={"MLFLOW_EXPERIMENT_ID": "12"},
    )


def relay_of(
    server: StubServer,
    folder: Path,
    collected: list[str] | None = None,
    failing_limit_s: float = 600.0,
) -> Relay:
    plan = plan_for(server.url)
    link = Connection.of_plan(plan)
    notices: list[str] = [] if collected is None else collected
    return Relay(link, plan, 0, folder, notices.append, failing_limit_s)


@contextmanager
def relay_to(
    server: StubServer, folder: Path, notices: list[str] | None = None
) -> Iterator[tuple[Relay, Script]]:
    relay = relay_of(server, folder, notices)
    url = relay.start()
    try:
        with Script(url) as script:
            yield relay, script
    finally:
        try:
            relay.finish(0.0)
        except AttemptOver:
            pass


@contextmanager
def server_of(address: str, folder: Path, **variables: str) -> Iterator[Script]:
    """A relay_server that has little patience, and nobody behind it."""
    state = RunState(folder / "runs.ndjson", "job-1")
    plan = replace(plan_for(address), variables=variables)
    relay_server = RelayServer(plan, Nothing(), state, wait_s=0.2)
    threading.Thread(target=relay_server.serve, daemon=True).start()
    try:
        with Script(relay_server.url) as script:
            yield script
    finally:
        relay_server.close()
        state.close()


class Nothing:
    """A keeper that keeps nothing."""

    def keep(self, records: list[dict[str, Any]]) -> None: ...

    def settle(self, timeout_s: float) -> None: ...


def steps(server: StubServer) -> list[int]:
    return [record["step"] for record in server.history.get(0, [])]
