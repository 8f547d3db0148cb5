"""Turn the copies of all ranks into one checkpoint, or into none.

Owns: how the ranks' writers meet in a folder, and what happens when one is missing or fails.
Leaves: the bytes of shares to shares, manifests to folders, plans to torch.distributed.checkpoint.
Always: no rank waits without a limit; the manifest is written when every share is durable.

The writers meet in `.saving-STEP-SESSION-ATTEMPT`. Each publishes the plan of what its rank has;
rank 0 publishes who writes what, so that nothing is written twice; each writes its share; rank 0
adds the metadata and the manifest, renames the folder, then the manifest. Each file of theirs is
renamed into place, so that the writer that replaces a killed one goes on where that was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan

from torchyard.train.checkpoint import folders
from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.checkpoint.rendezvous import (
    FolderRendezvous,
    Rendezvous,
    StoreAddress,
    StoreRendezvous,
)
from torchyard.train.checkpoint.retention import Retention
from torchyard.train.checkpoint.shares import ItemData, Share, write_share

# What each rank publishes; of all else there is one for all.
_OF_RANKS = ("plan", "share", "progress", "committed")
_LOOK_EVERY_S = 0.5
# Between attempts after an error of the disk; with the last one the checkpoint is given up.
_RETRY_DELAYS_S = (1.0, 4.0)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class SaveRequest:
    """One rank's part in saving a step.

    Where ranks share no folder they meet at `store`; `leaders` are the first ranks of each folder,
    and `leader` is that of this rank's.
    `saved_at` is when it was copied, in ms since 1970. `plan` is what this rank's state holds,
    `copied` the positions of its items that were copied. `ordinal` counts the saves of this step in
    this session, from 0.
    """

    folder: Path
    step: int
    session: str
    rank: int
    world_size: int
    timeout_s: float
    saved_at: int
    metric: float | None
    retention: Retention
    plan: SavePlan
    copied: tuple[int, ...]
    store: StoreAddress | None = None
    leader: int = 0
    leaders: tuple[int, ...] = (0,)
    ordinal: int = 0


class _Failed(Exception):
    """An attempt failed on some rank; `is_final` means that no other attempt follows."""

    def __init__(self, message: str, is_final: bool) -> None:
        super().__init__(message)
        self.message = message
        self.is_final = is_final


class _Committed(Exception):
    """The save is done."""

    def __init__(self, info: CheckpointInfo) -> None:
        super().__init__(info.save_id)
        self.info = info


class Commit:
    """One save on one rank."""

    def __init__(
        self,
        request: SaveRequest,
        read: Callable[[int], ItemData],
        log: Callable[[str], None],
        on_share: Callable[[tuple[int, ...]], None] = lambda positions: None,
    ) -> None:
        """`read` gives the data of an item of the plan by its position.

        `log` is told of attempts that fail, `on_share` which items this rank writes.
        """
        self._request = request
        self._read = read
        self._log = log
        self._on_share = on_share

    def run(self) -> CheckpointInfo:
        """Return the checkpoint when it is durable.

        Raises:
            CheckpointError: a rank is missing, its state does not fit, or the disk failed.
        """
        for number, delay_s in enumerate((*_RETRY_DELAYS_S, None)):
            attempt = _Attempt(self._request, number, self._read, self._on_share)
            try:
                return attempt.run()
            except _Failed as error:
                message = f"checkpoint of step {self._request.step} failed: {error.message}"
                if error.is_final or delay_s is None:
                    raise CheckpointError(message, _hint(error.message)) from error
                self._log(f"{message}; trying again in {delay_s:g} s")
                time.sleep(delay_s)
        raise AssertionError("the last attempt returns or raises")


class _Attempt:
    def __init__(
        self,
        request: SaveRequest,
        number: int,
        read: Callable[[int], ItemData],
        on_share: Callable[[tuple[int, ...]], None],
    ) -> None:
        self._request = request
        self._data = read
        self._on_share = on_share
        self._prefix = f"{request.step:08d}-{request.session}-{request.ordinal}-"
        self._save_id = f"{self._prefix}{number}"
        self._folder = request.folder / f"{folders.TEMPORARY}{self._save_id}"
        self._rendezvous: Rendezvous = FolderRendezvous(self._folder)
        self._progress_at = time.monotonic()

    def run(self) -> CheckpointInfo:
        request = self._request
        try:
            if request.store is not None:
                self._rendezvous = StoreRendezvous(request.store, self._save_id)
            if request.rank == request.leader:
                folders.finish_commit(request.folder, self._prefix)
            self._check_committed()  # by the writer that this one replaces
            request.folder.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(exist_ok=True)
            return self._take_part()
        except _Committed as error:
            if request.rank == 0:
                self._remove_notes(error.info.path)
            return error.info
        except OSError as error:
            self._remove_share()  # makes room for the note that says so
            raise self._fail(_os_message(error), is_final=False) from error

    def _take_part(self) -> CheckpointInfo:
        request = self._request
        self._check_failed()
        self._publish("plan", pickle.dumps((request.plan, request.copied)))
        if request.rank == 0:
            self._assign()
        else:
            # Rank 0 waits its own time for the others, then says who is missing.
            self._wait_for("plan", [0], request.timeout_s, "did not save")
            self._wait_for("assigned", [0], 2 * request.timeout_s, "did not plan")
        shares, metadata = self._read("assigned", 0)
        self._write(shares[request.rank])
        if request.rank == 0:
            return self._commit(metadata)
        self._wait_for_commit()

    def _assign(self) -> None:
        """Say which rank writes which item."""
        if self._rendezvous.has("assigned", 0):
            return
        ranks = range(self._request.world_size)
        self._wait_for("plan", ranks, self._request.timeout_s, "did not save")
        published = [self._read("plan", rank) for rank in ranks]
        try:
            shares, metadata = assign(published)
        except ValueError as error:
            raise self._fail(str(error), is_final=True) from error
        self._publish("assigned", pickle.dumps((shares, metadata)))

    def _write(self, indexes: Sequence[MetadataIndex]) -> None:
        request = self._request
        positions = {item.index: number for number, item in enumerate(request.plan.items)}
        chosen = tuple(positions[index] for index in indexes)
        self._on_share(chosen)
        if self._rendezvous.has("share", request.rank):
            return

        def read(number: int) -> ItemData:
            self._tell_progress(number)
            return self._data(chosen[number])

        share = write_share(self._folder, request.rank, indexes, read)
        self._publish("share", pickle.dumps(share))

    def _commit(self, metadata: Metadata) -> CheckpointInfo:
        request = self._request
        ranks = range(request.world_size)
        self._wait_for("share", ranks, request.timeout_s, "did not write its share", growing=True)
        shares: list[Share] = [self._read("share", rank) for rank in ranks]
        storage_data = {
            index: storage for share in shares for index, storage in share.places.items()
        }
        content = pickle.dumps(replace(metadata, storage_data=storage_data))
        files = {share.name: share.file for share in shares}
        files[".metadata"] = folders.sum_of(content)
        path = folders.final_path(request.folder, request.step)
        info = CheckpointInfo(
            step=request.step, path=path, ranks=request.world_size,
            created_at=datetime.now(timezone.utc).isoformat(), saved_at=request.saved_at,
            metric=request.metric,
            save_id=self._save_id, format=folders.FORMAT, files=files,
        )  # fmt: skip
        others = [rank for rank in request.leaders if rank != 0]
        if others:
            # Rank 0 comes last: what it loads is there in every folder.
            self._publish("commit", pickle.dumps((info, content)))
            self._wait_for("committed", others, request.timeout_s, "did not commit it")
        folders.write_durably(self._folder / ".metadata", content)
        folders.commit(info, self._folder)
        self._remove_notes(path)
        return info

    def _remove_notes(self, path: Path) -> None:
        """Remove that by which the writers met; only here is it needed no more."""
        # Notes in the folder went with it to its place.
        rendezvous = FolderRendezvous(path) if self._request.store is None else self._rendezvous
        notes = [("assigned", 0), ("commit", 0)]
        for rank in range(self._request.world_size):
            notes += [(kind, rank) for kind in _OF_RANKS]
        for kind, rank in notes:
            rendezvous.remove(kind, rank)

    def _follow(self) -> None:
        """In a folder that rank 0 does not see, its first rank commits what rank 0 has."""
        commit = self._rendezvous.read("commit", 0)
        if commit is None or self._request.rank != self._request.leader:
            return
        info, metadata = pickle.loads(commit)
        path = self._request.folder / info.path.name
        if path.exists():
            folders.remove(path)
        folders.write_durably(self._folder / ".metadata", metadata)
        folders.commit(replace(info, path=path), self._folder)

    def _wait_for_commit(self) -> NoReturn:
        """Rank 0 waits as long as shares grow, and says so when one doesn't."""
        until = time.monotonic() + self._request.timeout_s
        sizes = self._sizes()
        while True:
            if self._request.leader != 0:
                self._follow()
            self._check_committed()
            self._check_failed()
            if (current := self._sizes()) != sizes:
                sizes, until = current, time.monotonic() + 2 * self._request.timeout_s
            if time.monotonic() > until:
                raise self._fail("rank 0 did not commit it", is_final=True)
            time.sleep(self._rendezvous.poll_s)

    def _wait_for(
        self, kind: str, ranks: Sequence[int], timeout_s: float, problem: str, growing: bool = False
    ) -> None:
        """Wait for files of ranks; a share that still grows is waited for."""
        until = time.monotonic() + timeout_s
        look_at = time.monotonic() + _LOOK_EVERY_S
        sizes = self._sizes() if growing else {}
        while missing := [rank for rank in ranks if not self._rendezvous.has(kind, rank)]:
            self._check_failed()
            if time.monotonic() > look_at:
                # The writer that this one replaces may have done its part in the meantime.
                self._check_committed()
                look_at = time.monotonic() + _LOOK_EVERY_S
            if growing and (current := self._sizes()) != sizes:
                sizes, until = current, time.monotonic() + timeout_s
            if time.monotonic() > until:
                rank_list = ", ".join(map(str, missing))
                ranks_named = f"rank {rank_list}" if len(missing) == 1 else f"ranks {rank_list}"
                raise self._fail(
                    f"{ranks_named} {problem} step {self._request.step} within {timeout_s:g} s"
                    if kind == "plan"
                    else f"{ranks_named} {problem} within {timeout_s:g} s",
                    is_final=True,
                )
            time.sleep(self._rendezvous.poll_s)

    def _fail(self, message: str, is_final: bool) -> _Failed:
        """Tell the other ranks; the first failure is what all of them report."""
        with contextlib.suppress(OSError):
            if not self._rendezvous.has("failed", 0):
                message = f"rank {self._request.rank}: {message}" if not is_final else message
                self._publish("failed", pickle.dumps((message, is_final)))
        return _Failed(message, is_final)

    def _check_committed(self) -> None:
        info = folders.committed(self._request.folder, self._prefix)
        if info is None:
            return
        if self._request.rank == self._request.leader != 0:
            self._publish("committed", b"")
        raise _Committed(info)

    def _check_failed(self) -> None:
        content = self._rendezvous.read("failed", 0)
        if content is None:
            return
        message, is_final = pickle.loads(content)
        # No rank comes back to this attempt; the note stays for those that are late.
        self._remove_share()
        raise _Failed(message, is_final)

    def _remove_share(self) -> None:
        with contextlib.suppress(OSError):
            (self._folder / f"__{self._request.rank}_0.distcp").unlink()

    def _tell_progress(self, number: int) -> None:
        """To ranks that do not see this one's file grow."""
        if self._request.store is not None and time.monotonic() > self._progress_at + 1:
            self._progress_at = time.monotonic()
            self._publish("progress", str(number).encode())

    def _sizes(self) -> dict[str, Any]:
        """What tells of every share whether it grows."""
        if self._request.store is not None:
            ranks = range(self._request.world_size)
            return {str(rank): self._rendezvous.read("progress", rank) for rank in ranks}
        sizes = {}
        for rank in range(self._request.world_size):
            with contextlib.suppress(OSError):
                name = f"__{rank}_0.distcp"
                sizes[name] = (self._folder / name).stat().st_size
        return sizes

    def _publish(self, kind: str, content: bytes) -> None:
        self._rendezvous.publish(kind, self._request.rank if kind in _OF_RANKS else 0, content)

    def _read(self, kind: str, rank: int) -> Any:
        content = self._rendezvous.read(kind, rank)
        assert content is not None, f"{kind} of rank {rank} is there"
        return pickle.loads(content)


