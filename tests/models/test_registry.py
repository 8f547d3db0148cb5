"""Names of models, deleting, aliases; what `yard` and MLflow register are the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_models import register, snapshot

from jobs import rooms
from jobs.rooms import ME, WORKSPACE, submit
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE
from torchyard.jobs.files import artifacts
from torchyard.jobs.history import history_records, logged_metrics
from torchyard.jobs.history.history import History
from torchyard.jobs.history.history_records import ModelMetric
from torchyard.jobs.requests import pinning
from torchyard.jobs.services import Room
from torchyard.jobs.spec.inputs import Input
from torchyard.models import actions, documents, logged, registry
from torchyard.models.types import LoggedModel, RunModel, Source


@pytest.fixture
def room(tmp_path: Path, db: Database, clock: FakeClock) -> Room:
    return rooms.make(tmp_path / "home", db, clock)


def log_model(room: Room, run: str, name: str = "net", beside_run: bool = True) -> LoggedModel:
    made = logged.create(
        room.db, room.clock, room.datastores, WORKSPACE, 1, name, run=run, beside_run=beside_run
    )
    with logged.writing(room.datastores, made, "MLmodel") as writing:
        writing.write(made.id.encode())
    return made


def paths(room: Room, model: LoggedModel) -> list[str]:
    return [path for path, _ in logged.list_files(room.datastores, model)]


def test_what_is_registered_has_a_name(room: Room) -> None:
    register(room, {"name": "m", "path": snapshot(room, "a"), "version": 7})
    found = registry.whole(room.db, WORKSPACE, "m")
    assert (found.registered.last_version, [one.version for one in found.versions]) == (7, [7])
    with pytest.raises(Conflict):
        registry.create(room.db, room.clock, WORKSPACE, "m")
    registry.create(room.db, room.clock, WORKSPACE, "empty", "none yet", {"a": "b"})
    assert [one.name for one in registry.list_in(room.db, WORKSPACE)] == ["empty", "m"]
    assert [one.name for one in actions.list_in(room.db, WORKSPACE)] == ["m"]
    with pytest.raises(NotFound) as missing:
        actions.get(room.db, WORKSPACE, "empty")
    assert "has no version" in missing.value.message


def test_a_number_is_given_once(room: Room) -> None:
    for _ in range(2):
        register(room, {"name": "m", "path": snapshot(room, "a")})
    folder = actions.get(room.db, WORKSPACE, "m", "2").folder
    files = room.datastores.root(WORKSPACE, BLOB_STORE)
    assert (files / folder / "a").is_file()
    actions.delete(room.db, room.clock, room.datastores, WORKSPACE, "m", 2)
    assert not (files / folder).exists()
    assert register(room, {"name": "m", "path": snapshot(room, "a")}).version == 3
    actions.delete_all(room.db, room.datastores, WORKSPACE, "m")
    assert not list(files.rglob("a"))
    assert registry.list_in(room.db, WORKSPACE) == []
    assert register(room, {"name": "m", "path": snapshot(room, "a")}).version == 1


def test_an_alias_is_a_version_to_jobs_too(room: Room) -> None:
    for _ in range(2):
        register(room, {"name": "m", "path": snapshot(room, "a", "b/c")})
    registry.set_alias(room.db, room.clock, WORKSPACE, "m", "best", 1)
    assert actions.get(room.db, WORKSPACE, "m", "best").version == 1
    given = Input(type="custom_model", path="azureml:m@best")
    folder = actions.get(room.db, WORKSPACE, "m", "1").folder
    assert folder in pinning.pin(room, WORKSPACE, "j", given).path
    with pytest.raises(NotFound):
        registry.set_alias(room.db, room.clock, WORKSPACE, "m", "best", 9)
    actions.delete(room.db, room.clock, room.datastores, WORKSPACE, "m", 1)
    with pytest.raises(NotFound):
        actions.get(room.db, WORKSPACE, "m", "best")


def test_a_renamed_model_keeps_its_files(room: Room) -> None:
    register(room, {"name": "m", "path": snapshot(room, "a")})
    register(room, {"name": "other", "path": snapshot(room, "a")})
    with pytest.raises(Conflict):
        registry.rename(room.db, room.clock, WORKSPACE, "m", "other")
    with pytest.raises(InvalidInput):
        registry.rename(room.db, room.clock, WORKSPACE, "m", "a/b")
    registry.rename(room.db, room.clock, WORKSPACE, "m", "a b")
    found = actions.get(room.db, WORKSPACE, "a b", "1")
    assert actions.file(room.datastores, found, "a").read_bytes() == b"a"


def test_a_failed_copy_leaves_nothing(room: Room, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    source = Source((("there", tmp_path / "there"), ("gone", tmp_path / "gone")))
    asked = documents.Request("m", "runs:/x/y", "custom_model")
    with pytest.raises(FileNotFoundError):
        actions.keep(room.db, room.clock, room.datastores, WORKSPACE, asked, source, ME.user)
    assert not list(room.datastores.root(WORKSPACE, BLOB_STORE).rglob("there"))
    assert registry.list_in(room.db, WORKSPACE) == []


def test_the_newest_model_of_a_run_lies_at_its_name(room: Room) -> None:
    job = submit(room)
    first = log_model(room, job.name)
    second = log_model(room, job.name)
    first = logged.get(room.db, WORKSPACE, first.id)
    assert artifacts.file(room, job, "net/MLmodel").read_text() == second.id
    assert artifacts.file(room, job, f"net-{first.id}/MLmodel").read_text() == first.id
    assert paths(room, first) == paths(room, second) == ["MLmodel"]
    path = f"azureml://jobs/{job.name}/outputs/artifacts/paths/net"
    model = register(room, {"name": "m", "type": "mlflow_model", "path": path})
    assert (model.job, [file.path for file in model.files]) == (job.name, ["MLmodel"])
    assert sorted(logged.folders_of(room.db, WORKSPACE, job.name)) == ["net", f"net-{first.id}"]


def test_a_model_is_never_mixed_with_other_files(room: Room) -> None:
    job = submit(room)
    with artifacts.writing(room, job, "net/note.txt") as writing:
        writing.write(b"n")
    for name in ("net", "outputs"):
        made = log_model(room, job.name, name)
        assert paths(room, made) == ["MLmodel"]
        assert made.folder.endswith(f"/{name}-{made.id}")
    stranger = log_model(room, "../x", beside_run=False)
    assert stranger.folder == f"LoggedModels/{stranger.id}"
    root = room.datastores.root(WORKSPACE, ARTIFACT_STORE)
    assert (root / stranger.folder / "MLmodel").is_file()


def test_what_a_job_measures_of_a_model_goes_with_the_job(room: Room) -> None:
    job = submit(room)
    made = log_model(room, job.name)
    kept = History(room.db, lambda *_: None, logged_metrics.add)
    for timestamp, value in ((1, 0.5), (3, 0.7), (2, 0.6)):
        point = history_records.metric("acc", value, timestamp)
        kept.append(job.id, [ModelMetric(made.id, "", "", point)])
    rejected = kept.receive(
        lambda run: job.id if run == job.name else None, "att", 0, 0,
        [{"run": job.name, "kind": "metric", "key": "loss", "value": "NaN", "timestamp": 1,
          "model_id": made.id, "dataset_name": "d"},
         {"run": job.name, "kind": "metric", "key": "loss", "value": 1, "timestamp": 1,
          "model_id": 7}],
    )["rejected"]  # fmt: skip
    assert [one["seq"] for one in rejected] == [1]
    found = logged.metrics_of(room.db, WORKSPACE, [made.id])[made.id]
    assert [(one.key, one.run) for one in found] == [("loss", job.name), ("acc", job.name)]
    assert (found[1].value, found[0].value != found[0].value) == (0.7, True)
    assert [one.value for one in kept.series(job.id, "acc")] == [0.5, 0.7, 0.6]

    logged.note(room.db, WORKSPACE, [RunModel(job.name, "output", made.id, 2)] * 2)
    assert len(logged.of_runs(room.db, WORKSPACE, [job.name])[job.name]) == 1
    with room.db.write() as connection:
        logged.forget_run(connection, WORKSPACE, job.name)
    assert logged.metrics_of(room.db, WORKSPACE, [made.id]) == {made.id: []}
    assert logged.of_runs(room.db, WORKSPACE, [job.name]) == {}
    with pytest.raises(NotFound):
        logged.get(room.db, WORKSPACE, made.id)
