"""What every place for files must do, whatever it is behind."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from torchyard.base.errors import NotFound
from torchyard.data.types import Files

CONTENT = {"a.txt": b"a\n", "deep/b.bin": bytes(range(256)) * 40, "deep/er/c": b""}


def put(place: Files, files: dict[str, bytes], below: str = "") -> None:
    for path, content in files.items():
        with place.writing(f"{below}{path}") as writing:
            writing.write(content)


class FilesContract:
    """Subclasses give the fixture `place`: an empty place."""

    def test_written_files_are_read_back(self, place: Files, tmp_path: Path) -> None:
        put(place, CONTENT, "top/")
        sizes = {entry.path: entry.size_bytes for entry in place.walk("top")}
        assert sizes == {path: len(content) for path, content in CONTENT.items()}
        targets = [(f"top/{path}", tmp_path / path.replace("/", "-")) for path in CONTENT]
        place.fetch(targets)
        assert [target.read_bytes() for _, target in targets] == list(CONTENT.values())

    def test_parts_of_a_file_are_read(self, place: Files) -> None:
        content = bytes(range(256)) * 10_000
        put(place, {"x": content, "empty": b""})
        assert b"".join(place.read("x")) == content
        assert b"".join(place.read("x", 1_000_001)) == content[1_000_001:]
        assert b"".join(place.read("x", 255, 1_500_000)) == content[255:1_500_255]
        assert b"".join(place.read("x", len(content) - 3, 99)) == content[-3:]
        assert b"".join(place.read("empty")) == b""
        with pytest.raises(NotFound):
            b"".join(place.read("none"))

    def test_writing_tells_the_sha256(self, place: Files) -> None:
        with place.writing("x") as writing:
            writing.write(b"one ")
            writing.write(b"two")
        assert writing.stored.sha256 == hashlib.sha256(b"one two").hexdigest()
        assert writing.stored.size_bytes == 7

    def test_an_interrupted_write_leaves_the_old_file(self, place: Files) -> None:
        put(place, {"x": b"before"})
        with pytest.raises(KeyError), place.writing("x") as writing:
            writing.write(b"after" * 1000)
            raise KeyError
        with pytest.raises(KeyError), place.writing("y") as writing:
            writing.write(b"half")
            raise KeyError
        assert [(entry.path, entry.size_bytes) for entry in place.walk("")] == [("x", 6)]

    def test_files_and_folders_are_told_apart(self, place: Files) -> None:
        put(place, CONTENT, "top/")
        entry = place.entry("top/a.txt")
        assert entry is not None and entry.size_bytes == 2
        assert place.entry("top") is None
        assert place.entry("top/none") is None
        assert place.is_folder("top") and place.is_folder("top/deep")
        assert not place.is_folder("top/a.txt") and not place.is_folder("none")
        assert list(place.walk("none")) == []

    def test_an_entry_changes_with_the_bytes(self, place: Files) -> None:
        put(place, {"x": b"1"})
        first = place.entry("x")
        again = place.entry("x")
        put(place, {"x": b"two"})  # SFTP's times are whole seconds: only the size tells there
        second = place.entry("x")
        assert first is not None and second is not None
        assert first == again and first.mark and first != second

    def test_files_and_folders_are_deleted(self, place: Files) -> None:
        put(place, CONTENT, "top/")
        put(place, {"other": b"x"})
        place.delete("top/a.txt")
        place.delete("none")
        assert [entry.path for entry in place.walk("top")] == ["deep/b.bin", "deep/er/c"]
        place.delete("top/deep")
        assert [entry.path for entry in place.walk("")] == ["other"]

    def test_fetching_a_missing_file_raises(self, place: Files, tmp_path: Path) -> None:
        with pytest.raises((NotFound, FileNotFoundError)):
            place.fetch([("none", tmp_path / "x")])
