"""Snapshots: the index that saves hashing is never believed wrongly."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from torchyard.base import blobs
from torchyard.base.errors import Conflict, InvalidInput, LimitExceeded
from torchyard.client.snapshots import index, snapshot
from torchyard.client.snapshots.snapshot import Content, Hashing, Snapshot
from torchyard.client.snapshots.upload import upload
from torchyard.client.snapshots.walk import Found, Limits

OLD_NS = 10_000_000_000
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    (made / "pkg").mkdir(parents=True)
    (made / "train.py").write_text("one")
    (made / "pkg/data").write_text("two")
    return made


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were really read."""
    read: list[str] = []
    original = Hashing.hash

    def counted(hashing: Hashing, place: str, file: Found) -> str:
        read.append(file[0])
        return original(hashing, place, file)

    monkeypatch.setattr(Hashing, "hash", counted)
    return read


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files be old enough to be believed."""
    monkeypatch.setattr(time, "time_ns", lambda: real_time_ns() + OLD_NS)


real_time_ns = time.time_ns


def take(folder: Path, tmp_path: Path) -> Snapshot:
    return snapshot.take(folder, snapshot.find(folder, Limits()), tmp_path / "index")


def hashes(taken: Snapshot) -> dict[str, str]:
    return {content.path: content.sha256 for content in taken.contents()}


def test_manifest_is_the_servers(folder: Path, tmp_path: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o755)
    (folder / "ünï").write_text("x")
    taken = take(folder, tmp_path)
    on_server = blobs.Blobs(tmp_path / "blobs")
    for content in taken.contents():
        on_server.put(content.sha256, [Path(content.place).read_bytes()])
    accepted = on_server.put_snapshot(json.loads(taken.manifest))
    assert [(f.path, f.mode) for f in accepted.files] == [
        ("pkg/data", "0644"), ("run.sh", "0755"), ("train.py", "0644"), ("ünï", "0644"),
    ]  # fmt: skip
    assert hashlib.sha256(taken.manifest).hexdigest() == accepted.id


def test_unchanged_files_are_not_read_again(
    folder: Path, tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch)
    first = take(folder, tmp_path)
    assert sorted(hashed) == ["pkg/data", "train.py"]
    hashed.clear()
    assert take(folder, tmp_path) == first and hashed == []
    (folder / "train.py").write_text("ONE")
    (folder / "pkg/data").unlink()
    (folder / "new").write_text("two")
    changed = hashes(take(folder, tmp_path))
    assert sorted(hashed) == ["new", "train.py"]
    assert changed == {
        "new": hashlib.sha256(b"two").hexdigest(),
        "train.py": hashlib.sha256(b"ONE").hexdigest(),
    }


def test_a_file_written_just_now_is_read_again(
    folder: Path, tmp_path: Path, hashed: list[str]
) -> None:
    """Same size, same times, same inode: only its youth tells that it may have changed."""
    file = folder / "train.py"
    take(folder, tmp_path)
    hashed.clear()
    file.write_text("ONE")
    assert hashes(take(folder, tmp_path))["train.py"] == hashlib.sha256(b"ONE").hexdigest()
    assert index.load(index.file_for(tmp_path / "index", folder)) == index.Index()


@pytest.mark.parametrize("keep", ["mtime", "size", "name"])
def test_tricky_changes_are_seen(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str
) -> None:
    later(monkeypatch)
    file = folder / "train.py"
    before = file.stat()
    take(folder, tmp_path)
    if keep == "mtime":
        file.write_text("ONE")
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif keep == "size":
        file.write_text("ONE")
    else:
        (folder / "other").write_text("ONE")
        os.utime(folder / "other", ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(folder / "other", file)
    assert hashes(take(folder, tmp_path))["train.py"] == hashlib.sha256(b"ONE").hexdigest()


@pytest.mark.parametrize("cut", [0, 1, 10, 50, -1])
def test_a_torn_index_is_only_slow(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed: list[str], cut: int
) -> None:
    later(monkeypatch)
    first = take(folder, tmp_path)
    hashed.clear()
    index_file = index.file_for(tmp_path / "index", folder)
    index_file.write_bytes(index_file.read_bytes()[:cut])
    assert take(folder, tmp_path) == first
    assert sorted(hashed) == ["pkg/data", "train.py"]
    assert take(folder, tmp_path) == first and len(hashed) == 2


def test_links_inside_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to("train.py")
    (folder / "again").symlink_to("pkg")
    assert list(hashes(take(folder, tmp_path))) == ["again/data", "link", "pkg/data", "train.py"]


def test_a_home_in_the_folder_is_left_out(folder: Path, tmp_path: Path) -> None:
    before = hashes(take(folder, tmp_path))
    home = folder / "state"
    home.mkdir()
    for name in ("served.lock", "server.id", "token"):
        (home / name).write_text("yard_p_secret")
    assert hashes(take(folder, tmp_path)) == before
    # A folder that only shares a name with one is taken as it is.
    (home / "served.lock").unlink()
    assert "state/token" in hashes(take(folder, tmp_path))


@pytest.mark.parametrize("limits", [Limits(files=1), Limits(size_bytes=5)])
def test_limits_name_the_largest(folder: Path, limits: Limits) -> None:
    with pytest.raises(LimitExceeded, match="total snapshot size exceeds the limit") as caught:
        snapshot.find(folder, limits)
    assert "train.py" in caught.value.message and "pkg/data" in caught.value.message


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder of an ordinary user, as whom the test goes on: root may read everything."""
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() != 0:
            yield Path(folder)
            return
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


