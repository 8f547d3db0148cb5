"""Write one rank's share of a checkpoint as a file of torch.distributed.checkpoint.

Owns: the file's bytes.
Leaves: their checksum to checksum_stream.py, which items belong to the share to commits.
Always: the file is durable when `write_share` returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex

from torchyard.train.checkpoint.checksum_stream import ChecksumStream
from torchyard.train.checkpoint.folders import FileSum

# What an item holds: a tensor, or an object as torch.save wrote it.
ItemData: TypeAlias = torch.Tensor | bytes


@dataclass(frozen=True)
class Share:
    """What one rank wrote; `places` says where each item lies."""

    name: str
    file: FileSum
    places: dict[MetadataIndex, Any]


def write_share(
    folder: Path, rank: int, indexes: Sequence[MetadataIndex], read: Callable[[int], ItemData]
) -> Share:
    """Write the items to `__RANK_0.distcp`; `read(i)` gives the data of `indexes[i]`.

    Raises:
        OSError: such as a full disk.
    """
    name = f"__{rank}_0.distcp"
    storage: dict[MetadataIndex, Any] = {}
    with open(folder / name, "wb", buffering=0) as file:
        with ChecksumStream(file) as stream:
            for number, index in enumerate(indexes):
                start = stream.size_bytes
                data = read(number)
                if isinstance(data, bytes):
                    stream.write(data)
                else:
                    stream.fill(partial(torch.save, _compact(data)))
                storage[index] = _StorageInfo(name, start, stream.size_bytes - start)
        os.fsync(file.fileno())
    return Share(name, FileSum(stream.size_bytes, stream.crc32), storage)


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, with a storage of nothing else: torch.save writes whole storages."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        tensor = tensor.clone()
    return tensor
