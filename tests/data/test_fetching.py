"""The node's cache of data, which copies it once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from data.conftest import WORKSPACE, Web
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError, Unreachable
from torchyard.data.datastores import Datastores
from torchyard.data.fetching import FetchCanceled, Fetcher
from torchyard.shared import access_lists


@pytest.fixture
def fetcher(tmp_path: Path, db: Database, stores: Datastores) -> Fetcher:
    return Fetcher(tmp_path / "home/cache/data", db, stores)


def _left(tmp_path: Path) -> list[str]:
    """Complete and incomplete folders of the cache."""
    folder = tmp_path / "home" / "cache" / "data"
    return [name for name in os.listdir(folder) if name not in ("locks", "notes")]


def _ready(fetcher: Fetcher, type: str, uri: str, clock: FakeClock) -> Path:
    fetched = fetcher.ready(WORKSPACE, type, uri, clock.now())
    assert fetched is not None
    return fetched.path


def test_a_file_of_the_web_is_copied_once(fetcher: Fetcher, web: Web, clock: FakeClock) -> None:
    web.files["/x/iris.csv"] = b"1,2\n"
    web.marks["/x/iris.csv"] = '"v1"'
    url = f"{web.url}/x/iris.csv"
    assert fetcher.ready(WORKSPACE, "uri_file", url, clock.now()) is None
    first = fetcher.fetch(WORKSPACE, "uri_file", url, clock.now()).path
    assert (first.name, first.read_bytes()) == ("iris.csv", b"1,2\n")
    assert first.stat().st_mode & 0o222 == 0
    assert _ready(fetcher, "uri_file", url, clock) == first
    clock.advance(1)
    # A later job checks the source again, and copies nothing.
    assert fetcher.ready(WORKSPACE, "uri_file", url, clock.now()) is None
    assert fetcher.fetch(WORKSPACE, "uri_file", url, clock.now()).path == first
    assert web.asked.count("GET /x/iris.csv") == 1
    web.files["/x/iris.csv"], web.marks["/x/iris.csv"] = b"3,4\n", '"v2"'
    changed = fetcher.fetch(WORKSPACE, "uri_file", url, clock.now()).path
    assert (changed.read_bytes(), first.read_bytes()) == (b"3,4\n", b"1,2\n")


def test_a_source_without_marks_is_read_again(
    fetcher: Fetcher, web: Web, clock: FakeClock, tmp_path: Path
) -> None:
    web.files["/x"] = b"old"
    web.heads = False
    first = fetcher.fetch(WORKSPACE, "uri_file", f"{web.url}/x", clock.now()).path
    same = fetcher.fetch(WORKSPACE, "uri_file", f"{web.url}/x", clock.now()).path
    assert (same, len(_left(tmp_path))) == (first, 1)
    inode = first.stat().st_ino
    web.files["/x"] = b"new"
    again = fetcher.fetch(WORKSPACE, "uri_file", f"{web.url}/x", clock.now()).path
    assert again.read_bytes() == b"new"
    assert _ready(fetcher, "uri_file", f"{web.url}/x", clock) == again
    # A job may be reading it.
    assert (first.read_bytes(), first.stat().st_ino) == (b"old", inode)


@pytest.mark.parametrize(
    ("type", "path", "error", "message"),
    [
        ("uri_file", "/none", NotFound, "answers 404"),
        ("uri_folder", "/x", InvalidInput, "lists no files"),
    ],
)
def test_what_cannot_be_fetched(
    fetcher: Fetcher,
    web: Web,
    clock: FakeClock,
    type: str,
    path: str,
    error: type[TorchyardError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        fetcher.fetch(WORKSPACE, type, web.url + path, clock.now())


def test_a_source_that_does_not_answer(fetcher: Fetcher, clock: FakeClock) -> None:
    with pytest.raises(Unreachable, match="can't be read"):
        fetcher.fetch(WORKSPACE, "uri_file", "http://127.0.0.1:1/x", clock.now())


def test_a_canceled_copy_leaves_nothing(
    fetcher: Fetcher, web: Web, clock: FakeClock, tmp_path: Path
) -> None:
    web.files["/x"] = b"1"
    with pytest.raises(FetchCanceled):
        fetcher.fetch(WORKSPACE, "uri_file", f"{web.url}/x", clock.now(), lambda: True)
    assert _left(tmp_path) == []


def test_local_files_are_used_in_place(
    fetcher: Fetcher, nas: Path, clock: FakeClock, tmp_path: Path
) -> None:
    uri = "azureml://datastores/nas/paths/sets"
    assert _ready(fetcher, "uri_folder", uri, clock) == nas / "sets"
    assert fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now()).path == nas / "sets"
    assert not (tmp_path / "home" / "cache").exists()
    with pytest.raises(NotFound):
        fetcher.fetch(WORKSPACE, "uri_folder", f"{uri}/none", clock.now())


def test_jobs_of_other_users_get_the_servers_files_as_links(
    tmp_path: Path, db: Database, stores: Datastores, clock: FakeClock
) -> None:
    node = tmp_path / "node"
    fetcher = Fetcher(node, db, stores, is_separate=True)
    with stores.writing(WORKSPACE, "workspaceblobstore", "sets/deep/a.csv") as writing:
        writing.write(b"a")
    uri = "azureml://datastores/workspaceblobstore/paths/sets/"
    assert fetcher.ready(WORKSPACE, "uri_folder", uri, clock.now()) is None
    folder = fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now()).path
    assert _ready(fetcher, "uri_folder", uri, clock) == folder
    assert folder.is_relative_to(node) and folder.stat().st_mode & 0o077 == 0
    stored = stores.root(WORKSPACE, "workspaceblobstore") / "sets" / "deep" / "a.csv"
    assert (folder / "deep" / "a.csv").samefile(stored)
    # Who replaces the file changes nothing for jobs that read it.
    with stores.writing(WORKSPACE, "workspaceblobstore", "sets/deep/a.csv") as writing:
        writing.write(b"b")
    assert (folder / "deep" / "a.csv").read_bytes() == b"a"
    again = fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now()).path
    assert again != folder and (again / "deep" / "a.csv").read_bytes() == b"b"


def test_a_copy_is_read_by_those_who_were_let(
    tmp_path: Path, db: Database, stores: Datastores, nas: Path, web: Web, clock: FakeClock
) -> None:
    web.files["/x"] = b"x"
    fetcher = Fetcher(tmp_path / "node", db, stores, is_separate=True)
    file = fetcher.fetch(WORKSPACE, "uri_file", f"{web.url}/x", clock.now()).path
    for user in (61234, 61235, 61234):
        if not fetcher.let_read(file, user):
            pytest.skip("the file system has no access lists")
    assert access_lists.readers(file.parent) == {61234, 61235}
    # A folder of the owner's elsewhere keeps the rights that it has.
    uri = "azureml://datastores/nas/paths/sets/"
    local = fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now()).path
    assert (local, fetcher.let_read(local, 61234)) == (nas / "sets", False)
    assert access_lists.readers(local) == set()
    plain = Fetcher(tmp_path / "home/cache/data", db, stores)
    file = plain.fetch(WORKSPACE, "uri_file", f"{web.url}/x", clock.now()).path
    assert not plain.let_read(file, 61234) and file.parent.stat().st_mode & 0o777 == 0o755
