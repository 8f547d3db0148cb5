"""Where Ray's sockets are when the path of a machine's folder is too long for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard.node_agent import ray_node


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return temporary


def test_a_short_path_needs_no_other_place(tmp_path: Path, temporary: Path) -> None:
    folder = Path(os.path.relpath(tmp_path))
    if len(str(folder / "s")) <= ray_node._LONGEST_PLACE:
        assert ray_node._sessions(folder) == folder / "s"
    assert list(temporary.iterdir()) == []


def test_what_a_killed_agent_left_is_removed_and_the_place_kept(
    tmp_path: Path, temporary: Path
) -> None:
    folder = tmp_path / ("long" * 30)
    sessions = ray_node._sessions(folder)
    (sessions / "session_1").mkdir()
    sessions.chmod(0o777)  # as Ray does
    again = ray_node._sessions(folder)
    assert again == sessions and list(again.iterdir()) == []
    assert again.stat().st_mode & 0o777 == 0o700
    assert ray_node._sessions(tmp_path / ("other" * 30)) != sessions


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, temporary: Path) -> None:
    folder, elsewhere = tmp_path / ("long" * 30), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    sessions = ray_node._sessions(folder)
    sessions.rmdir()
    sessions.parent.rmdir()
    sessions.parent.symlink_to(elsewhere)
    assert ray_node._sessions(folder).parent not in (sessions.parent, elsewhere)
    assert (elsewhere / "kept").exists()
