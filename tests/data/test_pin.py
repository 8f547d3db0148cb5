"""Pinning paths of inputs when a job is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from data.conftest import WORKSPACE
from torchyard.base.blobs import Blobs
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError
from torchyard.data import actions, assets, url_maps
from torchyard.data.datastores import Datastores
from torchyard.data.types import Pinned

_LONG = "azureml://subscriptions/s/resourcegroups/g/workspaces/{}/datastores/nas/paths/sets/"


@pytest.fixture(autouse=True)
def _made(nas: Path, db: Database, clock: FakeClock, stores: Datastores, tmp_path: Path) -> None:
    def resolve(workspace: str, type: str, path: str) -> str:
        return actions.pin(db, stores, workspace, type, path, "ro_mount").path

    for type, path in (
        ("uri_folder", "azureml://datastores/nas/paths/sets"),
        ("uri_folder", "azureml://datastores/nas/paths/sets/deep"),
        ("uri_file", "azureml://datastores/nas/paths/sets/a.csv"),
    ):
        name = "table" if type == "uri_file" else "sets"
        request = assets.DataRequest(name=name, path=path, type=type)
        assets.create(db, clock, stores, Blobs(tmp_path), resolve, WORKSPACE, request, "me")
    for prefix, target in (
        ("https://host/data", "azureml://datastores/nas/paths/"),
        ("https://host/data/sets/deep", "azureml://datastores/nas/paths/sets/deep"),
        ("wasbs://c@acc.blob.core.windows.net/", "azureml://datastores/nas/paths/sets"),
        (
            "https://acc.blob.core.windows.net/b/my%20files",
            "azureml://datastores/nas/paths/files",
        ),
    ):
        url_maps.put(db, clock, stores, WORKSPACE, prefix, target)


@pytest.mark.parametrize(
    ("type", "path", "pinned"),
    [
        (
            "uri_folder",
            "azureml://datastores/nas/paths/sets",
            "azureml://datastores/nas/paths/sets",
        ),
        ("uri_folder", _LONG.format("default"), "azureml://datastores/nas/paths/sets/"),
        ("uri_file", "azureml://datastores/nas/paths/sets/a.csv", None),
        ("uri_folder", "azureml:sets", "azureml:sets:2"),
        ("uri_folder", "azureml:sets@latest", "azureml:sets:2"),
        ("uri_folder", "azureml:sets:1", "azureml:sets:1"),
        ("uri_file", "azureml:table:1", "azureml:table:1"),
        ("uri_folder", "azureml://registries/r/data/sets/versions/1", "azureml:sets:1"),
        (
            "uri_folder",
            "azureml:/subscriptions/s/resourceGroups/g/providers/"
            "Microsoft.MachineLearningServices/workspaces/default/data/sets/versions/1",
            "azureml:sets:1",
        ),
        ("uri_file", "https://elsewhere/x.csv?sig=1", "https://elsewhere/x.csv?sig=1"),
        ("custom_model", "azureml://datastores/nas/paths/sets/a.csv", None),
    ],
)
def test_pinning(db: Database, stores: Datastores, type: str, path: str, pinned: str) -> None:
    result = actions.pin(db, stores, WORKSPACE, type, path, "ro_mount")
    assert result == Pinned(pinned or path)
    again = actions.pin(db, stores, WORKSPACE, type, result.path, "ro_mount")
    assert again.path == result.path


@pytest.mark.parametrize(
    ("path", "mapped"),
    [
        (
            "https://host/data/my%20sets/a%2Bb.csv?sig=x",
            "azureml://datastores/nas/paths/my sets/a+b.csv",
        ),
        ("https://host/data/sets/", "azureml://datastores/nas/paths/sets/"),
        ("https://host/data/sets/deep/", "azureml://datastores/nas/paths/sets/deep/"),
        ("https://host/data", "azureml://datastores/nas/paths"),
        ("wasbs://c@acc.blob.core.windows.net/deep", "azureml://datastores/nas/paths/sets/deep"),
        # SDK v1 makes `wasbs` of an `https` URL, and leaves its path quoted.
        (
            "https://acc.blob.core.windows.net/c/my%20set",
            "azureml://datastores/nas/paths/sets/my set",
        ),
        (
            "wasbs://b@acc.blob.core.windows.net/my%20files/c%20d.csv",
            "azureml://datastores/nas/paths/files/c d.csv",
        ),
        (
            "abfss://b@acc.dfs.core.windows.net/my files/c d.csv",
            "azureml://datastores/nas/paths/files/c d.csv",
        ),
        ("https://acc.dfs.core.windows.net/b/my files", "azureml://datastores/nas/paths/files"),
        ("wasbs://other@acc.blob.core.windows.net/x", ""),
        ("https://host/database/x", ""),
        ("https://other/data/x", ""),
    ],
)
def test_url_maps(db: Database, path: str, mapped: str) -> None:
    result = url_maps.apply(url_maps.list_in(db, WORKSPACE), path)
    assert result.path == (mapped or path)
    assert bool(result.notices) is bool(mapped)


def test_a_mapped_url_is_checked_and_has_a_notice(db: Database, stores: Datastores) -> None:
    result = actions.pin(
        db, stores, WORKSPACE, "uri_file", "https://host/data/sets/a.csv?x=1", "download"
    )
    assert result.path == "azureml://datastores/nas/paths/sets/a.csv"
    assert "https://host/data/sets/a.csv" in result.notices[0]


def test_spaces_in_the_target_of_a_map(
    db: Database, stores: Datastores, clock: FakeClock, nas: Path
) -> None:
    (nas / "my sets").mkdir()
    (nas / "my sets" / "a b.csv").touch()
    for target in (
        "azureml://datastores/nas/paths/my%20sets",
        _LONG.format("default")[:-5] + "my%20sets",
    ):
        made = url_maps.put(db, clock, stores, WORKSPACE, "https://host/spaces", target)
        assert made.target.endswith("/paths/my sets")
        url = "https://host/spaces/a%20b.csv"
        result = actions.pin(db, stores, WORKSPACE, "uri_file", url, "download")
        assert result.path == "azureml://datastores/nas/paths/my sets/a b.csv"


def test_a_url_of_a_data_asset_is_mapped(
    db: Database, stores: Datastores, clock: FakeClock, tmp_path: Path
) -> None:
    url = "https://later.example/sets/a.csv"
    request = assets.DataRequest(name="later", path=url, type="uri_file")
    as_it_is = lambda workspace, type, path: path  # noqa: E731
    assets.create(db, clock, stores, Blobs(tmp_path), as_it_is, WORKSPACE, request, "me")
    url_maps.put(
        db, clock, stores, WORKSPACE, "https://later.example", "azureml://datastores/nas/paths"
    )
    result = actions.pin(db, stores, WORKSPACE, "uri_file", "azureml:later:1", "download")
    assert result.path == "azureml:later:1" and url in result.notices[0]
    location = actions.locate(db, stores, WORKSPACE, "azureml:later:1")
    assert (location.store, location.path) == ("nas", "sets/a.csv")


@pytest.mark.parametrize(
    ("type", "path", "error", "message"),
    [
        ("uri_folder", "azureml://datastores/nass/paths/x", NotFound, "did you mean `nas`"),
        ("uri_folder", "azureml://datastores/nas/paths/none", NotFound, "nothing at `none`"),
        ("uri_folder", "azureml://datastores/nas/paths/../x", InvalidInput, "leads out"),
        ("uri_file", "azureml://datastores/nas/paths/sets", InvalidInput, "type: uri_folder"),
        ("uri_folder", "azureml://datastores/nas/paths/sets/a.csv", InvalidInput, "uri_file"),
        ("uri_folder", _LONG.format("other"), NotFound, "workspace `other`"),
        ("uri_folder", "azureml:set", NotFound, "did you mean `sets`"),
        ("uri_folder", "azureml:sets:9", NotFound, "it has 1, 2"),
        ("uri_folder", "azureml:sets@best", NotFound, "label"),
        ("uri_folder", "azureml:table:1", InvalidInput, "type: uri_file"),
        ("uri_file", "file:///etc/passwd", InvalidInput, "own disk"),
        ("uri_file", "memory://x", InvalidInput, "own disk"),
        ("uri_file", "zip::https://x/y.zip", InvalidInput, "not a path"),
        ("uri_file", "gopher://x/y", InvalidInput, "unsupported protocol"),
        ("uri_file", "just/a/path", InvalidInput, "not a path"),
        ("uri_file", "sftp://host:ssh/x", InvalidInput, "not a URL"),
        ("uri_file", "https://[host/x", InvalidInput, "not a URL"),
        ("uri_file", "sftp:///x", InvalidInput, "names no host"),
    ],
)
def test_refusals(
    db: Database,
    stores: Datastores,
    type: str,
    path: str,
    error: type[TorchyardError],
    message: str,
) -> None:
    with pytest.raises(error) as raised:
        actions.pin(db, stores, WORKSPACE, type, path, "ro_mount")
    assert message in f"{raised.value.message} {raised.value.hint}"


def test_another_workspace_sees_nothing_of_it(db: Database, stores: Datastores) -> None:
    for path in ("azureml:sets:1", "azureml://datastores/nas/paths/sets"):
        with pytest.raises(NotFound):
            actions.pin(db, stores, "other", "uri_folder", path, "ro_mount")


def test_a_missing_package_names_the_extra() -> None:
    from torchyard.data import connections

    try:
        import gcsfs  # noqa: F401
    except ImportError:
        with pytest.raises(InvalidInput, match="needs a package") as raised:
            connections.open_file_system("gs", {})
        assert "torchyard[gs]" in raised.value.hint
