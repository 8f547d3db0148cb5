"""Copies of objects in memory, as torch.save writes them.

Owns: memory without a name that the writer's process reads too, and its limit.
Leaves: files to the writer.
Always: a copy is there whole, or its size is known and nothing of it is kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchyard.train.checkpoint import staging

# What the machine keeps beside the copies.
_RESERVE_BYTES = 64 << 20
_MAX_SPARE = 8


@dataclass(frozen=True)
class Copy:
    """An object in memory; `descriptor` is this process's own."""

    descriptor: int
    size_bytes: int


class NoMemory(Exception):
    """A copy of `size_bytes` does not fit."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


class Memory:
    """The copies of one process. `limit_bytes` is for all of them; None is what the node has.

    Memory of copies that are written is used again: the kernel need not clear it for the next.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._spare: list[tuple[str, int]] = []

    def copy(self, name: str, value: Any) -> Copy:
        """
        Raises:
            NoMemory: it does not fit beside the others.
        """
        descriptor = self._take_spare(name)
        stream = _MemoryFile(descriptor, self._free_bytes())
        try:
            save(value, stream)
        except BaseException:
            os.close(descriptor)
            raise
        if stream.size_bytes > stream.limit_bytes:
            os.close(descriptor)
            self._drop_spare()
            raise NoMemory(stream.size_bytes)
        self.used_bytes += stream.size_bytes
        return Copy(descriptor, stream.size_bytes)

    def free(self, name: str, copy: Copy) -> None:
        self.used_bytes -= copy.size_bytes
        if self.limit_bytes is not None or len(self._spare) >= _MAX_SPARE:
            os.close(copy.descriptor)
        else:
            self._spare.append((name, copy.descriptor))

    def close(self) -> None:
        self._drop_spare()

    def _free_bytes(self) -> int:
        if self.limit_bytes is not None:
            return self.limit_bytes - self.used_bytes
        free_bytes = staging.available_bytes(Path("/"))
        return (1 << 62) if free_bytes is None else free_bytes - _RESERVE_BYTES

    def _take_spare(self, name: str) -> int:
        """What held an object of this name has the right size."""
        for number, (spare_name, descriptor) in enumerate(self._spare):
            if spare_name == name:
                del self._spare[number]
                os.lseek(descriptor, 0, os.SEEK_SET)
                return descriptor
        if len(self._spare) >= _MAX_SPARE:
            os.close(self._spare.pop(0)[1])
        return os.memfd_create("nebula")

    def _drop_spare(self) -> None:
        while self._spare:
            os.close(self._spare.pop()[1])


def save(value: Any, stream: Any) -> None:
    """torch.save without the checksums inside of the file: its record has one."""
    computes = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(value, stream)
    finally:
        torch.serialization.set_crc32_options(computes)


class _MemoryFile:
    """What is beyond the limit is only counted: torch.save can't be stopped in the middle."""

    def __init__(self, descriptor: int, limit_bytes: int) -> None:
        self._descriptor = descriptor
        self.limit_bytes = limit_bytes
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        length = len(view)
        self.size_bytes += length
        if self.size_bytes <= self.limit_bytes:
            while view:
                view = view[os.write(self._descriptor, view) :]
        return length

    def flush(self) -> None:
        """Nothing is buffered; torch.save calls it."""
