"""Models: from each kind of source, versions, archiving, changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jobs import support
from jobs.support import ME, WORKSPACE, submit
from models import onnx_bytes
from torchyard.base.blobs import SnapshotFile
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, InvalidSpec, NotFound
from torchyard.data import datastores
from torchyard.jobs.files import artifacts, model_sources
from torchyard.jobs.services import Services
from torchyard.models import actions
from torchyard.models.types import Model


@pytest.fixture
def services(tmp_path: Path, db: Database, clock: FakeClock) -> Services:
    return support.make_services(tmp_path / "home", db, clock)


@pytest.fixture
def nas(tmp_path: Path, services: Services) -> Path:
    """The folder of a datastore `nas`."""
    folder = tmp_path / "nas"
    (folder / "net" / "deep").mkdir(parents=True)
    (folder / "net" / "MLmodel").write_text("flavors: {}\n")
    (folder / "net" / "deep" / "w.bin").write_bytes(b"w")
    document = {"name": "nas", "type": "local", "path": str(folder)}
    datastores.put(services.db, services.clock, services.datastores, WORKSPACE, document, "me")
    return folder


def snapshot(services: Services, *paths: str) -> str:
    files = [
        SnapshotFile(
            path, services.blobs.of("default").put_bytes(path.encode()), len(path.encode())
        )
        for path in paths
    ]
    entries = [asdict(file) for file in files]
    return f"snapshot:{services.blobs.of('default').put_snapshot({'files': entries}).id}"


def register(services: Services, document: Mapping[str, Any]) -> Model:
    services.clock.advance(1)  # type: ignore[attr-defined]
    return actions.register(
        services.db, services.clock, services.datastores,
        lambda workspace, path: model_sources.find(services, workspace, path),
        WORKSPACE, document, ME.user,
    )  # fmt: skip


def content(services: Services, model: Model) -> dict[str, bytes]:
    return {
        file.path: actions.file(services.datastores, model, file.path).read_bytes()
        for file in model.files
    }


def test_a_model_of_a_jobs_output_knows_its_job(services: Services) -> None:
    job = submit(services, outputs={"best": None})
    with artifacts.writing(services.datastores, job, "outputs/model.pt") as writing:
        writing.write(b"weights")
    with artifacts.writing_output(services, job, "best", "a/w.bin") as writing:
        writing.write(b"best")
    for path, files, single in (
        (f"azureml://jobs/{job.name}/outputs/artifacts/paths/outputs/model.pt",
         {"model.pt": b"weights"}, True),
        (f"runs:/{job.name}/outputs", {"model.pt": b"weights"}, False),
        (f"azureml://jobs/{job.name}/outputs/best", {"a/w.bin": b"best"}, False),
    ):  # fmt: skip
        model = register(services, {"name": "m", "path": path})
        assert (content(services, model), model.single, model.job) == (files, single, job.name)
    assert [model.version for model in actions.of_job(services.db, WORKSPACE, job.name)] == [
        1,
        2,
        3,
    ]


def test_a_model_of_a_datastore_is_a_copy(services: Services, nas: Path) -> None:
    document = {"name": "m", "type": "MlflowModel", "path": "azureml://datastores/nas/paths/net/"}
    model = register(services, document)
    expected = {"MLmodel": b"flavors: {}\n", "deep/w.bin": b"w"}
    assert (content(services, model), model.type) == (expected, "mlflow_model")
    (nas / "net" / "MLmodel").unlink()
    assert content(services, model) == expected
    single = register(
        services, {"name": "w", "path": "azureml://datastores/nas/paths/net/deep/w.bin"}
    )
    assert (content(services, single), single.single) == ({"w.bin": b"w"}, True)
    assert not list((services.home / "tmp").iterdir())


BAD: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"nme": "m"}, ("nme",), "`name`"),
    ({"name": "a b"}, ("name",), "letters"),
    ({"path": ""}, ("path",), "name a local"),
    ({"path": "/etc"}, ("path",), "name a local"),
    ({"path": "file:///etc"}, ("path",), "upload it"),
    ({"path": "azureml://datastores/nas/paths/none"}, ("path",), ""),
    ({"path": "azureml://datastores/nsa/paths/net"}, ("path",), "`nas`"),
    ({"path": "azureml://jobs/none/outputs/best"}, (), "yard job list"),
    ({"type": "mlflow"}, ("type",), "`mlflow_model`"),
    ({"type": "mlflow_model", "path": "azureml://datastores/nas/paths/net/deep"}, ("path",),
     "log_model"),
    ({"type": "triton_model", "path": "azureml://datastores/nas/paths/net/MLmodel"}, ("path",),
     "folder"),
    ({"version": "x"}, ("version",), "whole number"),
    ({"tags": [1]}, ("tags",), ""),
]  # fmt: skip


@pytest.mark.usefixtures("nas")
def test_invalid_models_are_refused_and_leave_nothing(services: Services) -> None:
    good = {"name": "m", "path": snapshot(services, "a")}
    for change, at, hint in BAD:
        with pytest.raises((InvalidInput, NotFound)) as refused:
            register(services, {**good, **change})
        assert (refused.value.at, hint in refused.value.hint) == (at, True), change
    assert actions.list_in(services.db, WORKSPACE, archived=None) == []
    assert not (
        services.datastores.root(WORKSPACE, "workspaceblobstore") / "azureml-models"
    ).exists()


def test_latest_is_the_one_made_last(services: Services) -> None:
    path = snapshot(services, "a")
    assert register(services, {"name": "m", "path": path, "version": 7}).version == 7
    assert register(services, {"name": "m", "path": path, "version": "3"}).version == 3
    assert actions.get(services.db, WORKSPACE, "m").version == 3
    assert register(services, {"name": "m", "path": path}).version == 8
    with pytest.raises(Conflict):
        register(services, {"name": "m", "path": path, "version": 7})
    with pytest.raises(NotFound) as missing:
        actions.get(services.db, WORKSPACE, "m", "4")
    assert missing.value.hint == "it has 3, 7, 8"


def test_archived_models_are_hidden_and_found_by_name(services: Services) -> None:
    for name in ("m", "m", "other"):
        register(services, {"name": name, "path": snapshot(services, "a")})

    def listed(name: str = "", archived: bool | None = False) -> list[str]:
        models_listed = actions.list_in(services.db, WORKSPACE, name, archived)
        return [f"{model.name}:{model.version}" for model in models_listed]

    actions.archive(services.db, WORKSPACE, "m", "2", user="me")
    assert (listed(), listed("m"), listed("m", None)) == (
        ["m:1", "other:1"], ["m:1"], ["m:2", "m:1"],
    )  # fmt: skip
    assert actions.get(services.db, WORKSPACE, "m").version == 1
    assert actions.get(services.db, WORKSPACE, "m", "2").archived
    actions.archive(services.db, WORKSPACE, "m", user="me")
    assert (listed(), listed(archived=True)) == (["other:1"], ["m:2"])
    actions.archive(services.db, WORKSPACE, "m", archived=False, user="me")
    assert listed() == ["m:2", "other:1"]


def test_description_tags_and_properties_may_change(services: Services) -> None:
    register(
        services,
        {
            "name": "m",
            "path": snapshot(services, "a"),
            "tags": {"a": 1, "b": 2},
            "stage": "Staging",
        },
    )
    changes = {"description": "d", "tags": {"a": None, "c": 3}, "properties": {"p": "q"}}
    changed = actions.update(
        services.db, services.clock, WORKSPACE, "m", "latest", changes, user="me"
    )
    assert (changed.description, changed.tags) == ("d", {"b": "2", "c": "3"})
    assert changed.properties == {"stage": "Staging", "p": "q"}
    for key, value in (("path", "x"), ("tag", {}), ("tags", 1), ("description", 1)):
        with pytest.raises(InvalidSpec) as refused:
            actions.update(
                services.db, services.clock, WORKSPACE, "m", "1", {key: value}, user="me"
            )
        assert refused.value.at == (key,)


@pytest.mark.parametrize("version", [0, -1, 1.5, "a", "²", 10**9, "3" * 5000, True])
def test_a_version_is_a_whole_number_that_a_database_holds(
    services: Services, version: Any
) -> None:
    document = {"name": "m", "path": snapshot(services, "w.pt"), "version": version}
    with pytest.raises(InvalidSpec, match="is not a model version") as refused:
        register(services, document)
    assert refused.value.at == ("version",)


def test_a_model_of_a_job_has_its_environment_and_its_onnx_signature(services: Services) -> None:
    inline = {"pip_requirements": "six==1.16.0\n"}
    job = submit(services, name="maker", environment=inline)
    with artifacts.writing(services.datastores, job, "outputs/net.onnx") as writing:
        writing.write(ONNX)
    path = "azureml://jobs/maker/outputs/artifacts/paths/outputs"
    model = register(services, {"name": "net", "path": path, "type": "onnx_model"})
    assert (model.type, model.job, model.environment) == ("custom_model", "maker", inline)
    assert model.signature is not None
    assert [tensor.shape for tensor in model.signature.inputs] == [("batch", 4)]
    assert model.properties["onnx.opset"] == "20"
    plain = submit(services, name="plain", environment="python")
    with artifacts.writing(services.datastores, plain, "outputs/net.onnx") as writing:
        writing.write(ONNX)
    path = "azureml://jobs/plain/outputs/artifacts/paths/outputs"
    model = register(services, {"name": "net", "path": path})
    assert model.environment == "python"


def test_an_onnx_model_without_one_readable_file_is_refused(services: Services) -> None:
    for paths, reason in ((("a.pt",), "one ONNX file"), (("a.onnx",), "can't be read")):
        with pytest.raises(InvalidSpec, match=reason):
            register(
                services,
                {"name": "net", "path": snapshot(services, *paths), "type": "onnx_model"},
            )
    assert actions.list_in(services.db, WORKSPACE, "", None) == []


ONNX = onnx_bytes.model([("x", 1, ("batch", 4))], [("y", 1, ("batch", 2))])
