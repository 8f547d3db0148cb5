"""Read tensors that are loaded as they were saved straight into the state's own memory.

Owns: which items of a load plan these are, and reading them by several threads.
Leaves: all others, such as tensors on a GPU or of another sharding, to the reader of
torch.distributed.checkpoint, which reads into memory of its own and copies.
Always: only memory of the target is written, and only with bytes that mean the same there.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import _create_file_view
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlanner, ReadItem

# Below it, finding the bytes takes longer than copying them.
_LEAST_BYTES = 1 << 20
_READERS = 4
_DATA, _BYTE_ORDER = "data/0", "byteorder"


def read_whole(
    folder: Path, storage_data: Mapping[Any, Any], items: Sequence[ReadItem], planner: LoadPlanner
) -> list[ReadItem]:
    """Read what can be read so; return the other items.

    Raises:
        OSError: a file can't be read.
    """
    read = partial(_read, folder, storage_data, planner)
    with ThreadPoolExecutor(_READERS) as pool:
        return [item for item, is_read in zip(items, pool.map(read, items), strict=True)
                if not is_read]  # fmt: skip


def _read(
    folder: Path, storage_data: Mapping[Any, Any], planner: LoadPlanner, item: ReadItem
) -> bool:
    storage = storage_data[item.storage_index]
    if item.type != LoadItemType.TENSOR or storage.length < _LEAST_BYTES:
        return False
    target = planner.resolve_tensor(item).detach()
    with open(folder / storage.relative_path, "rb", buffering=0) as file:
        content = _create_file_view(file, storage.offset, storage.length)
        saved = torch.load(content, map_location="meta", weights_only=True)
        if not _is_same(saved, target):
            return False
        content.seek(0)
        records = torch._C.PyTorchFileReader(content)
        if records.get_record(_BYTE_ORDER) != sys.byteorder.encode():
            return False
        file.seek(storage.offset + records.get_record_offset(_DATA))
        memory = (ctypes.c_char * target.nbytes).from_address(target.data_ptr())
        remaining = memoryview(memory).cast("B")
        while remaining:
            count = file.readinto(remaining)
            if not count:
                return False
            remaining = remaining[count:]
    planner.commit_tensor(item, target)
    return True


def _is_same(saved: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether the saved bytes, in their order, are the target's."""
    return (
        type(target) is torch.Tensor
        and target.device.type == "cpu"
        and target.layout == saved.layout == torch.strided
        and (saved.dtype, saved.shape) == (target.dtype, target.shape)
        and saved.nbytes == saved.untyped_storage().nbytes()
        and all(
            tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
            for tensor in (saved, target)
        )
    )
