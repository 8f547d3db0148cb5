"""Where the writers of a save meet: what each of them publishes, and the others read.

Owns: publishing and reading by kind and rank, in a folder that all ranks share or in the store of
their process group.
Leaves: what is published, and how long it is waited for, to commits.
Always: what is read was published whole.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from torch.distributed import TCPStore

_CONNECT_S = 30.0


@dataclass(frozen=True)
class StoreAddress:
    """Of the TCPStore by which the process group was made."""

    host: str
    port: int


class Rendezvous(Protocol):
    """Its methods raise OSError when the disk failed, or the store's process has ended.

    `poll_s` is how long to wait before asking again.
    """

    @property
    def poll_s(self) -> float: ...

    def publish(self, kind: str, rank: int, content: bytes) -> None: ...

    def has(self, kind: str, rank: int) -> bool: ...

    def read(self, kind: str, rank: int) -> bytes | None:
        """None while it is not published."""

    def remove(self, kind: str, rank: int) -> None: ...


class FolderRendezvous:
    """In the folder of a save, which every rank sees."""

    poll_s = 0.01

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def publish(self, kind: str, rank: int, content: bytes) -> None:
        file = self._file(kind, rank)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        part.write_bytes(content)
        os.rename(part, file)

    def has(self, kind: str, rank: int) -> bool:
        return self._file(kind, rank).exists()

    def read(self, kind: str, rank: int) -> bytes | None:
        try:
            return self._file(kind, rank).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, kind: str, rank: int) -> None:
        self._file(kind, rank).unlink(missing_ok=True)

    def _file(self, kind: str, rank: int) -> Path:
        return self._folder / f"{kind}.{rank}"


class StoreRendezvous:
    """In the store of the process group, for ranks on machines that share no folder."""

    poll_s = 0.05

    def __init__(self, address: StoreAddress, name: str) -> None:
        self._name = name
        self._store = _connected(address)

    def publish(self, kind: str, rank: int, content: bytes) -> None:
        try:
            self._store.set(self._key(kind, rank), content)
        except RuntimeError as error:
            raise _lost(error) from error

    def has(self, kind: str, rank: int) -> bool:
        try:
            return bool(self._store.check([self._key(kind, rank)]))
        except RuntimeError as error:
            raise _lost(error) from error

    def read(self, kind: str, rank: int) -> bytes | None:
        if not self.has(kind, rank):
            return None
        try:
            return bytes(self._store.get(self._key(kind, rank)))
        except RuntimeError as error:
            raise _lost(error) from error

    def remove(self, kind: str, rank: int) -> None:
        try:
            self._store.delete_key(self._key(kind, rank))
        except RuntimeError as error:
            raise _lost(error) from error

    def _key(self, kind: str, rank: int) -> str:
        return f"torchyard-checkpoint/{self._name}/{kind}/{rank}"


_stores: dict[StoreAddress, Any] = {}


def _connected(address: StoreAddress) -> Any:
    """One connection for each process: every save asks for it."""
    if address not in _stores:
        try:
            _stores[address] = TCPStore(
                address.host, address.port, None, False, timedelta(seconds=_CONNECT_S),
                wait_for_workers=False,
            )  # fmt: skip
        except RuntimeError as error:
            raise _lost(error) from error
    return _stores[address]


def _lost(error: RuntimeError) -> OSError:
    _stores.clear()
    first = str(error).partition("\n")[0]
    return ConnectionError(f"the process group's store does not answer: {first[:200]}")
