"""Host memory that tensors are copied to, shared with the writer.

Owns: buffers without a name that only their file descriptors keep, and the copy into them.
Leaves: writing them to the writer.
Always: a buffer is there as long as one of the two processes lives, and nothing is left after.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from torchyard.train.checkpoint.shares import ItemData
from torchyard.train.host_memory import available_bytes

__all__ = [
    "Buffer",
    "NoStagingMemory",
    "Staged",
    "StagedTensor",
    "available_bytes",
    "mapped",
    "tensor_at",
]

_ALIGNMENT = 64
# What the machine keeps beside a new buffer.
_RESERVE_BYTES = 64 << 20


class NoStagingMemory(Exception):
    """There is no memory for the copy."""


@dataclass(frozen=True)
class StagedTensor:
    """Where a tensor lies in a buffer."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]


Staged = StagedTensor | bytes


class Buffer:
    """Shared memory that grows; `limit_bytes` is the most that it may have."""

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._view: mmap.mmap | None = None
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._is_pinned = False
        self.descriptor = -1
        self.size_bytes = 0

    def copy(self, items: Iterable[tuple[int, ItemData]]) -> dict[int, Staged]:
        """Copy tensors, by their positions; returns when all of them are copied.

        CUDA tensors are copied on a side stream, which waits for the current one.

        Raises:
            NoStagingMemory: nothing was copied.
        """
        placed, tensors, size_bytes = _assign_offsets(items)
        if size_bytes > self.size_bytes:
            self._grow(size_bytes)
        devices = {tensor.device for tensor, _ in tensors if tensor.is_cuda}
        streams = {device: torch.cuda.Stream(device) for device in devices}
        if devices:
            self._pin()
        for device, stream in streams.items():
            stream.wait_stream(torch.cuda.current_stream(device))
        for tensor, staged in tensors:
            target = tensor_at(self._bytes, staged)
            if tensor.is_cuda:
                with torch.cuda.stream(streams[tensor.device]):
                    target.copy_(tensor, non_blocking=True)
            else:
                target.copy_(tensor)
        for stream in streams.values():
            stream.synchronize()
        return placed

    def close(self) -> None:
        if self._is_pinned:
            torch.cuda.cudart().cudaHostUnregister(self._bytes.data_ptr())
            self._is_pinned = False
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._view = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor, self.size_bytes = -1, 0

    def _grow(self, size_bytes: int) -> None:
        self.close()
        if self._limit_bytes is not None and size_bytes > self._limit_bytes:
            raise NoStagingMemory(
                f"the copy needs {size_bytes} bytes and `staging_bytes` allows {self._limit_bytes}"
            )
        free_bytes = available_bytes(Path("/"))
        if free_bytes is not None and size_bytes + _RESERVE_BYTES > free_bytes:
            raise NoStagingMemory(f"the copy needs {size_bytes} bytes and {free_bytes} are free")
        descriptor = _anonymous_file()
        try:
            os.ftruncate(descriptor, size_bytes)
            self._view = mapped(descriptor, size_bytes)
        except OSError as error:
            os.close(descriptor)
            raise NoStagingMemory(f"{size_bytes} bytes: {error.strerror}") from error
        self._bytes = torch.frombuffer(self._view, dtype=torch.uint8)
        self.descriptor, self.size_bytes = descriptor, size_bytes

    def _pin(self) -> None:
        """Register the memory with CUDA, so that copies run beside the GPU's work."""
        if not self._is_pinned and self.size_bytes:
            # Where it is refused, the copy is slower and as good.
            error = torch.cuda.cudart().cudaHostRegister(self._bytes.data_ptr(), self.size_bytes, 0)
            self._is_pinned = int(error) == 0


def mapped(descriptor: int, size_bytes: int) -> mmap.mmap:
    """Map all pages at once: the first copy doesn't wait for each of them."""
    return mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))


def tensor_at(buffer: torch.Tensor, staged: StagedTensor) -> torch.Tensor:
    """The tensor that lies there; it shares the buffer's memory."""
    length = _size_bytes(staged.shape, staged.dtype)
    flat = buffer[staged.offset : staged.offset + length]
    return flat.view(staged.dtype).view(staged.shape)


def _assign_offsets(
    items: Iterable[tuple[int, ItemData]],
) -> tuple[dict[int, Staged], list[tuple[torch.Tensor, StagedTensor]], int]:
    placed: dict[int, Staged] = {}
    tensors: list[tuple[torch.Tensor, StagedTensor]] = []
    offset = 0
    for position, data in items:
        if isinstance(data, bytes):
            placed[position] = data
            continue
        staged = StagedTensor(offset, data.dtype, tuple(data.shape))
        placed[position] = staged
        tensors.append((data, staged))
        offset += -(-_size_bytes(staged.shape, staged.dtype) // _ALIGNMENT) * _ALIGNMENT
    return placed, tensors, offset


def _size_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    length: int = dtype.itemsize
    for dimension in shape:
        length *= dimension
    return length


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("torchyard-checkpoint")
    with tempfile.TemporaryFile() as file:  # such as on macOS
        return os.dup(file.fileno())
