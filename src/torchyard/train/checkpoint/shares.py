"""Write one rank's share of a checkpoint as a file of torch.distributed.checkpoint.

Owns: the file's bytes and their checksum.
Leaves: which items belong to the share to commits.
Always: the file is durable when `write_share` returns.
"""

from __future__ import annotations

import ctypes
import io
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex

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
        stream = _ChecksumStream(file)
        for number, index in enumerate(indexes):
            start = stream.size_bytes
            data = read(number)
            if isinstance(data, bytes):
                stream.write(data)
            else:
                _write_tensor(_compact(data), stream)
            storage[index] = _StorageInfo(name, start, stream.size_bytes - start)
        os.fsync(file.fileno())
    return Share(name, FileSum(stream.size_bytes, stream.crc32), storage)


def _write_tensor(tensor: torch.Tensor, stream: _ChecksumStream) -> None:
    try:
        torch.save(tensor, stream)
    except RuntimeError:
        # After an error of the disk, torch.save raises that its file is incomplete.
        if stream.error is not None:
            raise stream.error from None
        raise


# Linux's sync_file_range(2): begin to write a file's pages to the disk, and don't wait.
_SYNC_FILE_RANGE = getattr(ctypes.CDLL(None), "sync_file_range", None)
_WRITE = 2
_BLOCK_BYTES = 16 << 20


class _ChecksumStream(io.RawIOBase):
    """Count and sum what is written to a file; the disk writes each block during the next one."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.size_bytes = 0
        self.crc32 = 0
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _BLOCK_BYTES):
            block = view[start : start + _BLOCK_BYTES]
            self.crc32 = zlib.crc32(block, self.crc32)
            self._write_block(block)
        return len(view)

    def _write_block(self, block: memoryview) -> None:
        start = self.size_bytes
        self.size_bytes += len(block)
        try:
            while block:
                block = block[self._file.write(block) :]
        except OSError as error:
            self.error = error
            raise
        if _SYNC_FILE_RANGE is not None and self.size_bytes - start == _BLOCK_BYTES:
            # What goes wrong in the background, fsync reports.
            _SYNC_FILE_RANGE(
                self._file.fileno(), ctypes.c_int64(start), ctypes.c_int64(_BLOCK_BYTES), _WRITE
            )


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """On the CPU, with a storage of nothing else: torch.save writes whole storages."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        tensor = tensor.clone()
    return tensor