@pytest.mark.slow
def test_folders_without_end_are_refused(folder: Path) -> None:
    here = os.getcwd()
    os.chdir(folder)
    for _ in range(1100):
        os.mkdir("d")
        os.chdir("d")
    try:
        with pytest.raises(InvalidInput, match="more than can be followed"):
            snapshot.find(folder, Limits())
    finally:
        # More than pytest removes.
        for _ in range(1100):
            os.chdir("..")
            os.rmdir("d")
        os.chdir(here)


def test_what_cannot_be_read_is_named(nobody: Path) -> None:
    (nobody / "secret").write_text("x")
    (nobody / "secret").chmod(0)
    with pytest.raises(InvalidInput, match=r"`secret` can't be read \(Permission denied\)"):
        take(nobody, nobody / "home")
    (nobody / "secret").unlink()
    (nobody / "closed").mkdir(mode=0)
    with pytest.raises(InvalidInput, match=r"closed` can't be read \(Permission denied\)"):
        snapshot.find(nobody, Limits())


class Store:
    """A server's blobs in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.calls: list[str] = []

    def missing(self, hashes: list[str]) -> list[str]:
        self.calls.append("missing")
        return [sha256 for sha256 in hashes if sha256 not in self.blobs]

    def put_large(self, contents: Sequence[Content], add: Callable[[int], None]) -> None:
        for content in contents:
            self.calls.append("put")
            with content.opened() as file:
                self.blobs[content.sha256] = file.read()
            if len(self.blobs[content.sha256]) != content.size_bytes:
                raise content.changed()
            add(content.size_bytes)

    def put_bundle(self, bundle: bytes) -> None:
        self.calls.append("bundle")
        while bundle:
            header, _, bundle = bundle.partition(b"\n")
            sha256, size = header.decode().split()
            self.blobs[sha256], bundle = bundle[: int(size)], bundle[int(size) :]

    def put_snapshot(self, manifest: bytes) -> str:
        self.calls.append("snapshot")
        if any(file["sha256"] not in self.blobs for file in json.loads(manifest)["files"]):
            raise InvalidInput("blobs are missing", code="blobs_missing")
        return "id"


def test_upload_sends_each_content_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later(monkeypatch)
    (folder / "same").write_text("one")
    (folder / "large").write_bytes(b"x" * (3 << 20))
    store, progress = Store(), []
    taken = take(folder, tmp_path)
    upload(taken, store, lambda sent, total: progress.append((sent, total)))
    assert store.calls == ["missing", "put", "bundle", "snapshot"]
    assert {hashlib.sha256(content).hexdigest() for content in store.blobs.values()} == set(
        store.blobs
    )
    assert len(store.blobs) == 3
    assert progress[-1] == ((3 << 20) + 6, (3 << 20) + 6)
    store.calls.clear()
    upload(take(folder, tmp_path), store)
    assert store.calls == ["snapshot"]


def test_a_small_file_is_sent_as_it_was_hashed(folder: Path, tmp_path: Path) -> None:
    taken, store = take(folder, tmp_path), Store()
    (folder / "train.py").write_text("other")
    upload(taken, store)
    assert sorted(store.blobs.values()) == [b"one", b"two"]


def test_a_limited_number_of_bytes_is_kept_in_memory(folder: Path, tmp_path: Path) -> None:
    for number in range(700):
        (folder / f"{number}").write_bytes(b"%60000d" % number)
    taken, store = take(folder, tmp_path), Store()
    assert sum(map(len, taken.kept.values())) <= 32 << 20
    upload(taken, store)
    assert len(store.blobs) == 702


@pytest.mark.parametrize("size", [100 << 10, 3 << 20])
def test_a_file_that_changes_meanwhile_is_refused(folder: Path, tmp_path: Path, size: int) -> None:
    (folder / "train.py").write_bytes(b"x" * size)
    taken = take(folder, tmp_path)
    (folder / "train.py").write_bytes(b"y")
    with pytest.raises(Conflict, match=r"`train\.py` changed"):
        upload(taken, Store())


def test_the_hashes_of_files_are_kept_in_a_home_that_is_closed_to_others(tmp_path: Path) -> None:
    """The first command may be for another machine's server; this one's refuses an open home."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("x = 1\n")
    home = tmp_path / "home"
    before = os.umask(0o022)
    try:
        code = tmp_path / "code"
        snapshot.take(code, snapshot.find(code, Limits()), home / "cache" / "snapshots")
    finally:
        os.umask(before)
    assert home.stat().st_mode & 0o777 == 0o700
    assert list((home / "cache" / "snapshots").iterdir())
