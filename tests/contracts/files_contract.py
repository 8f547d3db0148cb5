"""What every store of files must do, whatever is behind it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from torchyard.base.errors import NotFound
from torchyard.data.types import Files

CONTENT = {"a.txt": b"a\n", "deep/b.bin": bytes(range(256)) * 40, "deep/er/c": b""}


def put(store: Files, files: dict[str, bytes], below: str = "") -> None:
    for path, content in files.items():
        with store.writing(f"{below}{path}") as writing:
            writing.write(content)


class FilesContract:
    """Subclasses give the fixture `store`: an empty store."""

    def test_written_files_are_read_back(self, store: Files, tmp_path: Path) -> None:
        put(store, CONTENT, "top/")
        sizes = {entry.path: entry.size_bytes for entry in store.walk("top")}
        assert sizes == {path: len(content) for path, content in CONTENT.items()}
        targets = [(f"top/{path}", tmp_path / path.replace("/", "-")) for path in CONTENT]
        store.fetch(targets)
        assert [target.read_bytes() for _, target in targets] == list(CONTENT.values())

    def test_parts_of_a_file_are_read(self, store: Files) -> None:
        content = bytes(range(256)) * 10_000
        put(store, {"x": content, "empty": b""})
        assert b"".join(store.read("x")) == content
        assert b"".join(store.read("x", 1_000_001)) == content[1_000_001:]
        assert b"".join(store.read("x", 255, 1_500_000)) == content[255:1_500_255]
        assert b"".join(store.read("x", len(content) - 3, 99)) == content[-3:]
        assert b"".join(store.read("empty")) == b""
        with pytest.raises(NotFound):
            b"".join(store.read("none"))

    def test_writing_tells_the_sha256(self, store: Files) -> None:
        with store.writing("x") as writing:
            writing.write(b"one ")
            writing.write(b"two")
        assert writing.stored.sha256 == hashlib.sha256(b"one two").hexdigest()
        assert writing.stored.size_bytes == 7

    def test_an_interrupted_write_leaves_the_old_file(self, store: Files) -> None:
        put(store, {"x": b"before"})
        with pytest.raises(KeyError), store.writing("x") as writing:
            writing.write(b"after" * 1000)
            raise KeyError
        with pytest.raises(KeyError), store.writing("y") as writing:
            writing.write(b"half")
            raise KeyError
        assert [(entry.path, entry.size_bytes) for entry in store.walk("")] == [("x", 6)]

    def test_files_and_folders_are_told_apart(self, store: Files) -> None:
        put(store, CONTENT, "top/")
        entry = store.entry("top/a.txt")
        assert entry is not None and entry.size_bytes == 2
        assert store.entry("top") is None
        assert store.entry("top/none") is None
        assert store.is_folder("top") and store.is_folder("top/deep")
        assert not store.is_folder("top/a.txt") and not store.is_folder("none")
        assert list(store.walk("none")) == []

    def test_an_entry_changes_with_the_bytes(self, store: Files) -> None:
        put(store, {"x": b"1"})
        first = store.entry("x")
        again = store.entry("x")
        put(store, {"x": b"two"})  # SFTP's times are whole seconds: only the size tells there
        second = store.entry("x")
        assert first is not None and second is not None
        assert first == again and first.mark and first != second

    def test_files_and_folders_are_deleted(self, store: Files) -> None:
        put(store, CONTENT, "top/")
        put(store, {"other": b"x"})
        store.delete("top/a.txt")
        store.delete("none")
        assert [entry.path for entry in store.walk("top")] == ["deep/b.bin", "deep/er/c"]
        store.delete("top/deep")
        assert [entry.path for entry in store.walk("")] == ["other"]

    def test_fetching_a_missing_file_raises(self, store: Files, tmp_path: Path) -> None:
        with pytest.raises((NotFound, FileNotFoundError)):
            store.fetch([("none", tmp_path / "x")])
