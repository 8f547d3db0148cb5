"""Files of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.files_contract import FilesContract
from torchyard.base import files
from torchyard.base.errors import InvalidInput
from torchyard.data.folders import FolderFiles


class TestFolder(FilesContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderFiles:
        return FolderFiles(tmp_path / "place")


class TestForeignFolder(FilesContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderFiles:
        return FolderFiles(tmp_path / "place", is_foreign=True)


def test_no_path_leads_out(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path / "place")
    (tmp_path / "place").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "place" / "link").symlink_to(tmp_path / "secret")
    for path in ("../secret", "link", "a/../../secret"):
        with pytest.raises(InvalidInput):
            files.entry(path)


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderFiles:
    """A folder in which `inner` becomes a link to `secret/` after names were checked."""
    (tmp_path / "secret").mkdir(mode=0o700)
    (tmp_path / "secret" / "file").write_text("secret")
    (tmp_path / "place").mkdir(mode=0o755)
    (tmp_path / "place" / "inner").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(files, "inside", lambda folder, path: folder / path)
    return FolderFiles(tmp_path / "place", is_foreign=True)


def test_a_link_that_comes_late_leads_nowhere(late: FolderFiles, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="leads out of its folder"):
        list(late.read("inner/file"))
    with pytest.raises(InvalidInput, match="leads out of its folder"):
        late.fetch([("inner/file", tmp_path / "copy")])
    for path in ("inner/file", "inner/new"):
        with pytest.raises(InvalidInput, match="leads out of its folder"):
            with late.writing(path) as writing:
                writing.write(b"evil")
        with pytest.raises(InvalidInput, match="leads out of its folder"):
            late.delete(path)
    assert [file.name for file in (tmp_path / "secret").iterdir()] == ["file"]
    assert (tmp_path / "secret" / "file").read_text() == "secret"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_is_replaced_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    files = FolderFiles(tmp_path / "place", is_foreign=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    (tmp_path / "place").rmdir()
    (tmp_path / "place").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match="leads out of its folder"):
        list(files.read("file"))
