"""A share's file: its bytes, its sum, and what lies where."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from torchyard.train.checkpoint import checksum_stream, folders, shares

pytestmark = pytest.mark.torch


def test_a_share_of_several_blocks_is_what_its_sum_says(tmp_path: Path) -> None:
    items = [torch.arange(11_000_000, dtype=torch.float32), b"\x01" * 70_000, torch.ones(3)]
    indexes = [MetadataIndex(f"item{number}") for number in range(len(items))]
    share = shares.write_share(tmp_path, 0, indexes, lambda number: items[number])
    file = tmp_path / share.name
    assert file.stat().st_size == share.file.size_bytes > 2 * checksum_stream.PART_BYTES
    assert folders.file_sum(file) == share.file
    content = file.read_bytes()
    for index, item in zip(indexes, items, strict=True):
        stored_at = share.places[index]
        stored = content[stored_at.offset : stored_at.offset + stored_at.length]
        if isinstance(item, bytes):
            assert stored == item
            continue
        part = tmp_path / "part"
        part.write_bytes(stored)
        assert torch.equal(torch.load(part), item)


# The second one is written by several threads, of which some can't.
@pytest.mark.parametrize(("tensor_mb", "disk_mb"), [(4, 1), (64, 20)])
def test_a_disk_that_is_full_in_the_middle_of_a_tensor_is_what_is_reported(
    tmp_path: Path, tensor_mb: int, disk_mb: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    tensor = torch.ones(tensor_mb << 18)
    resource.setrlimit(resource.RLIMIT_FSIZE, (disk_mb << 20, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            shares.write_share(tmp_path, 0, [MetadataIndex("item")], lambda number: tensor)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
