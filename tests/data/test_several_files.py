"""One folder of several places, as SDK v1's datasets of several paths name them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from data.conftest import WORKSPACE, Web
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import actions, saved_datasets, several_files, url_maps
from torchyard.data.datastores import Datastores
from torchyard.data.fetching import Fetcher
from torchyard.data.saved_datasets import SavedDataset


def saved(db: Database, *paths: str) -> str:
    """The path of an input that names a dataset of these."""
    kinds = [{"pattern" if "*" in path else "file": path} for path in paths]
    table = json.dumps({"type": "mltable", "paths": kinds})
    dataflow = json.dumps({"blocks": [], "meta": {"RsDataflow": table}})
    id = saved_datasets.id_of(WORKSPACE, "file", dataflow)
    moment = datetime(2026, 11, 22, tzinfo=timezone.utc)
    with db.write() as connection:
        saved_datasets.save(connection, SavedDataset(WORKSPACE, id, "file", dataflow, moment))
    return f"azureml:{id}"


def test_urls_and_files_of_datastores_become_one_folder(
    db: Database, stores: Datastores, nas: Path, web: Web, clock: FakeClock, tmp_path: Path
) -> None:
    web.files = {"/mnist/train.gz": b"train", "/mnist/test.gz": b"test"}
    urls = [f"{web.url}/mnist/train.gz", f"{web.url}/mnist/test.gz"]
    path = saved(db, *urls, "azureml://datastores/nas/paths/sets")
    assert actions.pin(db, stores, WORKSPACE, "uri_folder", path, "ro_mount").path == path
    folder = (
        Fetcher(tmp_path / "cache", db, stores)
        .fetch(WORKSPACE, "uri_folder", path, clock.now())
        .path
    )
    files = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
    assert files == {
        "127.0.0.1/mnist/train.gz": b"train",
        "127.0.0.1/mnist/test.gz": b"test",
        "nas/sets/a.csv": b"a\n",
        "nas/sets/deep/b.csv": b"b\n",
    }


def test_urls_that_the_workspace_maps_are_read_at_home(
    db: Database, stores: Datastores, nas: Path, clock: FakeClock, tmp_path: Path
) -> None:
    (nas / "my sets").mkdir()
    (nas / "my sets" / "c d.csv").write_text("c")
    target = "azureml://datastores/nas/paths/my%20sets"
    url_maps.put(db, clock, stores, WORKSPACE, "https://none.example/my%20data", target)
    url_maps.put(
        db,
        clock,
        stores,
        WORKSPACE,
        "https://none.example/sets",
        "azureml://datastores/nas/paths/sets",
    )
    urls = [
        "https://none.example/sets/a.csv",
        "https://none.example/my%20data/c%20d.csv",
        "https://none.example/sets/**/b.*",
    ]
    path = saved(db, *urls)
    pinned = actions.pin(db, stores, WORKSPACE, "uri_folder", path, "ro_mount")
    assert pinned.path == path
    assert [notice.split("`")[3] for notice in pinned.notices] == [
        "azureml://datastores/nas/paths/sets/a.csv",
        "azureml://datastores/nas/paths/my sets/c d.csv",
        "azureml://datastores/nas/paths/sets",
    ]
    folder = (
        Fetcher(tmp_path / "cache", db, stores)
        .fetch(WORKSPACE, "uri_folder", path, clock.now())
        .path
    )
    files = {
        str(file.relative_to(folder)): file.read_text().strip()
        for file in folder.rglob("*")
        if file.is_file()
    }
    # The folders are those of the URLs, as on Azure.
    assert files == {
        "none.example/sets/a.csv": "a",
        "none.example/my data/c d.csv": "c",
        "none.example/sets/deep/b.csv": "b",
    }


def test_a_file_that_is_not_there_is_named(
    db: Database, stores: Datastores, nas: Path, web: Web, clock: FakeClock, tmp_path: Path
) -> None:
    web.files = {"/here.gz": b"here"}
    prefix, target = "https://none.example/sets", "azureml://datastores/nas/paths/sets"
    url_maps.put(db, clock, stores, WORKSPACE, prefix, target)
    for missing in (f"{prefix}/none.csv", f"{target}/none.csv", f"{prefix}/none", f"{web.url}/n"):
        path = saved(db, f"{prefix}/a.csv", f"{web.url}/here.gz", missing)
        with pytest.raises(NotFound, match=r"none|/n`"):
            fetcher = Fetcher(tmp_path / "cache", db, stores)
            fetcher.fetch(WORKSPACE, "uri_folder", path, clock.now())


def test_a_dataset_of_many_mapped_urls_has_few_notices(
    db: Database, stores: Datastores, nas: Path, clock: FakeClock
) -> None:
    prefix = "https://none.example/sets"
    url_maps.put(db, clock, stores, WORKSPACE, prefix, "azureml://datastores/nas/paths/sets")
    path = saved(db, *(f"{prefix}/{number}" for number in range(90)))
    notices = actions.pin(db, stores, WORKSPACE, "uri_folder", path, "ro_mount").notices
    assert [len(notices), notices[-1]] == [4, "this workspace maps 87 more URLs of it"]


def test_a_pattern_names_some_files_of_a_folder(
    db: Database, stores: Datastores, nas: Path, clock: FakeClock, tmp_path: Path
) -> None:
    path = saved(db, "azureml://datastores/nas/paths/sets/**/b.*")
    assert actions.pin(db, stores, WORKSPACE, "uri_folder", path, "ro_mount").path == path
    folder = (
        Fetcher(tmp_path / "cache", db, stores)
        .fetch(WORKSPACE, "uri_folder", path, clock.now())
        .path
    )
    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["b.csv"]
    location = actions.locate(db, stores, WORKSPACE, path)
    assert location.files.entry("nas/sets/a.csv") is None
    assert location.files.entry("nas/sets/deep/b.csv") is not None


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("*.gz", ["a.gz", ".gz"], ["a.csv", "b/a.gz"]),
        ("**/*.gz", ["a.gz", "b/a.gz", "b/c/a.gz"], ["a.csv", "a.gz/b"]),
        ("a/**", ["a/b", "a/b/c"], ["b/a"]),
        ("?/x", ["a/x"], ["ab/x", "x"]),
        ("**/a/**/b", ["a/b", "x/a/y/b"], ["a", "b", "b/a"]),
    ],
)
def test_patterns(pattern: str, fitting: list[str], others: list[str]) -> None:
    assert all(several_files.matches(pattern, path) for path in fitting)
    assert not any(several_files.matches(pattern, path) for path in others)


def test_a_slow_pattern_ends() -> None:
    assert not several_files.matches("**/" * 90 + "b", "a/" * 2000 + "a")
    assert not several_files.matches("*a" * 200 + "b", "a" * 2000)


def test_a_path_that_is_not_there_is_named(db: Database, stores: Datastores, nas: Path) -> None:
    path = saved(db, "azureml://datastores/nas/paths/sets/a.csv", "https://host/b.csv")
    location = actions.locate(db, stores, WORKSPACE, path)
    with pytest.raises(NotFound, match=r"c\.csv"):
        location.files.read("nas/sets/c.csv")
    with pytest.raises(InvalidInput, match="can't be changed"):
        location.files.delete("nas/sets/a.csv")


def test_a_dataset_of_too_many_paths_is_refused(db: Database, stores: Datastores) -> None:
    path = saved(db, *(f"https://host/{number}" for number in range(101)))
    with pytest.raises(InvalidInput, match="101 paths"):
        actions.pin(db, stores, WORKSPACE, "uri_folder", path, "ro_mount")
