"""Deleting jobs: what goes, what must stay, and a server that is killed in the middle of it."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from sqlalchemy import func, select

from jobs import support
from jobs.support import WORKSPACE, Worker
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
from torchyard.jobs.records import removal_store, run_assets
from torchyard.jobs.records.run_assets import RunAsset
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import job_queries, runs
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.models import actions as models
from torchyard.shared import locks
from torchyard.workspaces import actions as workspaces

DAY_S = 86400.0


@pytest.fixture
def scheduler(services: Services) -> Scheduler:
    return Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")


def finished(services: Services, scheduler: Scheduler, **document: Any) -> Job:
    """A job that ran to its end and left files, logs, points, parameters, an asset."""
    job = support.submit(services, **document)
    for _ in range(3):
        scheduler.run_round()
    attempt = support.attempt_of(services, job)
    scratch.folder(services, attempt.id).mkdir(parents=True)
    points = [metric("loss", step / 7, 1000 + step, step) for step in range(700)]
    services.history.append(job.id, [*points, param("lr", "0.1")])
    explanation = RunAsset("explanation", [{"prefix": "x"}], services.clock.now())
    with services.db.write() as connection:
        run_assets.put(connection, job.id, explanation)
    services.logs.append(WORKSPACE, job.name, 1, "user_logs/std_log.txt", 0, b"hello")
    with artifacts.writing(services.datastores, job, "outputs/model.pt") as writing:
        writing.write(b"weights")
    for output in document.get("outputs", {}):
        with artifacts.writing_output(services, job, output, "data.txt") as writing:
            writing.write(b"data")
    Worker(services, attempt).whole_life()
    # As the scheduler does where outputs carry a name.
    endings.finish(services, attempt.id, registers=True)
    return support.again(services, job)


def clean(services: Services, job: Job) -> None:
    """As the scheduler does once the worker has left."""
    attempt = support.attempt_of(services, job)
    scratch.clear(services, attempt)
    scratch.record_clear(services.db, [attempt])


def left_of(services: Services, job: Job) -> dict[str, int]:
    """Rows and paths that still belong to the job, but for its tombstone."""
    remains = {}
    with services.db.read() as connection:
        for table in metadata.sorted_tables:
            if table is removal_store.removed_jobs:
                continue
            for column, value in (("job_id", job.id), ("run", job.name), ("job_name", job.name)):
                if column in table.c:
                    rows = select(func.count()).where(table.c[column] == value)
                    remains[table.name] = connection.execute(rows).scalar_one()
    remains["paths"] = len([path for path in services.home.rglob("*") if job.name in path.name])
    return {name: count for name, count in remains.items() if count}


def delete(services: Services, *names: str) -> list[str]:
    deletion.delete(services, WORKSPACE, Choice(names), "me")
    return removal.work(services)


def test_nothing_of_a_job_stays(services: Services, scheduler: Scheduler) -> None:
    job = finished(services, scheduler, name="gone", outputs={"out": {"type": "uri_folder"}})
    other = finished(services, scheduler, name="other")
    clean(services, job)
    clean(services, other)
    before = left_of(services, other)
    weight = removal.weights(services, [job])["gone"]
    assert (weight.files, weight.size_bytes, weight.points) == (4, 66, 700)

    assert delete(services, "gone") == ["gone"]

    assert left_of(services, job) == {}
    assert left_of(services, other) == before
    with pytest.raises(NotFound):
        actions.get(services, WORKSPACE, "gone")
    again = support.submit(services, name="gone")
    assert again.id > job.id and services.history.latest(again.id) == []


def test_whoever_waits_for_a_deletion_waits_for_another_that_is_at_work(
    services: Services, scheduler: Scheduler
) -> None:
    """The scheduler may be taking away what was marked before."""
    job = finished(services, scheduler, name="gone")
    clean(services, job)
    deleted = deletion.delete(services, WORKSPACE, Choice(["gone"]), "me")
    with ThreadPoolExecutor() as pool:
        with locks.hold(services.lock("removal")):
            assert removal.work(services) == []
            waiting = pool.submit(removal.work_now, services, deleted.jobs)
            assert not wait([waiting], timeout=0.2).done
        assert waiting.result(timeout=60) == []
    with pytest.raises(NotFound):
        actions.get(services, WORKSPACE, "gone")


def test_a_number_is_never_given_twice(services: Services, scheduler: Scheduler) -> None:
    job = finished(services, scheduler, name="last")
    clean(services, job)
    delete(services, "last")
    assert support.submit(services, name="next").id == job.id + 1


def test_what_runs_stays_and_so_do_its_ancestors(services: Services, scheduler: Scheduler) -> None:
    parent = finished(services, scheduler, name="parent")
    clean(services, parent)
    support.submit(services, name="child", parent_job_name="parent")
    with pytest.raises(Conflict, match="`child`, a child of `parent`, is ") as caught:
        delete(services, "parent")
    assert caught.value.code == "job_not_ended" and "yard job cancel -n child" in caught.value.hint
    assert left_of(services, parent)
    actions.cancel(services, WORKSPACE, "child")
    assert sorted(delete(services, "parent")) == ["child", "parent"]


@pytest.mark.parametrize(("code", "status"), [(0, "Completed"), (1, "Failed")])
def test_runs_that_a_script_left_running_end_with_its_job(
    services: Services, scheduler: Scheduler, code: int, status: str
) -> None:
    job = support.submit(services, name="parent")
    scheduler.run_round()
    attempt = support.attempt_of(services, job)
    made: dict[str, Any] = {
        "experiment_id": job.experiment_id,
        "owner": "me",
        "started_at": services.clock.now(),
    }

    def below(parent: str) -> Job:
        return runs.create_run(
            services, runs.RunRequest(WORKSPACE, display_name="", parent=parent, tags={}, **made)
        )

    child, over, apart = below("parent"), below("parent"), below("")
    deeper = below(child.name)
    runs.change_run(services, WORKSPACE, over.name, status=Status.CANCELED)
    worker = Worker(services, attempt)
    worker.fails(code) if code else worker.whole_life()
    ended = [support.again(services, member) for member in (job, child, deeper)]
    assert [job.status.value for job in ended] == [status] * 3
    assert len({job.ended_at for job in ended}) == 1
    assert support.again(services, over).status is Status.CANCELED
    assert support.again(services, apart).status is Status.RUNNING
    clean(services, job)
    assert set(delete(services, "parent")) == {job.name for job in (*ended, over)}


def test_files_that_something_needs_stay(services: Services, scheduler: Scheduler) -> None:
    job = finished(
        services, scheduler, name="maker", outputs={"out": {"type": "uri_folder", "name": "clean"}}
    )
    clean(services, job)
    assert [version.name for version in assets.list_versions(services.db, WORKSPACE)] == ["clean"]
    with pytest.raises(Conflict, match="data `clean:1` needs its files"):
        delete(services, "maker")
    source = finished(services, scheduler, name="source", outputs={"out": {"type": "uri_folder"}})
    clean(services, source)
    data_input = {"type": "uri_folder", "path": "azureml://jobs/source/outputs/out"}
    support.submit(services, name="reader", inputs={"data": data_input})
    with pytest.raises(Conflict, match="job `reader` needs its files"):
        delete(services, "source")
    actions.cancel(services, WORKSPACE, "reader")
    assert delete(services, "source") == ["source"]


def test_a_registered_model_outlives_its_job(services: Services, scheduler: Scheduler) -> None:
    job = finished(services, scheduler, name="trainer")
    clean(services, job)
    path = "azureml://jobs/trainer/outputs/artifacts/paths/outputs/model.pt"
    models.register(
        services.db, services.clock, services.datastores,
        lambda workspace, reference: model_sources.find(services, workspace, reference),
        WORKSPACE, {"name": "digits", "path": path}, "me",
    )  # fmt: skip
    assert delete(services, "trainer") == ["trainer"]
    model = models.get(services.db, WORKSPACE, "digits")
    assert models.file(services.datastores, model, "model.pt").read_bytes() == b"weights"


def test_a_job_waits_for_its_worker_to_leave(services: Services, scheduler: Scheduler) -> None:
    job = finished(services, scheduler, name="lingers")
    assert delete(services, "lingers") == []
    assert left_of(services, job)
    clean(services, job)
    assert removal.work(services) == ["lingers"] and left_of(services, job) == {}
    assert removal.work(services) == [] and not removal.is_due(services.db)


@pytest.mark.parametrize("step", ["_drop_rows", "_dropped"])
def test_a_server_that_is_killed_goes_on_at_its_next_start(
    services: Services, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    job = finished(services, scheduler, name="half")
    clean(services, job)

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(removal, step, die)
        with pytest.raises(Killed):
            delete(services, "half")
    assert support.again(services, job).deleted  # hidden from lists meanwhile
    left = left_of(services, job)
    assert "paths" not in left and left["events"] and left["metrics"]

    started_again = Scheduler(services, FakeExecutor(), "http://127.0.0.1:1")
    started_again.run_round()
    started_again._forgetter.shutdown(wait=True)
    assert left_of(services, job) == {}


def test_files_that_cannot_be_removed_are_tried_again(
    services: Services, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = finished(services, scheduler, name="stuck")
    clean(services, job)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        assert delete(services, "stuck") == []
    assert left_of(services, job)["metrics"]
    assert removal.work(services) == ["stuck"] and left_of(services, job) == {}


def test_what_comes_to_be_needed_meanwhile_is_spared(
    services: Services, scheduler: Scheduler
) -> None:
    job = finished(services, scheduler, name="spared", outputs={"out": {"type": "uri_folder"}})
    deletion.delete(services, WORKSPACE, Choice(["spared"]), "me")
    clean(services, job)
    uri = "azureml://datastores/workspaceblobstore/paths/azureml/spared/out/"
    assets.register(
        services.db, services.clock, WORKSPACE, assets.DataRequest("late", uri), uri, "me"
    )
    assert removal.work(services) == [] and not removal.is_due(services.db)
    assert not support.again(services, job).deleted and left_of(services, job)["metrics"]


def test_retention_keeps_what_is_young_running_or_registered(
    services: Services, scheduler: Scheduler, clock: FakeClock
) -> None:
    old = finished(services, scheduler, name="old")
    trainer = finished(services, scheduler, name="trainer")
    models.register(
        services.db, services.clock, services.datastores,
        lambda workspace, request: model_sources.find(services, workspace, request),
        WORKSPACE,
        {"name": "m", "path": "azureml://jobs/trainer/outputs/artifacts/paths/outputs/model.pt"},
        "me",
    )  # fmt: skip
    experiment = runs.create_experiment(services, WORKSPACE, "notebook", {})
    request = runs.RunRequest(
        WORKSPACE, experiment.id, "me", "open", started_at=clock.now(), parent="", tags={}
    )
    runs.create_run(services, request)
    clock.advance(5 * DAY_S)
    young = finished(services, scheduler, name="young")
    for job in (old, trainer, young):
        clean(services, job)
    clock.advance(5 * DAY_S)
    assert retention.delete_expired(services) == 0  # for ever is the default
    workspaces.update(services.db, WORKSPACE, {"retention_days": 7})
    assert retention.delete_expired(services) == 1
    assert removal.work(services) == ["old"]
    clock.advance(5 * DAY_S)
    # The server looks by itself once an hour.
    scheduler.run_round()
    scheduler._forgetter.shutdown(wait=True)
    assert removal.work(services) == [] and left_of(services, young) == {}
    assert left_of(services, trainer)["metrics"]
    assert [job.type for job in job_queries.list_in(services, WORKSPACE)] == ["run", "command"]
