"""Which rank this process is, and values that all ranks take from rank 0.

Owns: agreement through the process group's store.
Leaves: plans and shares of checkpoints to the writers, which meet in the folder.
Always: no collective runs, so a rank that is missing is named and nothing hangs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.rendezvous import StoreAddress


@dataclass(frozen=True)
class Group:
    """`leaders` are the first ranks of each folder, `leader` that of this rank's; they meet at
    `store` where there are several folders.
    """

    store: StoreAddress | None = None
    leader: int = 0
    leaders: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Ranks:
    """`rank` of `world_size`; `store` is None for a process alone."""

    rank: int
    world_size: int
    store: Any = None

    def agree(self, key: str, choose: Callable[[], str], timeout_s: float) -> str:
        """Return what `choose` gives on rank 0, on every rank.

        Raises:
            CheckpointError: rank 0 didn't choose in time.
        """
        if self.store is None:
            return choose()
        if self.rank == 0:
            value = choose()
            self.store.set(key, value)
            return value
        try:
            self.store.wait([key], timedelta(seconds=timeout_s))
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"rank 0 did not take part within {timeout_s:g} s ({key.split('/')[1]})",
                "call the functions of `torchyard.train.checkpoint` on every rank",
            ) from error
        return str(self.store.get(key).decode())

    def group(self, folder: Path, token: str, timeout_s: float) -> Group:
        """Which ranks see the same folder: each leaves a mark there and looks who else has.

        Raises:
            CheckpointError: a rank is missing or can't write there, or they share neither a folder
                nor a store.
        """
        mark = folder / f".rank-{token}-{self.rank}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            mark.touch()
            self.gather(f"torchyard-checkpoint/{token}/here", "", timeout_s)
            seen = sorted(int(name.rpartition("-")[2]) for name in os.listdir(folder)
                          if name.startswith(f".rank-{token}-"))  # fmt: skip
            first = self.gather(f"torchyard-checkpoint/{token}/first", str(seen[0]), timeout_s)
        except OSError as error:
            raise CheckpointError(
                f"the folder for checkpoints, {folder}, can't be written: {error.strerror}",
                "name another one with `checkpoint.configure(folder)`",
            ) from error
        finally:
            mark.unlink(missing_ok=True)
        leaders = tuple(sorted({int(rank) for rank in first}))
        if leaders == (0,):
            return Group()
        store = self.address()
        if store is None:
            raise CheckpointError(
                f"ranks {', '.join(map(str, leaders))} save to different folders named {folder}",
                "let init_process_group use a TCP address, or save to a folder that all nodes "
                "share",
            )
        return Group(store, seen[0], leaders)

    def gather(self, key: str, value: str, timeout_s: float) -> list[str]:
        """Return what every rank gives, in the order of ranks.

        Raises:
            CheckpointError: names the ranks that gave nothing in time.
        """
        if self.store is None:
            return [value]
        keys = [f"{key}/{rank}" for rank in range(self.world_size)]
        self.store.set(keys[self.rank], value)
        try:
            self.store.wait(keys, timedelta(seconds=timeout_s))
        except (RuntimeError, ValueError) as error:
            missing = [str(rank) for rank, name in enumerate(keys) if not self.store.check([name])]
            raise CheckpointError(
                f"rank {', '.join(missing)} did not take part within {timeout_s:g} s",
                "call the functions of `torchyard.train.checkpoint` on every rank",
            ) from error
        return [self.store.get(name).decode() for name in keys]

    def address(self) -> StoreAddress | None:
        """Of the store, where it is a TCPStore, which other processes reach as well."""
        store = self.store
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return StoreAddress(store.host, store.port) if isinstance(store, dist.TCPStore) else None


def current() -> Ranks:
    """This process in the default process group, or alone without one."""
    if not (dist.is_available() and dist.is_initialized()):
        return Ranks(0, 1)
    store = dist.distributed_c10d._get_default_store()
    return Ranks(dist.get_rank(), dist.get_world_size(), store)


def log_name() -> str:
    """The rank as the launcher numbers it, for messages."""
    return os.environ.get("RANK") or os.environ.get("TORCHYARD_RANK") or "0"
