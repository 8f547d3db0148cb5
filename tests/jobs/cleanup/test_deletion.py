"""Deleting jobs: what goes, what must stay, and a server that is killed in the middle of it."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from sqlalchemy import func, select

from jobs import rooms
from jobs.rooms import WORKSPACE, Worker
from torchyard.base import locks
from torchyard.base.clock import FakeClock
from torchyard.base.db import metadata
from torchyard.base.errors import Conflict, NotFound
from torchyard.data import assets
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs import actions
from torchyard.jobs.attempts import endings
from torchyard.jobs.cleanup import deletion, removal, retention
from torchyard.jobs.cleanup.deletion import Choice
from torchyard.jobs.files import artifacts, model_sources, scratch
from torchyard.jobs.history.history_records import metric, param
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.jobs.records import removal_store
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import runs
from torchyard.jobs.services import Room
from torchyard.models import actions as models
from torchyard.workspaces import actions as workspaces

DAY_S = 86400.0


@pytest.fixture
def scheduler(room: Room) -> Scheduler:
    return Scheduler(room, FakeExecutor(), "http://127.0.0.1:1")


def finished(room: Room, scheduler: Scheduler, **document: Any) -> Job:
    """A job that ran to its end and left files, logs, points and parameters."""
    job = rooms.submit(room, **document)
    for _ in range(3):
        scheduler.look()
    attempt = rooms.attempt_of(room, job)
    scratch.folder(room, attempt.id).mkdir(parents=True)
    points = [metric("loss", step / 7, 1000 + step, step) for step in range(700)]
    room.history.append(job.id, [*points, param("lr", "0.1")])
    room.logs.append(WORKSPACE, job.name, 1, "user_logs/std_log.txt", 0, b"hello")
    with artifacts.writing(room, job, "outputs/model.pt") as writing:
        writing.write(b"weights")
    for output in document.get("outputs", {}):
        with artifacts.writing_output(room, job, output, "data.txt") as writing:
            writing.write(b"data")
    Worker(room, attempt).whole_life()
    # As the scheduler does where outputs carry a name.
    endings.finish(room, attempt.id, registers=True)
    return rooms.again(room, job)


def clean(room: Room, job: Job) -> None:
    """As the scheduler does once the worker has left."""
    scratch.clear(room, rooms.attempt_of(room, job))


def left_of(room: Room, job: Job) -> dict[str, int]:
    """Rows and paths that still belong to the job, but for its tombstone."""
    found = {}
    with room.db.read() as connection:
        for table in metadata.sorted_tables:
            if table is removal_store.removed_jobs:
                continue
            for column, value in (("job_id", job.id), ("run", job.name), ("job_name", job.name)):
                if column in table.c:
                    rows = select(func.count()).where(table.c[column] == value)
                    found[table.name] = connection.execute(rows).scalar_one()
    found["paths"] = len([path for path in room.home.rglob("*") if job.name in path.name])
    return {name: count for name, count in found.items() if count}


def delete(room: Room, *names: str) -> list[str]:
    deletion.delete(room, WORKSPACE, Choice(names), "me")
    return removal.work(room)


def test_nothing_of_a_job_stays(room: Room, scheduler: Scheduler) -> None:
    job = finished(room, scheduler, name="gone", outputs={"out": {"type": "uri_folder"}})
    other = finished(room, scheduler, name="other")
    clean(room, job)
    clean(room, other)
    before = left_of(room, other)
    weight = removal.weights(room, [job])["gone"]
    assert (weight.files, weight.size_bytes, weight.points) == (3, 16, 700)

    assert delete(room, "gone") == ["gone"]

    assert left_of(room, job) == {}
    assert left_of(room, other) == before
    with pytest.raises(NotFound):
        actions.get(room, WORKSPACE, "gone")
    again = rooms.submit(room, name="gone")
    assert again.id > job.id and room.history.latest(again.id) == []


def test_whoever_waits_for_a_deletion_waits_for_another_that_is_at_work(
    room: Room, scheduler: Scheduler
) -> None:
    """The scheduler may be taking away what was marked before."""
    job = finished(room, scheduler, name="gone")
    clean(room, job)
    found = deletion.delete(room, WORKSPACE, Choice(["gone"]), "me")
    with ThreadPoolExecutor() as pool:
        with locks.held(room.lock("removal")):
            assert removal.work(room) == []
            waiting = pool.submit(removal.work_now, room, found.jobs)
            assert not wait([waiting], timeout=0.2).done
        assert waiting.result(timeout=20) == []
    with pytest.raises(NotFound):
        actions.get(room, WORKSPACE, "gone")


def test_a_number_is_never_given_twice(room: Room, scheduler: Scheduler) -> None:
    job = finished(room, scheduler, name="last")
    clean(room, job)
    delete(room, "last")
    assert rooms.submit(room, name="next").id == job.id + 1


def test_what_runs_stays_and_so_do_its_ancestors(room: Room, scheduler: Scheduler) -> None:
    parent = finished(room, scheduler, name="parent")
    clean(room, parent)
    rooms.submit(room, name="child", parent_job_name="parent")
    with pytest.raises(Conflict, match="`child`, a child of `parent`, is ") as caught:
        delete(room, "parent")
    assert caught.value.code == "job_not_ended" and "yard job cancel -n child" in caught.value.hint
    assert left_of(room, parent)
    actions.cancel(room, WORKSPACE, "child")
    assert sorted(delete(room, "parent")) == ["child", "parent"]


@pytest.mark.parametrize(("code", "status"), [(0, "Completed"), (1, "Failed")])
def test_runs_that_a_script_left_running_end_with_its_job(
    room: Room, scheduler: Scheduler, code: int, status: str
) -> None:
    job = rooms.submit(room, name="parent")
    scheduler.look()
    attempt = rooms.attempt_of(room, job)
    made = {"experiment_id": job.experiment_id, "owner": "me", "started_at": room.clock.now()}

    def below(parent: str) -> Job:
        return runs.create_run(room, WORKSPACE, display_name="", parent=parent, tags={}, **made)

    child, over, apart = below("parent"), below("parent"), below("")
    deeper = below(child.name)
    runs.change_run(room, WORKSPACE, over.name, status=Status.CANCELED)
    worker = Worker(room, attempt)
    worker.fails(code) if code else worker.whole_life()
    ended = [rooms.again(room, one) for one in (job, child, deeper)]
    assert [one.status.value for one in ended] == [status] * 3
    assert len({one.ended_at for one in ended}) == 1
    assert rooms.again(room, over).status is Status.CANCELED
    assert rooms.again(room, apart).status is Status.RUNNING
    clean(room, job)
    assert set(delete(room, "parent")) == {one.name for one in (*ended, over)}


def test_files_that_something_needs_stay(room: Room, scheduler: Scheduler) -> None:
    job = finished(
        room, scheduler, name="maker", outputs={"out": {"type": "uri_folder", "name": "clean"}}
    )
    clean(room, job)
    assert [one.name for one in assets.list_versions(room.db, WORKSPACE)] == ["clean"]
    with pytest.raises(Conflict, match="data `clean:1` needs its files"):
        delete(room, "maker")
    source = finished(room, scheduler, name="source", outputs={"out": {"type": "uri_folder"}})
    clean(room, source)
    given = {"type": "uri_folder", "path": "azureml://jobs/source/outputs/out"}
    rooms.submit(room, name="reader", inputs={"data": given})
    with pytest.raises(Conflict, match="job `reader` needs its files"):
        delete(room, "source")
    actions.cancel(room, WORKSPACE, "reader")
    assert delete(room, "source") == ["source"]


def test_a_registered_model_outlives_its_job(room: Room, scheduler: Scheduler) -> None:
    job = finished(room, scheduler, name="trainer")
    clean(room, job)
    path = "azureml://jobs/trainer/outputs/artifacts/paths/outputs/model.pt"
    models.register(
        room.db, room.clock, room.datastores,
        lambda workspace, wanted: model_sources.find(room, workspace, wanted),
        WORKSPACE, {"name": "digits", "path": path}, "me",
    )  # fmt: skip
    assert delete(room, "trainer") == ["trainer"]
    model = models.get(room.db, WORKSPACE, "digits")
    assert models.file(room.datastores, model, "model.pt").read_bytes() == b"weights"


def test_a_job_waits_for_its_worker_to_leave(room: Room, scheduler: Scheduler) -> None:
    job = finished(room, scheduler, name="lingers")
    assert delete(room, "lingers") == []
    assert left_of(room, job)
    clean(room, job)
    assert removal.work(room) == ["lingers"] and left_of(room, job) == {}
    assert removal.work(room) == [] and not removal.is_due(room)


@pytest.mark.parametrize("step", ["_drop_rows", "_dropped"])
def test_a_server_that_is_killed_goes_on_at_its_next_start(
    room: Room, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    job = finished(room, scheduler, name="half")
    clean(room, job)

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(removal, step, die)
        with pytest.raises(Killed):
            delete(room, "half")
    assert rooms.again(room, job).deleted  # hidden from lists meanwhile
    left = left_of(room, job)
    assert "paths" not in left and left["events"] and left["metrics"]

    started_again = Scheduler(room, FakeExecutor(), "http://127.0.0.1:1")
    started_again.look()
    started_again._forgetter.shutdown(wait=True)
    assert left_of(room, job) == {}


def test_files_that_cannot_be_removed_are_tried_again(
    room: Room, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished(room, scheduler, name="stuck")
    clean(room, job)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        assert delete(room, "stuck") == []
    assert left_of(room, job)["metrics"]
    assert removal.work(room) == ["stuck"] and left_of(room, job) == {}


def test_what_comes_to_be_needed_meanwhile_is_spared(room: Room, scheduler: Scheduler) -> None:
    job = finished(room, scheduler, name="spared", outputs={"out": {"type": "uri_folder"}})
    deletion.delete(room, WORKSPACE, Choice(["spared"]), "me")
    clean(room, job)
    uri = "azureml://datastores/workspaceblobstore/paths/azureml/spared/out/"
    assets.register(room.db, room.clock, WORKSPACE, assets.Request("late", uri), uri, "me")
    assert removal.work(room) == [] and not removal.is_due(room)
    assert not rooms.again(room, job).deleted and left_of(room, job)["metrics"]


def test_retention_keeps_what_is_young_running_or_registered(
    room: Room, scheduler: Scheduler, clock: FakeClock
) -> None:
    old = finished(room, scheduler, name="old")
    trainer = finished(room, scheduler, name="trainer")
    models.register(
        room.db, room.clock, room.datastores,
        lambda workspace, wanted: model_sources.find(room, workspace, wanted),
        WORKSPACE,
        {"name": "m", "path": "azureml://jobs/trainer/outputs/artifacts/paths/outputs/model.pt"},
        "me",
    )  # fmt: skip
    experiment = runs.create_experiment(room, WORKSPACE, "notebook", {})
    runs.create_run(
        room, WORKSPACE, experiment_id=experiment.id, owner="me", display_name="open",
        started_at=clock.now(), parent="", tags={},
    )  # fmt: skip
    clock.advance(5 * DAY_S)
    young = finished(room, scheduler, name="young")
    for job in (old, trainer, young):
        clean(room, job)
    clock.advance(5 * DAY_S)
    assert retention.look(room) == 0  # for ever is the default
    workspaces.update(room.db, WORKSPACE, {"retention_days": 7})
    assert retention.look(room) == 1
    assert removal.work(room) == ["old"]
    clock.advance(5 * DAY_S)
    # The server looks by itself once an hour.
    scheduler.look()
    scheduler._forgetter.shutdown(wait=True)
    assert removal.work(room) == [] and left_of(room, young) == {}
    assert left_of(room, trainer)["metrics"]
    assert [job.type for job in actions.list_in(room, WORKSPACE)] == ["run", "command"]
