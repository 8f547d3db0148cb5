"""Files of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.files_contract import FilesContract
from torchyard.base.errors import InvalidInput
from torchyard.data.folders import FolderFiles


class TestFolder(FilesContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> FolderFiles:
        return FolderFiles(tmp_path / "place")


def test_no_path_leads_out(tmp_path: Path) -> None:
    place = FolderFiles(tmp_path / "place")
    (tmp_path / "place").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "place" / "link").symlink_to(tmp_path / "secret")
    for path in ("../secret", "link", "a/../../secret"):
        with pytest.raises(InvalidInput):
            place.entry(path)
