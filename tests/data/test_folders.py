"""Files of a folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from contracts.files_contract import FilesContract
from torchyard.base.errors import InvalidInput
from torchyard.data.folders import LINK_REFUSED, FolderFiles


class TestFolder(FilesContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderFiles:
        return FolderFiles(tmp_path / "place")


class TestForeignFolder(FilesContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderFiles:
        return FolderFiles(tmp_path / "place")


def test_no_path_leads_out(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path / "place")
    (tmp_path / "place").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "place" / "link").symlink_to(tmp_path / "secret")
    for path in ("../secret", "link", "a/../../secret"):
        with pytest.raises(InvalidInput):
            files.entry(path)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder beside the store; `inner`, `inside` and `file` in the store are links."""
    (tmp_path / "secret").mkdir(mode=0o700)
    (tmp_path / "secret" / "file").write_text("secret")
    place = tmp_path / "place"
    (place / "real").mkdir(parents=True)
    (place / "real" / "a").write_text("a")
    (place / "inner").symlink_to(tmp_path / "secret")
    (place / "inside").symlink_to("real")
    (place / "file").symlink_to(tmp_path / "secret" / "file")
    return tmp_path / "secret"


@pytest.mark.parametrize("path", ["inner/file", "inside/a", "file", "inner"])
def test_a_link_is_refused_by_name(secret: Path, tmp_path: Path, path: str) -> None:
    store = FolderFiles(tmp_path / "place")
    tries: list[Callable[[], object]] = [
        lambda: store.entry(path),
        lambda: store.is_folder(path),
        lambda: list(store.read(path)),
        lambda: store.open(path),
        lambda: store.fetch([(path, tmp_path / "copy")]),
        lambda: list(store.walk(f"{path}/x")),
        lambda: list(store.ordered(f"{path}/x")),
    ]
    for attempt in tries:
        with pytest.raises(InvalidInput) as caught:
            attempt()
        assert caught.value.code == LINK_REFUSED
    assert not (tmp_path / "copy").exists()


def test_nothing_is_written_or_deleted_through_a_link(secret: Path, tmp_path: Path) -> None:
    store = FolderFiles(tmp_path / "place")
    for path in ("inner/file", "inner/new", "inner/deep/er"):
        with pytest.raises(InvalidInput) as caught, store.writing(path) as writing:
            writing.write(b"evil")
        assert caught.value.code == LINK_REFUSED
        with pytest.raises(InvalidInput):
            store.delete(path)
    assert [file.name for file in secret.iterdir()] == ["file"]
    assert (secret / "file").read_text() == "secret"
    assert secret.stat().st_mode & 0o777 == 0o700
    # A link is a name as others: what is written or deleted there is the name.
    with store.writing("file") as writing:
        writing.write(b"new")
    store.delete("inner")
    assert (tmp_path / "place" / "file").read_bytes() == b"new"
    assert (secret / "file").read_text() == "secret"


def test_a_walk_leaves_links_out_with_one_count(secret: Path, tmp_path: Path) -> None:
    store = FolderFiles(tmp_path / "place")
    (tmp_path / "place" / "real" / "more").symlink_to(secret)
    counted: list[int] = []
    assert [entry.path for entry in store.walk("", counted.append)] == ["real/a"]
    assert list(store.ordered("", fold=True)) == ["real/"]
    assert [path for path, _ in store.found("")] == ["real/a"]
    assert counted == [4]


def test_a_link_that_comes_in_the_middle_of_a_write_gets_nothing(
    secret: Path, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    store = FolderFiles(place)
    with pytest.raises(InvalidInput), store.writing("real/new") as writing:
        writing.write(b"evil")
        (place / "real").rename(place / "away")
        (place / "real").symlink_to(secret)
    assert [file.name for file in secret.iterdir()] == ["file"]


def test_a_listing_goes_deeper_than_python(tmp_path: Path) -> None:
    top = tmp_path / "place"
    top.mkdir()
    above = os.open(top, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=above)
        below = os.open("d", os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = below
    os.close(os.open("last", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=above))
    os.close(above)
    store = FolderFiles(top)
    assert [entry.path for entry in store.walk("")] == ["d/" * 1100 + "last"]
    store.delete("d")
    assert list(top.iterdir()) == []


def test_a_folder_that_is_replaced_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    files = FolderFiles(tmp_path / "place")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    (tmp_path / "place").rmdir()
    (tmp_path / "place").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match="leads out of its folder"):
        list(files.read("file"))
