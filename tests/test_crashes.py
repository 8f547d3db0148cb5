"""Killed in the middle of writing: what was acknowledged is there afterwards, once, and whole."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from postgres_server import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WRITERS = 6
_GIVE_UP_S = 90


class Server:
    """A `yard-server` of its own process, on one port over its restarts."""

    def __init__(self, home: Path, database: str) -> None:
        self.home = home
        self._database = database
        self.url = ""
        # Not the one that others take by themselves while this one is down.
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        reading, writing = os.pipe()
        environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
        with open(self.home / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "torchyard.server"),
                    *("--home", str(self.home), "--ready-fd", str(writing)),
                    *("--port", str(self._port)),
                ],
                env={**environ, "TORCHYARD_DATABASE": self._database},
                stdout=log,
                stderr=log,
                pass_fds=(writing,),
            )
        os.close(writing)
        with open(reading, "rb") as ready:
            self.url = ready.readline().decode().strip()
        if not self.url:
            self._process.wait()
            raise AssertionError(self.log())
        self._port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)

    def log(self) -> str:
        return (self.home / "server.log").read_text()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return json.loads(self.read(path, method, body))

    def read(self, path: str, method: str = "GET", body: Any = None) -> bytes:
        token = (self.home / "token").read_text().strip()
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
        return content


@dataclass
class Writer:
    """Asks until it is told yes, and then for the next thing."""

    server: Server
    number: int
    acknowledged: int = 0
    refusals: set[tuple[int, str]] = field(default_factory=set)
    failure: str = ""

    def insist(self, method: str, path: str, body: Any) -> Any:
        deadline = time.monotonic() + _GIVE_UP_S
        while True:
            try:
                return self.server.ask(method, path, body)
            except urllib.error.HTTPError as error:
                text = error.read().decode()
                code = json.loads(text).get("error_code") or json.loads(text)["error"]["code"]
                self.refusals.add((error.code, code))
                # The only reason may be that the database is unreachable.
                if error.code != 503:
                    raise AssertionError(f"{method} {path}: {error.code} {text}") from error
            except (urllib.error.URLError, OSError, http.client.HTTPException):
                pass  # an answer that was cut off acknowledges nothing
            assert time.monotonic() < deadline, f"{method} {path} was never answered"
            time.sleep(0.05)

    def write(self, run_id: str, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                step = self.acknowledged
                self._step(run_id, step)
                self.acknowledged = step + 1
        except BaseException as error:
            self.failure = repr(error)
            raise

    def _step(self, run_id: str, step: int) -> None:
        api = "/api/2.0/mlflow/runs"
        metrics = [
            {"key": key, "value": step + 0.5, "timestamp": step, "step": step}
            for key in ("loss", f"key {step % 7}")
        ]
        params = [{"key": f"p{step}", "value": str(step)}]
        tags = [{"key": f"t{step}", "value": str(step)}]
        batch = {"run_id": run_id, "metrics": metrics, "params": params, "tags": tags}
        self.insist("POST", f"{api}/log-batch", batch)
        if step % 20 == 0:
            # Of a name, so that who asks again gets the same one.
            document = {
                "command": "echo $AZUREML_RUN_ID",
                "environment": "python",
                "name": f"job-{self.number}-{step}",
            }
            self.insist("POST", "/v1/workspaces/default/jobs", document)


@dataclass
class Writing:
    """Some writers at work on a server."""

    server: Server
    writers: list[Writer]
    runs: list[str]
    stop: threading.Event
    threads: list[threading.Thread]

    @property
    def acknowledged(self) -> int:
        return sum(writer.acknowledged for writer in self.writers)

    def more(self, count: int) -> None:
        """Wait for so many acknowledgements more."""
        target_count = self.acknowledged + count
        self.until(lambda: self.acknowledged >= target_count, f"{count} more acknowledgements")

    def until(self, condition: Callable[[], bool], goal: str) -> None:
        deadline = time.monotonic() + _GIVE_UP_S
        while not condition():
            assert [writer.failure for writer in self.writers if writer.failure] == [], (
                self.server.log()
            )
            assert time.monotonic() < deadline, f"{goal}: never\n{self.server.log()}"
            time.sleep(0.01)

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(_GIVE_UP_S)
        assert [writer.failure for writer in self.writers] == [""] * len(self.writers)

    def check(self) -> None:
        """Everything acknowledged is there, once."""
        jobs = self.server.ask("GET", "/v1/workspaces/default/jobs?limit=1000")["value"]
        names = [job["name"] for job in jobs if job["name"].startswith("job-")]
        assert len(names) == len(set(names))
        for writer, run_id in zip(self.writers, self.runs, strict=True):
            steps = list(range(writer.acknowledged))
            assert len(steps) > 0
            run = self.server.ask("GET", f"/api/2.0/mlflow/runs/get?run_id={run_id}")["run"]
            params = {param["key"]: param["value"] for param in run["data"]["params"]}
            assert params == {f"p{step}": str(step) for step in steps}
            tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
            assert {key: value for key, value in tags.items() if key[1:].isdigit()} == {
                f"t{step}": str(step) for step in steps
            }
            assert self.history(run_id, "loss") == [(step, step + 0.5) for step in steps]
            for rest in range(7):
                points = [(step, step + 0.5) for step in steps if step % 7 == rest]
                assert self.history(run_id, f"key%20{rest}") == points
            assert {f"job-{writer.number}-{step}" for step in steps if step % 20 == 0} <= set(names)
        for name in names:
            job = self.ended(name)
            assert (job["status"], job["exit_code"]) == ("Completed", 0), job["error"]
            log = f"/v1/workspaces/default/jobs/{name}/files/user_logs/std_log.txt"
            assert self.server.read(log).decode().split() == [name]

    def ended(self, name: str) -> dict[str, Any]:
        path = f"/v1/workspaces/default/jobs/{name}"
        job: dict[str, Any] = {}

        def over() -> bool:
            job.update(self.server.ask("GET", path))
            return job["status"] in ("Completed", "Failed", "Canceled")

        self.until(over, f"the end of {name}")
        return job

    def history(self, run_id: str, key: str) -> list[tuple[int, float]]:
        path = f"/api/2.0/mlflow/metrics/get-history?run_id={run_id}&metric_key={key}"
        metrics = self.server.ask("GET", path).get("metrics", [])
        return [(int(metric["step"]), metric["value"]) for metric in metrics]


def begin(server: Server) -> Writing:
    stop = threading.Event()
    writers = [Writer(server, number) for number in range(WRITERS)]
    made = [
        server.ask("POST", "/api/2.0/mlflow/runs/create", {"experiment_id": "0", "start_time": 1})
        for _ in writers
    ]
    runs = [answer["run"]["info"]["run_id"] for answer in made]
    threads = [
        threading.Thread(target=writer.write, args=(run_id, stop))
        for writer, run_id in zip(writers, runs, strict=True)
    ]
    for thread in threads:
        thread.start()
    return Writing(server, writers, runs, stop, threads)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def durable(request: pytest.FixtureRequest) -> Iterator[PostgresServer | None]:
    """A PostgreSQL that writes to disk before it says so; None is SQLite."""
    if request.param == "sqlite":
        yield None
        return
    server = PostgresServer(durable=True)
    yield server
    server.close()


@pytest.fixture
def server(durable: PostgresServer | None, tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, durable.new_database() if durable else "")
    made.start()
    yield made
    made.close()


def test_the_server_is_killed(server: Server) -> None:
    writing = begin(server)
    try:
        for _ in range(3):
            writing.more(60)
            server.kill()
            server.start()
        writing.more(60)
    finally:
        writing.end()
    writing.check()
    server.kill()
    server.start()
    writing.check()


@pytest.mark.postgres
@pytest.mark.parametrize("durable", ["postgres"], indirect=True)
def test_postgresql_is_killed(server: Server, durable: PostgresServer) -> None:
    writing = begin(server)
    try:
        for _ in range(2):
            writing.more(60)
            for writer in writing.writers:
                writer.refusals.clear()
            durable.kill()
            writing.until(lambda: all(writer.refusals for writer in writing.writers), "refused")
            health = server.ask("GET", "/health")
            writing.until(lambda: server.ask("GET", "/health")["status"] == "degraded", "degraded")
            assert health["pid"]
            durable.start()
        writing.more(60)
        writing.until(lambda: server.ask("GET", "/health")["status"] == "ok", "well again")
    finally:
        writing.end()
    refusals = set[tuple[int, str]]().union(*(writer.refusals for writer in writing.writers))
    assert refusals <= {(503, "TEMPORARILY_UNAVAILABLE"), (503, "database_unreachable")}
    writing.check()
    assert "Traceback" not in server.log()
    server.kill()
    server.start()
    writing.check()


@pytest.mark.postgres
@pytest.mark.parametrize("durable", ["postgres"], indirect=True)
def test_a_server_that_starts_without_its_database(
    server: Server, durable: PostgresServer, tmp_path: Path
) -> None:
    server.close()
    durable.kill()
    again = Server(tmp_path, "")
    with pytest.raises(AssertionError, match="can't be used"):
        again.start()
    durable.start()
    again.start()
    assert again.ask("GET", "/health")["status"] == "ok"
    again.close()
