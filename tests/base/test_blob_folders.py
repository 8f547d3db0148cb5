from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard.base.blob_folders import BlobFolders
from torchyard.base.blobs import Blobs
from torchyard.base.errors import NotFound

NAMES = ("vision", "speech")


def _put(blobs: Blobs, *contents: bytes) -> str:
    rows = [
        {"path": f"f{number}", "sha256": blobs.put_bytes(content), "size": len(content)}
        for number, content in enumerate(contents)
    ]
    return blobs.put_snapshot({"files": rows}).id


def test_what_one_workspace_has_another_has_not(tmp_path: Path) -> None:
    store = BlobFolders(tmp_path)
    snapshot = _put(store.of("vision"), b"a", b"b")
    assert store.of("vision").snapshot(snapshot)
    for blobs in (store.of("speech"), store.of_builds):
        assert sorted(blobs.missing(store.of("vision").parts(snapshot))) == sorted(
            store.of("vision").parts(snapshot)
        )
    with pytest.raises(NotFound):
        store.lend("speech", snapshot)
    assert not list(store.of_builds.all())


def test_what_is_lent_is_another_name_of_the_same_file(tmp_path: Path) -> None:
    store = BlobFolders(tmp_path)
    snapshot = _put(store.of("vision"), b"a", b"b")
    for _ in range(2):
        store.lend("vision", snapshot)
    lent = dict(store.of_builds.all())
    own = dict(store.of("vision").all())
    assert {name: status.st_ino for name, status in lent.items()} == {
        name: status.st_ino for name, status in own.items()
    }
    store.forget("vision")
    assert store.of_builds.snapshot(snapshot)
    assert not [path for path in tmp_path.rglob("*.part")]


def test_a_home_is_divided_by_what_records_name(tmp_path: Path) -> None:
    store = BlobFolders(tmp_path)
    shared = _put(store.of_builds, b"a", b"b")
    single = _put(store.of_builds, b"b", b"c")
    named = [("vision", shared), ("speech", shared), ("speech", single), ("speech", "0" * 64)]
    store.divide(lambda: named)
    assert store.of("vision").snapshot(shared)
    assert store.of("speech").snapshot(shared) and store.of("speech").snapshot(single)
    with pytest.raises(NotFound):
        store.of("vision").snapshot(single)
    names = {status.st_ino for blobs in map(store.of, NAMES) for _, status in blobs.all()}
    assert names == {status.st_ino for _, status in store.of_builds.all()}


def test_a_home_is_divided_once(tmp_path: Path) -> None:
    store = BlobFolders(tmp_path)
    store.divide(lambda: [])
    snapshot = _put(store.of_builds, b"a")
    store.divide(lambda: [("vision", snapshot)])
    with pytest.raises(NotFound):
        store.of("vision").snapshot(snapshot)


@pytest.mark.parametrize("killed_after", range(5))
def test_a_division_that_was_killed_is_done_again(tmp_path: Path, killed_after: int) -> None:
    store = BlobFolders(tmp_path)
    snapshots = [_put(store.of_builds, b"%d" % number, b"all") for number in range(4)]

    def cut() -> list[tuple[str, str]]:
        raise _Killed

    def named() -> list[tuple[str, str]]:
        return [("vision", snapshot) for snapshot in snapshots]

    def until_killed():  # type: ignore[no-untyped-def]
        yield from named()[:killed_after]
        cut()

    with pytest.raises(_Killed):
        store.divide(until_killed)
    assert store.workspaces() == []
    store.divide(named)
    for snapshot in snapshots:
        assert store.of("vision").snapshot(snapshot)
    assert os.listdir(tmp_path / "workspaces") == ["vision"]
    assert not (tmp_path / "workspaces.part").exists()


class _Killed(BaseException):
    pass