def assign(
    published: Sequence[tuple[SavePlan, tuple[int, ...]]],
) -> tuple[list[list[MetadataIndex]], Metadata]:
    """Return the items that each rank writes, and the metadata of them all.

    Each rank published its plan and the positions of the items that it copied. Of several ranks
    that copied an item, the one with the least to write writes it.

    Raises:
        ValueError: an item was copied by no rank, or pieces of a tensor overlap or are missing.
    """
    plans = [
        replace(plan, items=[plan.items[position] for position in copied])
        for plan, copied in published
    ]
    there = {item.index for plan in plans for item in plan.items}
    for plan, _ in published:
        for item in plan.items:
            if item.index not in there:
                raise ValueError(f"`{item.index.fqn}` was copied by no rank")
    shares, metadata = DefaultSavePlanner().create_global_plan(plans)
    return [[item.index for item in share.items] for share in shares], metadata


def _os_message(error: OSError) -> str:
    file_note = f" ({error.filename})" if error.filename else ""
    return f"{error.strerror or error}{file_note}"


def _hint(message: str) -> str:
    if any(os.strerror(code) in message for code in _DISK_FULL):
        return (
            "free space, or keep fewer checkpoints with `keep_last`; training goes on, and the "
            "next checkpoint tries again"
        )
    if "did not save" in message:
        return "call `checkpoint.save` with the same step on every rank"
    return ""
