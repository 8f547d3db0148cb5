"""Outputs of several jobs at one place: who finds, shows and replaces which file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.support import WORKSPACE, Worker, again, attempt_of, make_services, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.base.files import Readable, reading
from torchyard.data import datastores
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts, outputs
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.shared.plan import LaunchPlan

PLACE = "azureml://datastores/nas/paths/runs/net-a"


class Yard:
    def __init__(self, services: Services) -> None:
        self.services, self.clock = services, services.clock
        self.executor = FakeExecutor()
        self.scheduler = Scheduler(services, self.executor, "http://127.0.0.1:1")

    def start(self, mode: str, **output: Any) -> Job:
        """A job whose output `out` lies at the shared place, and which runs."""
        out = {"path": PLACE, "mode": mode, **output}
        job = submit(self.services, outputs={"out": out})
        while again(self.services, job).status is not Status.STARTING:
            self.scheduler.run_round()
        worker = Worker(self.services, attempt_of(self.services, job))
        worker.tell("node_started", hostname="h", pid=1, addresses=[])
        worker.tell("ranks_started", ranks=[])
        return again(self.services, job)

    def plan(self) -> LaunchPlan:
        plan: LaunchPlan = self.executor.launches[-1]
        return plan

    def write(self, job: Job, path: str, content: str) -> None:
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(1)
        with artifacts.writing_output(self.services, job, "out", path) as writing:
            writing.write(content.encode())
        self.clock.advance(1)

    def at_start(self, job: Job) -> list[str]:
        return sorted(path for _, path, _ in outputs.list_at_start(self.services, job))

    def shown(self, job: Job) -> dict[str, str]:
        return {
            file.path: _text(artifacts.output_file(self.services, job, "out", file.path))
            for _, file in artifacts.list_outputs(self.services, job)
        }

    def notices(self, job: Job) -> list[str]:
        return notices_of(actions.events(self.services.db, job))


def _text(readable: Readable) -> str:
    with reading(readable) as file:
        return file.read().decode()


@pytest.fixture
def yard(tmp_path: Path, db: Database, clock: FakeClock) -> Yard:
    services = make_services(tmp_path / "home", db, clock)
    (tmp_path / "nas").mkdir()
    document = {"name": "nas", "type": "local", "path": str(tmp_path / "nas")}
    datastores.put(db, clock, services.datastores, WORKSPACE, document, "me")
    return Yard(services)


def test_a_mounted_output_shows_what_is_there(yard: Yard) -> None:
    first = yard.start("rw_mount")
    assert yard.at_start(first) == [] and yard.plan().outputs["out"].is_shared
    yard.write(first, "step 1.pt", "one")
    yard.write(first, "deep/ä.pt", "two")
    second = yard.start("rw_mount")
    assert yard.at_start(second) == ["deep/ä.pt", "step 1.pt"]
    (notice,) = [text for text in yard.notices(second) if PLACE in text]
    assert "holds files already: the job finds what is there" in notice


def test_an_uploaded_output_starts_without_what_others_wrote(yard: Yard) -> None:
    yard.write(yard.start("rw_mount"), "a.pt", "of the first")
    second = yard.start("upload")
    assert yard.at_start(second) == [] and not yard.plan().outputs["out"].is_shared
    assert any("the job starts without what is there" in text for text in yard.notices(second))
    yard.write(second, "b.pt", "of the second")
    assert yard.at_start(second) == ["b.pt"]  # as its next attempt finds


def test_each_job_shows_its_own_file_or_says_who_replaced_it(yard: Yard) -> None:
    first = yard.start("upload")
    yard.write(first, "model.pt", "first")
    yard.write(first, "only.txt", "first")
    second = yard.start("upload")
    assert yard.shown(first) == {"model.pt": "first", "only.txt": "first"}
    yard.write(second, "model.pt", "second")
    yard.write(second, "model.pt", "second again")
    assert yard.shown(first) == {"only.txt": "first"}
    with pytest.raises(NotFound, match=f"was replaced by job `{second.name}`"):
        artifacts.output_file(yard.services, first, "out", "model.pt")
    (notice,) = [text for text in yard.notices(first) if second.name in text]
    assert "has replaced files of this job" in notice and PLACE in notice
    assert yard.shown(second)["model.pt"] == "second again"


def test_the_older_of_two_jobs_may_be_the_one_that_replaces(yard: Yard) -> None:
    first, second = yard.start("rw_mount"), yard.start("rw_mount")
    yard.write(second, "model.pt", "second")
    assert yard.shown(first) == {}
    yard.write(first, "model.pt", "first")
    assert yard.shown(first) == {"model.pt": "first"} and yard.shown(second) == {}
    assert any(f"job `{first.name}` has replaced" in text for text in yard.notices(second))


def test_one_file_at_a_shared_place(yard: Yard) -> None:
    first = yard.start("rw_mount", type="uri_file")
    yard.write(first, "net-a", "first")
    second = yard.start("rw_mount", type="uri_file")
    assert yard.at_start(second) == ["net-a"]
    yard.write(second, "net-a", "second")
    assert yard.shown(first) == {} and yard.shown(second) == {"net-a": "second"}


def test_a_place_of_each_jobs_own_is_not_shared(yard: Yard) -> None:
    path = PLACE + "/${{name}}"
    first = yard.start("rw_mount", path=path)
    assert not yard.plan().outputs["out"].is_shared
    yard.write(first, "a.pt", "1")
    assert yard.shown(first) == {"a.pt": "1"} and yard.shown(yard.start("upload", path=path)) == {}


def test_more_than_a_node_copies_is_told(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    first = yard.start("rw_mount")
    for number in range(3):
        yard.write(first, f"{number}.pt", "x")
    second = yard.start("rw_mount")
    yard.write(second, "own.pt", "x")
    monkeypatch.setattr(outputs, "_MOST_FILES", 2)
    assert yard.at_start(second) == ["own.pt"]
    yard.at_start(second)
    assert [text for text in yard.notices(second) if "starts without the files of" in text] == [
        f"output `out` starts without the files of `{PLACE}/`: they are more than 2 or 10 GiB; "
        "declare those that the job reads as an input"
    ]
