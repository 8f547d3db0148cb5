"""S3, Azure Blob and SFTP behind a datastore: real protocols, servers started here."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from contracts.files_contract import CONTENT, FilesContract, put
from data import object_stores
from data.conftest import WORKSPACE
from torchyard.base.blobs import Blobs
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.base.errors import NotFound, TorchyardError, Unreachable
from torchyard.data import actions, assets, datastores
from torchyard.data.asset_routes import datastore_to_json
from torchyard.data.datastores import Datastores
from torchyard.data.fetching import Fetcher
from torchyard.data.types import Files

pytestmark = [
    pytest.mark.object_store,
    # Warnings of the stores' libraries.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module", params=["s3", "azure_blob", "sftp"])
def document(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("azurite")
    kinds: dict[str, Callable[[], AbstractContextManager[dict[str, Any]]]] = {
        "s3": object_stores.s3,
        "azure_blob": lambda: object_stores.azure_blob(folder),
        "sftp": lambda: object_stores.sftp(folder),
    }
    with kinds[request.param]() as made:
        yield made


@pytest.fixture
def lake(
    document: dict[str, Any], db: Database, clock: FakeClock, stores: Datastores
) -> Iterator[Files]:
    made = datastores.open_files(
        db, stores, datastores.put(db, clock, stores, WORKSPACE, document, "me")
    )
    yield made
    for entry in list(made.walk("")):
        made.delete(entry.path)


class TestObjectStore(FilesContract):
    @pytest.fixture
    def store(self, lake: Files) -> Files:
        return lake


def test_steps_of_many_files_run_on_any_thread(lake: Files) -> None:
    """As in the server, where each step of a request runs in any free thread."""
    contents = {f"many/{number}.bin": f"{number} ".encode() * 4000 for number in range(24)}

    async def there_and_back(path: str, content: bytes) -> bytes:
        opened = lake.writing(path)
        writing = await asyncio.to_thread(opened.__enter__)
        for start in range(0, len(content), 5000):
            await asyncio.to_thread(writing.write, content[start : start + 5000])
        await asyncio.to_thread(opened.__exit__, None, None, None)
        chunks = await asyncio.to_thread(lake.read, path)
        content_read = b""
        while chunk := await asyncio.to_thread(next, chunks, b""):
            content_read += chunk
        return content_read

    async def all_at_once() -> list[bytes]:
        tasks = (there_and_back(path, content) for path, content in contents.items())
        return await asyncio.wait_for(asyncio.gather(*tasks), 100)

    assert asyncio.run(all_at_once()) == list(contents.values())
    assert [entry.path for entry in lake.walk("many")] == sorted(
        path.removeprefix("many/") for path in contents
    )


def test_credentials_stay_on_the_server(
    document: dict[str, Any], db: Database, stores: Datastores, lake: Files
) -> None:
    shown = str(datastore_to_json(datastores.get(db, stores, WORKSPACE, "lake")))
    for secret in document["credentials"].values():
        assert f"'{secret}'" not in shown and (len(secret) < 9 or secret not in shown)


def test_data_is_fetched_once_and_the_same(
    db: Database, stores: Datastores, clock: FakeClock, tmp_path: Path, lake: Files
) -> None:
    put(lake, CONTENT, "sets/")
    fetcher = Fetcher(tmp_path / "home/cache/data", db, stores)
    uri = "azureml://datastores/lake/paths/sets/"
    assert actions.pin(db, stores, WORKSPACE, "uri_folder", uri, "ro_mount").path == uri
    first = fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now()).path
    assert {path: (first / path).read_bytes() for path in CONTENT} == CONTENT
    before = (first.stat().st_ino, (first / "a.txt").stat().st_ino)
    clock.advance(60)
    second = fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now()).path
    assert second == first
    assert (second.stat().st_ino, (second / "a.txt").stat().st_ino) == before
    put(lake, {"a.txt": b"changed"}, "sets/")
    third = fetcher.fetch(WORKSPACE, "uri_folder", uri, clock.now()).path
    assert (third / "a.txt").read_bytes() == b"changed"
    fetched = fetcher.fetch(WORKSPACE, "uri_file", f"{uri}deep/b.bin", clock.now()).path
    assert (fetched.name, fetched.read_bytes()) == ("b.bin", CONTENT["deep/b.bin"])


def test_missing_data_is_refused_at_once(db: Database, stores: Datastores, lake: Files) -> None:
    with pytest.raises(NotFound, match="nothing at `none`"):
        actions.pin(
            db, stores, WORKSPACE, "uri_folder", "azureml://datastores/lake/paths/none", "download"
        )


def test_uploaded_data_keeps_its_checksums(
    db: Database, stores: Datastores, clock: FakeClock, tmp_path: Path, lake: Files
) -> None:
    blobs = Blobs(tmp_path / "blobs")
    sha256 = blobs.put_bytes(b"precious")
    snapshot = blobs.put_snapshot({"files": [{"path": "x.bin", "sha256": sha256, "size": 8}]})
    asset_request = assets.DataRequest(
        "d", f"snapshot:{snapshot.id}", "uri_folder", datastore="lake"
    )
    asset = assets.create(
        db, clock, stores, blobs, lambda *_: "", WORKSPACE, asset_request, "me"
    )  # fmt: skip
    assert asset.uri.startswith("azureml://datastores/lake/paths/LocalUpload/")
    (file,) = actions.files_of(db, stores, asset)
    assert (file.path, file.size_bytes, file.sha256) == ("x.bin", 8, sha256)
    fetcher = Fetcher(tmp_path / "home/cache/data", db, stores)
    folder_found = fetcher.fetch(WORKSPACE, "uri_folder", "azureml:d:1", clock.now()).path
    assert (folder_found / "x.bin").read_bytes() == b"precious"


def test_bytes_that_changed_on_the_way_are_refused(
    db: Database, stores: Datastores, clock: FakeClock, tmp_path: Path, lake: Files
) -> None:
    with lake.writing("x.bin") as writing:
        writing.write(b"precious")
    wrong = type(writing.stored)("0" * 64, 8)
    actions.record_checksum(db, WORKSPACE, "lake", lake, "x.bin", wrong, "job", clock.now())
    fetcher = Fetcher(tmp_path / "home/cache/data", db, stores)
    uri = "azureml://datastores/lake/paths/x.bin"
    with pytest.raises(Unreachable, match="arrived damaged"):
        fetcher.fetch(WORKSPACE, "uri_file", uri, clock.now())
    assert fetcher.ready(WORKSPACE, "uri_file", uri, clock.now()) is None


def test_wrong_credentials_are_an_error(
    document: dict[str, Any], db: Database, clock: FakeClock, stores: Datastores, lake: Files
) -> None:
    wrong = {
        "azure_blob": {"account_key": base64.b64encode(b"no").decode()},
        "sftp": {"password": "no"},
    }
    if document["type"] not in wrong:
        pytest.skip("moto takes any key")
    document = {**document, "credentials": wrong[document["type"]]}
    opened = datastores.open_files(
        db, stores, datastores.put(db, clock, stores, WORKSPACE, document, "me")
    )
    with pytest.raises(TorchyardError, match="datastore `lake`"):
        list(opened.walk(""))
