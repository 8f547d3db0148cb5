"""A pipeline on fake nodes: its keeper's rounds, and steps that end as a test says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from jobs import support
from jobs.support import Worker, attempt_of
from torchyard.base.clock import FakeClock
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions as jobs
from torchyard.jobs.files import artifacts, outputs
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.pipelines import actions
from torchyard.pipelines.records.step_store import TYPE, StepRow
from torchyard.pipelines.running import rounds
from torchyard.pipelines.running.keeper import Keeper
from torchyard.workspaces.types import Identity, TokenKind


def step(command: str = "true", **keys: Any) -> dict[str, Any]:
    return {"command": command, "environment": "python", **keys}


def source(word: str = "make", **keys: Any) -> dict[str, Any]:
    """A step that makes `data`."""
    return step(f"{word} ${{{{outputs.data}}}}", outputs={"data": None}, **keys)


def taking(word: str, *names: str, **keys: Any) -> dict[str, Any]:
    """A step that makes `data` of the `data` of others."""
    inputs = {name: f"${{{{parent.jobs.{name}.outputs.data}}}}" for name in names}
    return source(word, inputs=inputs, **keys)


def identity(user: str) -> Identity:
    return Identity(user, TokenKind.PERSON)


@dataclass
class PipelineLab:
    """One pipeline and who runs it; `kill` forgets all that the server had in memory."""

    services: Services
    scheduler: Scheduler
    clock: FakeClock
    executor: FakeExecutor
    name: str = "p"

    def __post_init__(self) -> None:
        self.services.job_types[TYPE] = actions.JOBS
        self.keeper = Keeper(self.services)

    def create(self, jobs: Mapping[str, Any], owner: Identity = support.ME, **keys: Any) -> Job:
        document = {"type": "pipeline", "name": self.name, "jobs": jobs, **keys}
        return actions.JOBS.create(self.services, support.WORKSPACE, document, owner)[0]

    def kill(self) -> None:
        self.keeper.stop()
        self.keeper = Keeper(self.services)

    def round(self) -> None:
        self.clock.advance(1)
        self.keeper.run_all()
        self.scheduler.run_round()

    @property
    def pipeline(self) -> Job:
        return jobs.get(self.services, support.WORKSPACE, self.name)

    @property
    def log(self) -> str:
        return artifacts.file(self.services, self.pipeline, rounds.LOG).read_text()

    @property
    def steps(self) -> dict[str, StepRow]:
        shown = actions.steps(self.services, self.pipeline)
        return {each.row.name: each.row for each in shown}

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: row.outcome.value for name, row in self.steps.items()}

    def job(self, name: str) -> Job:
        return jobs.get(self.services, support.WORKSPACE, self.steps[name].child_name)

    def running(self) -> list[str]:
        return [
            name
            for name, row in self.steps.items()
            if row.child_name and self.job(name).status in (Status.STARTING, Status.RUNNING)
        ]

    def complete(self, name: str, writes: bool = True) -> None:
        """Let a running step write a file to each of its outputs and complete."""
        job = self.job(name)
        for output, place in outputs.destinations(job).items() if writes else ():
            path = place.inside or "made.txt"
            with outputs.writing(self.services, job, output, path) as opened:
                opened.write(name.encode())
        Worker(self.services, attempt_of(self.services, job)).whole_life()

    def fail(self, name: str) -> None:
        worker = self._worker(name)
        worker.tell("node_started", hostname="h", pid=1, addresses=[])
        worker.fails(1)

    def obey_cancel(self, name: str) -> None:
        """Let a running step end that was asked to stop."""
        attempt = attempt_of(self.services, self.job(name))
        worker = Worker(self.services, attempt)
        worker.tell("node_started", hostname="h", pid=1, addresses=[])
        worker.tell("node_exited", exit_code=-15, error={"code": "canceled", "message": "stopped"})
        self.executor.finish(attempt.id)

    def run(self, limit: int = 100, empty: Collection[str] = ()) -> None:
        """Until the pipeline ends, let every step complete; those in `empty` write nothing."""
        for _ in range(limit):
            self.round()
            if self.pipeline.status.ended:
                return
            for name in self.running():
                self.complete(name, writes=name not in empty)
        raise AssertionError(f"{self.name} is {self.pipeline.status.value}: {self.outcomes}")

    def _worker(self, name: str) -> Worker:
        return Worker(self.services, attempt_of(self.services, self.job(name)))
