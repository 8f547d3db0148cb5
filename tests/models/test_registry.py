"""Names of models, deleting, aliases; `yard` and MLflow share the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs import support
from jobs.support import ME, WORKSPACE, submit
from models.test_models import register, snapshot
from torchyard.assets.sources import Source
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE
from torchyard.jobs.files import artifacts
from torchyard.jobs.history import history_records
from torchyard.jobs.history.history_records import ModelMetric
from torchyard.jobs.requests import pinning
from torchyard.jobs.services import Services
from torchyard.jobs.spec.inputs import Input
from torchyard.models import actions, documents, logged, registry
from torchyard.models.types import LoggedModel, RunModel


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    return support.make_services(tmp_path / "home", db, clock)


def log_model(
    services: Services, run: str, name: str = "net", beside_run: bool = True
) -> LoggedModel:
    made = logged.create(
        services.db,
        services.clock,
        services.datastores,
        WORKSPACE,
        1,
        name,
        run=run,
        beside_run=beside_run,
    )
    with logged.writing(services.datastores, made, "MLmodel") as writing:
        writing.write(made.id.encode())
    return made


def paths(services: Services, model: LoggedModel) -> list[str]:
    return [path for path, _ in logged.list_files(services.datastores, model)]


def test_a_registered_model_has_a_name(services: Services) -> None:
    register(services, {"name": "m", "path": snapshot(services, "a"), "version": 7})
    result = registry.get_with_versions(services.db, WORKSPACE, "m")
    assert (result.registered.last_version, [item.version for item in result.versions]) == (7, [7])
    with pytest.raises(Conflict):
        registry.create(services.db, services.clock, WORKSPACE, "m")
    registry.create(services.db, services.clock, WORKSPACE, "empty", "none yet", {"a": "b"})
    assert [item.name for item in registry.list_in(services.db, WORKSPACE)] == ["empty", "m"]
    assert [item.name for item in actions.list_in(services.db, WORKSPACE)] == ["m"]
    with pytest.raises(NotFound) as missing:
        actions.get(services.db, WORKSPACE, "empty")
    assert "has no version" in missing.value.message


def test_no_version_number_is_used_twice(services: Services) -> None:
    for _ in range(2):
        register(services, {"name": "m", "path": snapshot(services, "a")})
    folder = actions.get(services.db, WORKSPACE, "m", "2").folder
    files = services.datastores.root(WORKSPACE, BLOB_STORE)
    assert (files / folder / "a").is_file()
    actions.delete(services.db, services.clock, services.datastores, WORKSPACE, "m", 2, user="me")
    assert not (files / folder).exists()
    assert register(services, {"name": "m", "path": snapshot(services, "a")}).version == 3
    actions.delete_all(services.db, services.datastores, WORKSPACE, "m", user="me")
    assert not list(files.rglob("a"))
    assert registry.list_in(services.db, WORKSPACE) == []
    assert register(services, {"name": "m", "path": snapshot(services, "a")}).version == 1


def test_an_alias_is_a_version_to_jobs_too(services: Services) -> None:
    for _ in range(2):
        register(services, {"name": "m", "path": snapshot(services, "a", "b/c")})
    registry.set_alias(services.db, services.clock, WORKSPACE, "m", "best", 1, user="me")
    assert actions.get(services.db, WORKSPACE, "m", "best").version == 1
    model_input = Input(type="custom_model", path="azureml:m@best")
    folder = actions.get(services.db, WORKSPACE, "m", "1").folder
    assert folder in pinning.pin(services, WORKSPACE, "j", model_input).path
    with pytest.raises(NotFound):
        registry.set_alias(services.db, services.clock, WORKSPACE, "m", "best", 9, user="me")
    actions.delete(services.db, services.clock, services.datastores, WORKSPACE, "m", 1, user="me")
    with pytest.raises(NotFound):
        actions.get(services.db, WORKSPACE, "m", "best")


def test_a_renamed_model_keeps_its_files(services: Services) -> None:
    register(services, {"name": "m", "path": snapshot(services, "a")})
    register(services, {"name": "other", "path": snapshot(services, "a")})
    with pytest.raises(Conflict):
        registry.rename(services.db, services.clock, WORKSPACE, "m", "other", user="me")
    with pytest.raises(InvalidInput):
        registry.rename(services.db, services.clock, WORKSPACE, "m", "a/b", user="me")
    registry.rename(services.db, services.clock, WORKSPACE, "m", "a b", user="me")
    result = actions.get(services.db, WORKSPACE, "a b", "1")
    assert actions.file(services.datastores, result, "a").read_bytes() == b"a"


def test_a_failed_copy_leaves_nothing(services: Services, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("x")
    source = Source((("there", tmp_path / "there"), ("gone", tmp_path / "gone")))
    request = documents.ModelRequest("m", "runs:/x/y", "custom_model")
    with pytest.raises(FileNotFoundError):
        actions.keep(
            services.db, services.clock, services.datastores, WORKSPACE, request, source, ME.user
        )
    assert not list(services.datastores.root(WORKSPACE, BLOB_STORE).rglob("there"))
    assert registry.list_in(services.db, WORKSPACE) == []


def test_the_newest_model_of_a_run_has_the_folder_of_its_name(services: Services) -> None:
    job = submit(services)
    first = log_model(services, job.name)
    second = log_model(services, job.name)
    first = logged.get(services.db, WORKSPACE, first.id)
    assert artifacts.file(services, job, "net/MLmodel").read_text() == second.id
    assert artifacts.file(services, job, f"net-{first.id}/MLmodel").read_text() == first.id
    assert paths(services, first) == paths(services, second) == ["MLmodel"]
    path = f"azureml://jobs/{job.name}/outputs/artifacts/paths/net"
    model = register(services, {"name": "m", "type": "mlflow_model", "path": path})
    assert (model.job, [file.path for file in model.files]) == (job.name, ["MLmodel"])
    assert sorted(logged.folders_of(services.db, WORKSPACE, job.name)) == ["net", f"net-{first.id}"]


def test_a_model_is_never_mixed_with_other_files(services: Services) -> None:
    job = submit(services)
    with artifacts.writing(services.datastores, job, "net/note.txt") as writing:
        writing.write(b"n")
    for name in ("net", "outputs"):
        made = log_model(services, job.name, name)
        assert paths(services, made) == ["MLmodel"]
        assert made.folder.endswith(f"/{name}-{made.id}")
    stranger = log_model(services, "../x", beside_run=False)
    assert stranger.folder == f"LoggedModels/{stranger.id}"
    root = services.datastores.root(WORKSPACE, ARTIFACT_STORE)
    assert (root / stranger.folder / "MLmodel").is_file()


def test_metrics_of_a_model_are_deleted_with_the_job(services: Services) -> None:
    job = submit(services)
    made = log_model(services, job.name)
    history = services.history
    for timestamp, value in ((1, 0.5), (3, 0.7), (2, 0.6)):
        point = history_records.metric("acc", value, timestamp)
        history.append(job.id, [ModelMetric(made.id, "", "", point)])
    rejected = history.receive(
        lambda run: job.id if run == job.name else None, "att", 0, 0,
        [{"run": job.name, "kind": "metric", "key": "loss", "value": "NaN", "timestamp": 1,
          "model_id": made.id, "dataset_name": "d"},
         {"run": job.name, "kind": "metric", "key": "loss", "value": 1, "timestamp": 1,
          "model_id": 7}],
    ).rejected  # fmt: skip
    assert [item["seq"] for item in rejected] == [1]
    result = logged.metrics_of(services.db, WORKSPACE, [made.id])[made.id]
    assert [(item.key, item.run) for item in result] == [("loss", job.name), ("acc", job.name)]
    assert (result[1].value, result[0].value != result[0].value) == (0.7, True)
    assert [item.value for item in history.series(job.id, "acc")] == [0.5, 0.7, 0.6]

    logged.record_uses(services.db, WORKSPACE, [RunModel(job.name, "output", made.id, 2)] * 2)
    assert len(logged.of_runs(services.db, WORKSPACE, [job.name])[job.name]) == 1
    with services.db.write() as connection:
        logged.delete_of_run(connection, WORKSPACE, job.name)
    assert logged.metrics_of(services.db, WORKSPACE, [made.id]) == {made.id: []}
    assert logged.of_runs(services.db, WORKSPACE, [job.name]) == {}
    with pytest.raises(NotFound):
        logged.get(services.db, WORKSPACE, made.id)
