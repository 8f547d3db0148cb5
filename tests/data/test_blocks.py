"""Blocks of files that are being uploaded: complete, listed, deleted when abandoned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchyard.base.errors import NotFound
from torchyard.data.blocks import Blocks
from torchyard.data.file_properties import Block


def send(blocks: Blocks, file: str, block_id: str, content: bytes) -> None:
    with blocks.writing(file, block_id) as writing:
        writing.write(content)


def test_blocks_are_listed_and_read(tmp_path: Path) -> None:
    blocks = Blocks(tmp_path)
    send(blocks, "c/file", "b/+=", b"bb")
    send(blocks, "c/file", "a", b"a")
    send(blocks, "c/other", "x", b"x")
    assert list(blocks.list("c/file").values()) == [Block("a", 1), Block("b/+=", 2)]
    assert b"".join(blocks.read("c/file", "b/+=")) == b"bb"
    send(blocks, "c/file", "a", b"again")
    assert blocks.list("c/file")["a"].size_bytes == 5
    blocks.drop("c/file")
    assert blocks.list("c/file") == {} and blocks.list("c/other")
    with pytest.raises(NotFound, match="block `a` does not exist"):
        blocks.read("c/file", "a")


def test_an_interrupted_block_does_not_exist(tmp_path: Path) -> None:
    blocks = Blocks(tmp_path)
    with pytest.raises(KeyError), blocks.writing("file", "a") as writing:
        writing.write(b"half")
        raise KeyError
    assert blocks.list("file") == {}


def test_abandoned_uploads_are_deleted(tmp_path: Path) -> None:
    now_s = [1_000_000.0]
    blocks = Blocks(tmp_path, lambda: now_s[0])
    for file in ("old", "new"):
        send(blocks, file, "a", b"x")
    for block_file, at_s in zip(sorted(tmp_path.iterdir()), (900_000, 999_000), strict=True):
        os.utime(block_file, (at_s, at_s))
    now_s[0] += 601
    send(blocks, "another", "a", b"x")
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_to_sweep(tmp_path: Path) -> None:
    Blocks(tmp_path / "none").sweep()
    assert Blocks(tmp_path / "none").list("file") == {}
