"""Services for tests of jobs: a real database and files, fake executor and environments."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.base.blob_folders import BlobFolders
from torchyard.base.clock import Clock, FakeClock, to_text
from torchyard.base.db import Database
from torchyard.base.errors import BuildFailed
from torchyard.base.home.node_folder import NodeFolder
from torchyard.compute import actions as computes
from torchyard.data.datastores import Datastores
from torchyard.environments.packages import python_choice
from torchyard.environments.types import EnvironmentSpec
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.jobs import actions
from torchyard.jobs.attempts import node_reports, report_fields
from torchyard.jobs.history.history import History
from torchyard.jobs.records import attempt_store
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.types import Attempt, Job
from torchyard.jobs.records.wakeups import Signals
from torchyard.jobs.requests import submission
from torchyard.jobs.services import Services
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import people
from torchyard.workspaces.types import Identity, TokenKind

ME = Identity("me", TokenKind.PERSON)
WORKSPACE = "default"
JOB: dict[str, Any] = {"command": "true", "environment": "python"}


@dataclass
class FakeEnvironments:
    """Every environment is built, but those whose name was put into `unbuilt` or `broken`; their
    builds fail as often as `runner_away` says, because the runner does not answer.

    It is all parts of `Environments` at once.
    """

    folder: Path
    unbuilt: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    built: list[str] = field(default_factory=list)
    runner_away: int = 0
    go_on: threading.Event = field(default_factory=threading.Event)
    # The Python that each build takes in place of the one tried first.
    taken: python_choice.Taken | None = None

    def __post_init__(self) -> None:
        self.resolver = self.builds = self.folders = self.images = self

    def resolve(self, definition: Any, workspace: str = "") -> EnvironmentSpec:
        return EnvironmentSpec("3.11", (str(definition),), "test")

    def refuse_impossible(self, spec: EnvironmentSpec) -> None:
        pass

    def find(self, spec: EnvironmentSpec) -> Path | None:
        return None if set(spec.requirements) & (self.unbuilt | self.broken) else self.folder

    def use(self, spec: EnvironmentSpec) -> Path | None:
        return self.find(spec)

    def taken_python(self, spec: EnvironmentSpec) -> python_choice.Taken | None:
        return self.taken

    def python_of(self, spec: EnvironmentSpec) -> str:
        return self.taken.python if self.taken is not None else spec.python

    def plan(self, folder: Path) -> None:
        return None

    def run(
        self, spec: EnvironmentSpec, canceled: Callable[[], bool], secrets: object = None
    ) -> Path:
        self.built.append(spec.requirements[0])
        assert self.go_on.wait(60)
        if self.runner_away:
            self.runner_away -= 1
            raise RunnerUnreachable("the runner does not answer")
        if spec.requirements[0] in self.broken:
            raise BuildFailed("package `nope` does not exist", "check its name")
        self.unbuilt.discard(spec.requirements[0])
        return self.folder

    def log_path(self, hash: str) -> Path:
        return self.folder / "build.log"


def add_owners(db: Database, clock: Clock, *names: str) -> None:
    """People who may run jobs."""
    with db.write() as connection:
        for name in names:
            people.ensure_owner(connection, name, clock.now())


def make_services(home: Path, db: Database, clock: FakeClock) -> Services:
    workspaces.ensure_default(db, clock)
    computes.ensure_local(db, clock, WORKSPACE)
    add_owners(db, clock, ME.user)
    return Services(
        home=home,
        node=NodeFolder(home),
        db=db,
        clock=clock,
        blobs=BlobFolders(home / "blobs"),
        datastores=Datastores(home / "datastores"),
        environments=FakeEnvironments(home),  # type: ignore[arg-type]
        history=History(db, clock),
        logs=Logs(home / "logs", clock=clock),
        signals=Signals(),
        wakeup=threading.Event(),
    )


def submit(services: Services, **changes: Any) -> Job:
    return submission.create(services, WORKSPACE, {**JOB, **changes}, ME)[0]


def again(services: Services, job: Job) -> Job:
    """The job as it is now."""
    return actions.get(services, job.workspace, job.name)


def attempt_of(services: Services, job: Job) -> Attempt:
    with services.db.read() as connection:
        return attempt_store.attempts_of(connection, job.id)[-1]


@dataclass
class Worker:
    """One node of an attempt, telling its events in order."""

    services: Services
    attempt: Attempt
    node: int = 0
    seq: int = 0

    def tell(self, kind: str, **body: Any) -> None:
        event = {
            "seq": self.seq,
            "at": to_text(self.services.clock.now()),
            "kind": kind,
            "body": body,
        }
        events = report_fields.read_events(self.node, [event])
        node_reports.receive(self.services, self.attempt.id, self.node, events)
        self.seq += 1

    def whole_life(self) -> None:
        self.tell("node_started", hostname="h", pid=1, addresses=[])
        self.tell("ranks_started", ranks=[])
        self.tell("rank_exited", rank=0, local_rank=0, exit_code=0, signal=None)
        self.tell("node_finalizing")
        self.tell("node_exited", exit_code=0, error=None)

    def fails(self, exit_code: int, code: str = "rank_failed") -> None:
        self.tell("ranks_started", ranks=[])
        self.tell("rank_exited", rank=self.node, local_rank=0, exit_code=exit_code, signal=None)
        self.tell("node_finalizing")
        error = {"code": code, "message": f"rank {self.node} exited with code {exit_code}"}
        self.tell("node_exited", exit_code=exit_code, error=error)
