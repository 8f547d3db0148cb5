"""A workspace of the real server for one test, and jobs whose workers the test plays.

Owns: bringing a job into a state by what a worker would send.
Leaves: the server to real_server.py, the events of a worker to tests/jobs/support.py.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from cli.real_server import RealServer
from eventually import eventually
from jobs.support import Worker, attempt_of
from torchyard import Client
from torchyard.base.clock import FakeClock
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.history.history_records import Param, metric
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import Services

_numbers = itertools.count(1)


def count_as_built(services: Services, definition: Any) -> None:
    """Let jobs with this environment begin at once; nothing can run in it."""
    spec = services.environments.resolver.resolve(definition)
    python = services.environments.folders.paths(spec.hash).folder / "bin/python"
    python.parent.mkdir(parents=True, exist_ok=True)
    python.touch()


class PlayedJob:
    """A job that has been launched; it goes on as the test says.

    What it reports and prints comes a millisecond after what came before: a stream has things of
    one moment in another order.
    """

    def __init__(self, server: ServedWorkspace, job: Job) -> None:
        self._server, self._services = server, server.services
        self._job = job
        self._log_sizes: Counter[str] = Counter()
        self.worker = Worker(server.services, attempt_of(server.services, job))

    def run(self) -> PlayedJob:
        self.worker.tell("ranks_started", ranks=[])
        return self

    def notice(self, message: str) -> None:
        self._server.advance(0.001)
        self.worker.tell("notice", message=message)

    def log(self, content: bytes, name: str = "std_log.txt") -> None:
        job, number, path = self._job, self.worker.attempt.number, f"user_logs/{name}"
        size_bytes = self._log_sizes[name]
        self._server.advance(0.001)
        self._log_sizes[name] = self._services.logs.append(
            job.workspace, job.name, number, path, size_bytes, content
        )
        self._services.signals.notify(actions.job_key(job))

    def write(self, path: str, content: bytes) -> None:
        """An artifact, such as `outputs/model.pt`."""
        with artifacts.writing(self._services.datastores, self._job, path) as writing:
            writing.write(content)

    def write_output(self, output: str, path: str, content: bytes) -> None:
        """A file of a named output, which the job declares."""
        with artifacts.writing_output(self._services, self._job, output, path) as writing:
            writing.write(content)

    def record(self, params: dict[str, str] | None = None, **metrics: float) -> None:
        points = [metric(key, value, 1000) for key, value in metrics.items()]
        constants = [Param(key, value) for key, value in (params or {}).items()]
        self._services.history.append(self._job.id, [*points, *constants])

    def complete(self) -> None:
        self._server.advance(0.001)
        self.worker.whole_life()
        self._server.server.executor.finish(self.worker.attempt.id)

    def fail(self, exit_code: int, code: str = "rank_failed") -> None:
        self._server.advance(0.001)
        self.worker.fails(exit_code, code)
        self._server.server.executor.finish(self.worker.attempt.id)


class ServedWorkspace:
    """A workspace that nobody else uses."""

    def __init__(self, server: RealServer) -> None:
        self.server = server
        self.name = f"workspace-{next(_numbers)}"
        self.url, self.token, self.requests = server.url, server.token, server.requests
        with server.client() as client:
            client.workspaces.create({"name": self.name})

    @property
    def services(self) -> Services:
        return self.server.services

    def advance(self, seconds: float) -> None:
        """Let time pass for the server."""
        assert isinstance(self.services.clock, FakeClock)
        self.services.clock.advance(seconds)

    def client(self) -> Client:
        return self.server.client(self.name)

    def job(self, name: str) -> Job:
        return actions.get(self.services, self.name, name)

    def document(self, name: str) -> dict[str, Any]:
        """The job file as it was submitted, with what the server pinned."""
        return actions.document(self.services, self.name, name)

    def start(self, name: str, **document: Any) -> PlayedJob:
        """Submit a job; returns once it has been launched."""
        job = {"name": name, "command": "python train.py", "environment": "python", **document}
        with self.client() as client:
            client.jobs.create(job)
        return self.launched(name)

    def launched(self, name: str, number: int = 1) -> PlayedJob:
        """An attempt of a job that was submitted, once it has been launched."""

        def has_begun() -> bool:
            job = self.job(name)
            return job.attempt == number and attempt_of(self.services, job).handle is not None

        eventually(has_begun, f"attempt {number} of job {name} to be launched", every_s=0.005)
        return PlayedJob(self, self.job(name))

    def completed(self, name: str, **document: Any) -> PlayedJob:
        """Submit a job and let it complete."""
        job = self.start(name, **document)
        job.complete()
        return job
