"""Models: from each kind of source, versions, archiving, what may change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs import rooms
from jobs.rooms import ME, WORKSPACE, submit
from torchyard.base.blobs import SnapshotFile
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, InvalidSpec, NotFound
from torchyard.data import datastores
from torchyard.jobs.files import artifacts, model_sources
from torchyard.jobs.services import Room
from torchyard.models import actions
from torchyard.models.types import Model


@pytest.fixture
def room(tmp_path: Path, db: Database, clock: FakeClock) -> Room:
    return rooms.make(tmp_path / "home", db, clock)


@pytest.fixture
def nas(tmp_path: Path, room: Room) -> Path:
    """The folder of a datastore `nas`."""
    folder = tmp_path / "nas"
    (folder / "net" / "deep").mkdir(parents=True)
    (folder / "net" / "MLmodel").write_text("flavors: {}\n")
    (folder / "net" / "deep" / "w.bin").write_bytes(b"w")
    document = {"name": "nas", "type": "local", "path": str(folder)}
    datastores.put(room.db, room.clock, room.datastores, WORKSPACE, document)
    return folder


def snapshot(room: Room, *paths: str) -> str:
    files = [
        SnapshotFile(path, room.blobs.put_bytes(path.encode()), len(path.encode()))
        for path in paths
    ]
    return f"snapshot:{room.blobs.put_snapshot({'files': [vars(file) for file in files]}).id}"


def register(room: Room, document: Mapping[str, Any]) -> Model:
    room.clock.advance(1)  # type: ignore[attr-defined]
    return actions.register(
        room.db, room.clock, room.datastores,
        lambda workspace, path: model_sources.find(room, workspace, path),
        WORKSPACE, document, ME.user,
    )  # fmt: skip


def content(room: Room, model: Model) -> dict[str, bytes]:
    return {
        file.path: actions.file(room.datastores, model, file.path).read_bytes()
        for file in model.files
    }


def test_a_model_of_a_jobs_output_knows_its_job(room: Room) -> None:
    job = submit(room, outputs={"best": None})
    with artifacts.writing(room, job, "outputs/model.pt") as writing:
        writing.write(b"weights")
    with artifacts.writing_output(room, job, "best", "a/w.bin") as writing:
        writing.write(b"best")
    for path, files, single in (
        (f"azureml://jobs/{job.name}/outputs/artifacts/paths/outputs/model.pt",
         {"model.pt": b"weights"}, True),
        (f"runs:/{job.name}/outputs", {"model.pt": b"weights"}, False),
        (f"azureml://jobs/{job.name}/outputs/best", {"a/w.bin": b"best"}, False),
    ):  # fmt: skip
        model = register(room, {"name": "m", "path": path})
        assert (content(room, model), model.single, model.job) == (files, single, job.name)
    assert [one.version for one in actions.of_job(room.db, WORKSPACE, job.name)] == [1, 2, 3]


def test_a_model_of_a_datastore_is_a_copy(room: Room, nas: Path) -> None:
    document = {"name": "m", "type": "MlflowModel", "path": "azureml://datastores/nas/paths/net/"}
    model = register(room, document)
    expected = {"MLmodel": b"flavors: {}\n", "deep/w.bin": b"w"}
    assert (content(room, model), model.type) == (expected, "mlflow_model")
    (nas / "net" / "MLmodel").unlink()
    assert content(room, model) == expected
    single = register(room, {"name": "w", "path": "azureml://datastores/nas/paths/net/deep/w.bin"})
    assert (content(room, single), single.single) == ({"w.bin": b"w"}, True)
    assert not list((room.home / "tmp").iterdir())


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
def test_what_is_wrong_is_named_and_leaves_nothing(room: Room) -> None:
    good = {"name": "m", "path": snapshot(room, "a")}
    for change, at, hint in BAD:
        with pytest.raises((InvalidInput, NotFound)) as refused:
            register(room, {**good, **change})
        assert (refused.value.at, hint in refused.value.hint) == (at, True), change
    assert actions.list_in(room.db, WORKSPACE, archived=None) == []
    assert not (room.datastores.root(WORKSPACE, "workspaceblobstore") / "azureml-models").exists()


def test_latest_is_the_one_made_last(room: Room) -> None:
    path = snapshot(room, "a")
    assert register(room, {"name": "m", "path": path, "version": 7}).version == 7
    assert register(room, {"name": "m", "path": path, "version": "3"}).version == 3
    assert actions.get(room.db, WORKSPACE, "m").version == 3
    assert register(room, {"name": "m", "path": path}).version == 8
    with pytest.raises(Conflict):
        register(room, {"name": "m", "path": path, "version": 7})
    with pytest.raises(NotFound) as missing:
        actions.get(room.db, WORKSPACE, "m", "4")
    assert missing.value.hint == "it has 3, 7, 8"


def test_archived_ones_are_hidden_and_found_by_name(room: Room) -> None:
    for name in ("m", "m", "other"):
        register(room, {"name": name, "path": snapshot(room, "a")})

    def listed(name: str = "", archived: bool | None = False) -> list[str]:
        found = actions.list_in(room.db, WORKSPACE, name, archived)
        return [f"{model.name}:{model.version}" for model in found]

    actions.archive(room.db, WORKSPACE, "m", "2")
    assert (listed(), listed("m"), listed("m", None)) == (
        ["m:1", "other:1"], ["m:1"], ["m:2", "m:1"],
    )  # fmt: skip
    assert actions.get(room.db, WORKSPACE, "m").version == 1
    assert actions.get(room.db, WORKSPACE, "m", "2").archived
    actions.archive(room.db, WORKSPACE, "m")
    assert (listed(), listed(archived=True)) == (["other:1"], ["m:2"])
    actions.archive(room.db, WORKSPACE, "m", archived=False)
    assert listed() == ["m:2", "other:1"]


def test_description_tags_and_properties_may_change(room: Room) -> None:
    register(
        room,
        {"name": "m", "path": snapshot(room, "a"), "tags": {"a": 1, "b": 2}, "stage": "Staging"},
    )
    changes = {"description": "d", "tags": {"a": None, "c": 3}, "properties": {"p": "q"}}
    changed = actions.update(room.db, room.clock, WORKSPACE, "m", "latest", changes)
    assert (changed.description, changed.tags) == ("d", {"b": "2", "c": "3"})
    assert changed.properties == {"stage": "Staging", "p": "q"}
    for key, value in (("path", "x"), ("tag", {}), ("tags", 1), ("description", 1)):
        with pytest.raises(InvalidSpec) as refused:
            actions.update(room.db, room.clock, WORKSPACE, "m", "1", {key: value})
        assert refused.value.at == (key,)
