"""Deleting models, data and environments: what is refused, what breaks, what goes."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from jobs import support
from jobs.support import ME, WORKSPACE, Worker, attempt_of, submit
from torchyard.assets.deletions import AssetDeletion, DeletionRequest
from torchyard.base.blobs import SnapshotFile
from torchyard.base.errors import Conflict, Forbidden, NotFound
from torchyard.components import actions as components
from torchyard.data import assets
from torchyard.data.datastores import BLOB_STORE
from torchyard.data.types import DataAsset
from torchyard.environments import assets as environments
from torchyard.environments.assets import EnvironmentRequest
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.attempts import endings
from torchyard.jobs.cleanup import asset_deletion, deletion, removal
from torchyard.jobs.cleanup.deletion import Choice
from torchyard.jobs.files import artifacts, data_sources, model_sources
from torchyard.jobs.records.types import Job
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.models import actions as models
from torchyard.models import registry
from torchyard.models.types import Model
from torchyard.workspaces.types import Role


def upload(services: Services, name: str = "digits", text: bytes = b"0,1,2") -> DataAsset:
    file = SnapshotFile("x.csv", services.blobs.of("default").put_bytes(text), len(text))
    snapshot = services.blobs.of("default").put_snapshot({"files": [asdict(file)]})
    document = {"name": name, "path": f"snapshot:{snapshot.id}"}
    return assets.create(
        services.db, services.clock, services.datastores, services.blobs.of("default"),
        lambda *source: data_sources.pin(services, *source).path,
        WORKSPACE, assets.read_document(document), ME.user,
    )  # fmt: skip


def register(services: Services, path: str, name: str = "net") -> Model:
    return models.register(
        services.db, services.clock, services.datastores,
        lambda workspace, reference: model_sources.find(services, workspace, reference),
        WORKSPACE, {"name": name, "path": path}, ME.user,
    )  # fmt: skip


def done(services: Services, job: Job) -> Job:
    Scheduler(services, FakeExecutor(), "http://127.0.0.1:1").run_round()
    Worker(services, attempt_of(services, job)).whole_life()
    return support.again(services, job)


def reader(services: Services, asset: str, kind: str = "uri_folder") -> Job:
    inputs = {"a": {"type": kind, "path": f"azureml:{asset}"}}
    return submit(services, command="x ${{inputs.a}}", inputs=inputs)


def delete(
    services: Services, noun: str, name: str, version: str = "", *, force: bool = False
) -> AssetDeletion:
    request = DeletionRequest(noun, WORKSPACE, name, version, force)
    return asset_deletion.delete(services, request, ME)


def folder_of(services: Services, asset: DataAsset) -> Path:
    path = asset.uri.partition("/paths/")[2]
    return services.datastores.root(WORKSPACE, BLOB_STORE) / path


def test_data_goes_with_the_files_that_were_uploaded_for_it(services: Services) -> None:
    asset = upload(services)
    folder = folder_of(services, asset)
    assert (folder / "x.csv").exists()
    deletion = delete(services, "data", "digits", "1")
    assert [(version.version, version.size_bytes) for version in deletion.versions] == [("1", 5)]
    assert deletion.breaks == () and not folder.exists()
    with pytest.raises(NotFound):
        assets.get(services.db, WORKSPACE, "digits")


def test_files_stay_while_another_version_or_name_has_the_same(services: Services) -> None:
    first, _, other = upload(services), upload(services), upload(services, "copy")
    submit(
        services,
        command="x ${{inputs.a}}",
        inputs={"a": {"path": f"{first.uri}x.csv", "type": "uri_file"}},
    )
    assert delete(services, "data", "digits", "1").versions[0].size_bytes == 0
    assert delete(services, "data", "digits", "2").versions[0].size_bytes == 0
    assert (folder_of(services, first) / "x.csv").exists()
    with pytest.raises(Conflict, match="uses it and has not ended"):
        delete(services, "data", other.name, force=True)


def test_the_number_of_a_deleted_version_is_not_used_again(services: Services) -> None:
    upload(services)
    delete(services, "data", "digits")
    assert upload(services).version == "2"
    environment(services)
    delete(services, "environment", "vision", "1")
    environment(services)
    assert environments.get(services.db, WORKSPACE, "vision").version == "2"
    with pytest.raises(Conflict, match="`vision:1` was deleted"):
        environment(services, version="1")


def test_what_names_data_is_named_and_force_says_what_breaks(services: Services) -> None:
    asset = upload(services)
    job = reader(services, "digits@latest")
    with pytest.raises(Conflict, match="has not ended") as busy:
        delete(services, "data", "digits", "1", force=True)
    assert f"yard job cancel -n {job.name}" in busy.value.hint
    done(services, job)
    with pytest.raises(Conflict, match=f"`digits:1` can't be deleted: job `{job.name}` names it"):
        delete(services, "data", "digits")
    assert folder_of(services, asset).exists()
    deletion = delete(services, "data", "digits", force=True)
    assert deletion.breaks == (f"job `{job.name}` lacks its input `a` when it is run again",)
    assert not folder_of(services, asset).exists()


def test_a_job_can_be_deleted_once_its_registered_output_is(services: Services) -> None:
    job = submit(services, name="maker", outputs={"out": {"type": "uri_folder"}})
    Scheduler(services, FakeExecutor(), "http://127.0.0.1:1").run_round()
    with artifacts.writing_output(services, job, "out", "data.txt") as writing:
        writing.write(b"data")
    Worker(services, attempt_of(services, job)).whole_life()
    endings.finish(services, attempt_of(services, job).id)
    uri = f"azureml://jobs/{job.name}/outputs/out"
    document = assets.read_document({"name": "clean", "path": uri})
    assets.create(
        services.db, services.clock, services.datastores, services.blobs.of("default"),
        lambda *source: data_sources.pin(services, *source).path, WORKSPACE, document, ME.user,
    )  # fmt: skip
    with pytest.raises(Conflict, match="data `clean:1` needs its files") as refusal:
        deletion.delete(services, WORKSPACE, Choice(["maker"]), ME.user)
    assert "yard data delete clean:1" in refusal.value.hint
    assert delete(services, "data", "clean").versions[0].size_bytes == 0
    assert list(artifacts.list_outputs(services, job))
    deletion.delete(services, WORKSPACE, Choice(["maker"]), ME.user)
    removal.work(services)


def test_a_model_goes_with_its_files_unless_something_names_it(services: Services) -> None:
    maker = submit(services)
    with artifacts.writing(services.datastores, maker, "outputs/model.pt") as writing:
        writing.write(b"weights")
    done(services, maker)
    path = f"azureml://jobs/{maker.name}/outputs/artifacts/paths/outputs/model.pt"
    first, second = register(services, path), register(services, path)
    done(services, reader(services, "net:1", "custom_model"))
    registry.set_alias(services.db, services.clock, WORKSPACE, "net", "champion", 1, user="me")
    with pytest.raises(Conflict, match=r"alias `champion`, job `.*` name it"):
        delete(services, "model", "net", "1")
    with pytest.raises(Conflict):
        delete(services, "model", "net")
    deletion = delete(services, "model", "net", "champion", force=True)
    assert deletion.versions[0].size_bytes == 7
    assert deletion.breaks[0] == "`azureml:net@champion` names nothing"
    root = services.datastores.root(WORKSPACE, BLOB_STORE)
    assert not (root / first.folder).exists()
    assert models.get(services.db, WORKSPACE, "net").version == second.version
    assert delete(services, "model", "net").breaks == ()
    assert register(services, path).version == 3


def environment(services: Services, version: str = "") -> None:
    request = EnvironmentRequest("vision", {"image": "python"}, version)
    environments.register(
        services.db, services.clock, WORKSPACE, request, ME.user, lambda definition: None
    )


def test_an_environment_is_kept_for_jobs_and_components(services: Services) -> None:
    for _ in range(10):
        environment(services)
    component = {"name": "train", "command": "x", "environment": "azureml:vision@latest"}
    components.register(services.db, services.clock, WORKSPACE, component, ME.user)
    job = submit(services, name="old", environment="vision:1")
    assert delete(services, "environment", "vision", "10").breaks == ()
    with pytest.raises(Conflict, match="job `old` uses it and has not ended"):
        delete(services, "environment", "vision", "1")
    done(services, job)
    with pytest.raises(Conflict, match=r"can't be deleted: .*component `train:1`"):
        delete(services, "environment", "vision")
    with pytest.raises(Conflict, match="is curated and can't be deleted"):
        delete(services, "environment", "python")


def test_a_data_scientist_deletes_what_is_theirs_alone(services: Services) -> None:
    upload(services)
    bob = replace(ME, user="bob", role=Role.DATA_SCIENTIST, own_only=True)
    request = DeletionRequest("data", WORKSPACE, "digits", "1", force=True)
    with pytest.raises(Forbidden, match=f"data `digits:1` belongs to `{ME.user}`"):
        asset_deletion.delete(services, request, bob)
    assert assets.get(services.db, WORKSPACE, "digits").version == "1"


def test_a_rehearsal_deletes_nothing(services: Services) -> None:
    asset = upload(services)
    request = DeletionRequest("data", WORKSPACE, "digits", dry_run=True)
    assert asset_deletion.delete(services, request, ME).versions[0].size_bytes == 5
    assert folder_of(services, asset).exists()
