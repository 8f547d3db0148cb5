from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from torchyard.base import files
from torchyard.base.errors import InvalidInput


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../../x", "a\0b", "..\\x", "C:\\x", "a/.."]
)
def test_a_path_never_leaves_its_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidInput):
        files.inside(tmp_path, path)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(InvalidInput):
        files.inside(folder, "link/x")


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b"
    with files.whole(target) as writing:
        writing.write(b"old")
    with pytest.raises(RuntimeError), files.whole(target) as writing:
        writing.write(b"new")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert [path for path, _ in files.walk(tmp_path)] == ["a/b"]


def test_what_is_written_is_hashed(tmp_path: Path) -> None:
    with files.whole(tmp_path / "x") as writing:
        writing.write(b"ab")
        writing.write(b"c")
    assert writing.stored == files.Stored(hashlib.sha256(b"abc").hexdigest(), 3)
