"""What every engine of other machines must keep; a module of each engine's tests inherits these.

A real server, real workers, and no disk that both see.
"""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.real_server import RealServer
from torchyard import Client
from torchyard.client.job import Job
from torchyard.executors.engines import Opener

COMPUTE = "away"
LINES = 400
_LIMIT_S = 120.0
_NOT_BEGUN = ("NotStarted", "Queued", "Preparing", "Provisioning", "Starting")
_NAMED_WITHIN_S = 15.0

SCRIPT = """
import json, os, sys, time, urllib.request
from pathlib import Path

rank, flags = int(os.environ["RANK"]), sys.argv[1]
uri, run = os.environ["MLFLOW_TRACKING_URI"], os.environ["MLFLOW_RUN_ID"]

def log(step):
    at = int(time.time() * 1000)
    metric = {"key": f"loss-{rank}", "value": 1.0 / (step + 1), "timestamp": at, "step": step}
    body = json.dumps({"run_id": run, "metrics": [metric]}).encode()
    url = uri.rstrip("/") + "/api/2.0/mlflow/runs/log-batch"
    token = os.environ.get("MLFLOW_TRACKING_TOKEN", "")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60).read()

if "fail-once" in flags and os.environ["TORCHYARD_ATTEMPT_NUMBER"] == "1":
    flags = "wait"
for line in range(LINES):
    print(f"rank {rank} line {line} " + "x" * (line % 50), flush=True)
    if line % 100 == 0:
        log(line)
    if "slow" in flags:
        time.sleep(0.02)
while "wait" in flags:
    time.sleep(0.05)
Path("outputs").mkdir(exist_ok=True)
Path("outputs", f"model-{rank}.bin").write_bytes(bytes([rank]) * 100_000)
""".replace("LINES", str(LINES))


def expected_log(rank: int) -> str:
    return "".join(f"rank {rank} line {line} {'x' * (line % 50)}\n" for line in range(LINES))


class EngineSite(ABC):
    """A cluster of an engine, and the means to hurt it.

    Attributes:
        torchyard: the mapping `torchyard:` of the cluster's document.
        most_nodes: how many machines it has.
    """

    torchyard: Mapping[str, Any]
    most_nodes = 3

    @property
    def openers(self) -> Mapping[str, Opener] | None:
        """The engine itself, where it is not one of the installation's."""
        return None

    @abstractmethod
    def lose_machine(self, job: Job, node: int) -> str:
        """Kill the machine of a job's node and all that runs there; return its name."""

    @abstractmethod
    def lost_processes(self) -> list[str]:
        """What still runs on the machines of jobs that are over."""

    @abstractmethod
    def list_remaining(self) -> list[str]:
        """What the engine still has of jobs that are over."""

    def stop_head(self) -> Callable[[], None] | None:
        """Take the engine away; returns how to bring it back. None where that can't be done."""
        return None


class Place:
    """A server that may move between two addresses, with the engine's cluster."""

    def __init__(self, folder: Path, site: EngineSite) -> None:
        self.site = site
        self._home = folder / "home"
        self._home.mkdir(mode=0o700)
        self._ports = _free_ports(2)
        self._code = folder / "code"
        self._code.mkdir()
        (self._code / "train.py").write_text(SCRIPT)
        self._at = 0
        self.server = self._start()
        with self.client() as client:
            client.computes.create(
                {"name": COMPUTE, "max_instances": site.most_nodes, "torchyard": site.torchyard}
            )

    def _start(self) -> RealServer:
        return RealServer(
            self._home,
            address=("127.0.0.1", self._ports[self._at]),
            openers=self.site.openers,
            node_urls=[f"http://127.0.0.1:{port}" for port in self._ports],
        )

    def move(self) -> None:
        """Stop the server, and start it at its other address."""
        self.server.stop()
        self._at = 1 - self._at
        self.server = self._start()

    def client(self) -> Client:
        return self.server.client()

    def submit(self, client: Client, flags: str = "-", nodes: int = 2, **keys: Any) -> Job:
        document = {
            "command": f"python train.py {flags}",
            "code": str(self._code),
            "environment": "python",
            "compute": COMPUTE,
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
            "resources": {"instance_count": nodes},
        }
        return client.jobs.create({**document, **keys})

    def nothing_is_left(self) -> None:
        """After all jobs: no process, no file of the attempt, nothing that the engine holds."""
        wait(lambda: not self.site.lost_processes(), "processes are left")
        wait(lambda: not self.site.list_remaining(), "the engine holds something")
        wait(lambda: not list((self._home / "launches").glob("*.json")), "plans are left")

    def close(self) -> None:
        self.server.stop()


@contextmanager
def placed(folder: Path, site: EngineSite) -> Iterator[Place]:
    """A server with the site's cluster, until the end."""
    engine_site = Place(folder, site)
    try:
        yield engine_site
    finally:
        engine_site.close()


