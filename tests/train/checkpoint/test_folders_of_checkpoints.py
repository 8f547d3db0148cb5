"""Which folders are checkpoints, and which of them are undamaged."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from torchyard.train.checkpoint import CheckpointError, folders
from train.checkpoint.saving import save, weights

pytestmark = pytest.mark.torch


def test_a_folder_without_a_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    folders.verify(info)
    (info.path / "manifest.json").unlink()
    assert folders.checkpoints(tmp_path) == {}


def test_the_sums_in_a_manifest_are_zlibs(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    for name, file in info.files.items():
        content = (info.path / name).read_bytes()
        assert (len(content), zlib.crc32(content)) == (file.size_bytes, file.crc32)


def test_a_manifest_that_is_cut_off_or_changed_is_none(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    manifest = info.path / "manifest.json"
    text = manifest.read_text()
    for damaged in (text[:-20], text.replace('"step": 1', '"step": 2'), "[]", ""):
        manifest.write_text(damaged)
        assert folders.checkpoints(tmp_path) == {}
    manifest.write_text(text)
    assert folders.checkpoints(tmp_path) == {1: info}


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata"])
def test_damage_of_every_file_is_found_and_named(tmp_path: Path, name: str) -> None:
    info = save(tmp_path, weights())
    file = info.path / name
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damaged, problem in (
        (content[:-1], "bytes instead of"),
        (bytes(flipped), "another checksum"),
    ):
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=rf"`{name}` .*{problem}"):
            folders.verify(info)
    file.unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        folders.verify(info)


def test_a_newer_format_is_named_with_the_next_step(tmp_path: Path) -> None:
    info = save(tmp_path, weights())
    newer_info = replace(info, format=folders.FORMAT + 1, path=tmp_path / "step-00000001.1")
    folders.commit(newer_info, info.path)
    (newer,) = folders.checkpoints(tmp_path).values()
    with pytest.raises(CheckpointError, match="has format 2, newer than 1"):
        folders.verify(newer)


def test_what_killed_writers_left_is_removed_and_damage_is_kept(tmp_path: Path) -> None:
    info = save(tmp_path, weights(), step=5)
    for name in (".saving-00000009-old-0", ".saving-00000004-s-0", ".deleted-x", "step-00000008"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00000006").mkdir()
    (tmp_path / "step-00000006/manifest.json").write_text(json.dumps({}))
    (tmp_path / ".saving-00000006-s-0").mkdir()
    folders.remove_stale(tmp_path, "s", 5)
    assert {path.name for path in tmp_path.iterdir()} == {
        info.path.name,
        "step-00000006",
        ".saving-00000006-s-0",
    }


def test_the_files_of_a_user_stay(tmp_path: Path) -> None:
    (tmp_path / "step-by-step.txt").write_text("mine")
    (tmp_path / "best").mkdir()
    save(tmp_path, weights())
    folders.remove_stale(tmp_path, "other", 1)
    assert {path.name for path in tmp_path.iterdir()} == {
        "step-by-step.txt",
        "best",
        "step-00000001",
    }
