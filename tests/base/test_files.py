from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ordinary_user import as_an_ordinary_user
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


def test_a_folder_goes_whole() -> None:
    # Only an ordinary user is held back by permissions.
    with as_an_ordinary_user() as above:
        folder = above / "scratch"
        inner = folder / "a" / "b"
        inner.mkdir(parents=True)
        (inner / "file").write_text("x")
        (folder / "link").symlink_to(above)
        inner.chmod(0o555)
        (folder / "a").chmod(0)
        assert files.remove(folder)
        assert os.listdir(above) == []
        assert files.remove(folder)


def test_a_folder_goes_that_is_deeper_than_python_reaches(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    folder.mkdir()
    top = os.open(folder, os.O_RDONLY)
    for _ in range(1_500):
        os.mkdir("d", dir_fd=top)
        below = os.open("d", os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = below
    os.close(top)
    assert files.remove(folder) and not folder.exists()


def test_a_secret_is_nobody_elses_while_it_is_written(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with files.write_atomically(tmp_path / "token", mode=0o600) as writing:
            writing.write(b"secret")
            (draft,) = tmp_path.iterdir()
            assert draft.stat().st_mode & 0o077 == 0
        with files.write_atomically(tmp_path / "page", mode=0o644) as writing:
            writing.write(b"page")
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"token": 0o600, "page": 0o644}


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b"
    with files.write_atomically(target) as writing:
        writing.write(b"old")
    with pytest.raises(RuntimeError), files.write_atomically(target) as writing:
        writing.write(b"new")
        raise RuntimeError
    assert target.read_bytes() == b"old"
    assert [path for path, _ in files.walk(tmp_path)] == ["a/b"]


def test_what_is_written_is_hashed(tmp_path: Path) -> None:
    with files.write_atomically(tmp_path / "x") as writing:
        writing.write(b"ab")
        writing.write(b"c")
    assert writing.stored == files.Stored(hashlib.sha256(b"abc").hexdigest(), 3)