class EngineContract:
    """Inherit, and give a fixture `engine_site`, of the whole module."""

    def test_logs_metrics_and_outputs_are_complete(self, engine_site: Place) -> None:
        with engine_site.client() as client:
            job = engine_site.submit(client).wait(_LIMIT_S)
            assert job.status == "Completed", _why(job)
            assert_complete(job, ranks=4)
        engine_site.nothing_is_left()

    def test_more_nodes_than_there_are_wait_or_are_refused(self, engine_site: Place) -> None:
        with engine_site.client() as client:
            first = engine_site.submit(client, "wait", nodes=engine_site.site.most_nodes)
            wait(lambda: first.refresh().status == "Running", lambda: _why(first.refresh()))
            second = engine_site.submit(client, nodes=1)
            time.sleep(2)
            assert second.refresh().status == "Queued"
            assert "away" in second.refresh().waiting
            first.cancel()
            assert first.wait(_LIMIT_S).status == "Canceled"
            assert second.wait(_LIMIT_S).status == "Completed", _why(second.refresh())
        engine_site.nothing_is_left()

    def test_a_canceled_job_leaves_nothing(self, engine_site: Place) -> None:
        with engine_site.client() as client:
            job = engine_site.submit(client, "wait")
            wait(lambda: job.refresh().status == "Running", lambda: _why(job.refresh()))
            job.cancel()
            assert job.wait(_LIMIT_S).status == "Canceled", _why(job.refresh())
        engine_site.nothing_is_left()

    def test_a_lost_machine_is_named_soon(self, engine_site: Place) -> None:
        with engine_site.client() as client:
            job = engine_site.submit(client, "wait")
            wait(lambda: job.refresh().status == "Running", lambda: _why(job.refresh()))
            name = engine_site.site.lose_machine(job, 1)
            lost_at = time.monotonic()
            ended = job.wait(_LIMIT_S)
            assert ended.status == "Failed"
            assert ended.error is not None
            assert ended.error.code == "node_lost", ended.error
            assert name in ended.error.message and "node 1" in ended.error.message
            assert time.monotonic() - lost_at < _NAMED_WITHIN_S
        engine_site.nothing_is_left()

    def test_a_job_is_tried_again_after_a_lost_machine(self, engine_site: Place) -> None:
        properties = {"torchyard.retry.max_attempts": "2", "torchyard.retry.backoff_s": "0"}
        with engine_site.client() as client:
            job = engine_site.submit(client, "fail-once", properties=properties)
            wait(lambda: job.refresh().status == "Running", lambda: _why(job.refresh()))
            engine_site.site.lose_machine(job, 0)
            ended = job.wait(_LIMIT_S)
            assert ended.status == "Completed", _why(ended)
            assert ended.attempt == 2
            assert_complete(ended, ranks=4)
        engine_site.nothing_is_left()

    def test_a_job_goes_on_while_its_server_moves(self, engine_site: Place) -> None:
        with engine_site.client() as client:
            job = engine_site.submit(client, "slow")
            wait(lambda: job.refresh().status == "Running", lambda: _why(job.refresh()))
            time.sleep(1)
            name = job.name
        engine_site.move()
        with engine_site.client() as client:
            ended = client.jobs.wait(name, _LIMIT_S)
            assert ended.status == "Completed", _why(ended)
            assert ended.attempt == 1
            assert_complete(ended, ranks=4)
        engine_site.nothing_is_left()

    def test_a_job_outlives_its_engine_s_absence(self, engine_site: Place) -> None:
        with engine_site.client() as client:
            job = engine_site.submit(client, "slow")
            wait(lambda: job.refresh().status == "Running", lambda: _why(job.refresh()))
            bring_back = engine_site.site.stop_head()
            if bring_back is None:
                pytest.skip("this engine's jobs end with its head")
            waiting = engine_site.submit(client, nodes=1)
            time.sleep(3)
            assert waiting.refresh().status in _NOT_BEGUN, _why(waiting.refresh())
            bring_back()
            assert job.wait(_LIMIT_S).status == "Completed", _why(job.refresh())
            assert waiting.wait(_LIMIT_S).status == "Completed", _why(waiting.refresh())
            assert_complete(job, ranks=4)
        engine_site.nothing_is_left()


def assert_complete(job: Job, ranks: int) -> None:
    """To the byte: logs and outputs of every rank, and every point of their metrics."""
    for rank in range(ranks):
        assert job.logs(rank) == expected_log(rank)
    points = {(point.key, point.step) for point in job.points()}
    steps = range(0, LINES, 100)
    assert points == {(f"loss-{rank}", step) for rank in range(ranks) for step in steps}
    sizes = {
        file.path.rpartition("/")[2]: file.size_bytes
        for file in job.files()
        if "model-" in file.path
    }
    assert sizes == {f"model-{rank}.bin": 100_000 for rank in range(ranks)}


def wait(true: Callable[[], bool], otherwise: str | Callable[[], str] = "") -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(otherwise if isinstance(otherwise, str) else otherwise())
        time.sleep(0.05)


def _why(job: Job) -> str:
    return f"{job.status} {job.waiting} {job.error}"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for opened in sockets:
        opened.bind(("127.0.0.1", 0))
    ports = [int(opened.getsockname()[1]) for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports
