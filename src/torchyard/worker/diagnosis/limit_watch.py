"""Watch that the ranks of a node stay within the job's limits, and that their logs have space.

Owns: which limit was met and the failure for it, when the disk is too full to go on.
Leaves: limits that the kernel holds by itself to system/cgroups.py and system/rank_limits.py,
measuring to files/disk_use.py, reserving space to files/log_space.py.
Always: a job is ended before what it prints is lost; what may have been lost is told. A check takes
a bounded time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared import history_spool
from torchyard.shared.connection import AttemptOver
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan, LimitsPlan
from torchyard.worker.files.disk_use import DiskUse
from torchyard.worker.files.log_space import LogSpace
from torchyard.worker.files.node_folders import NodeFolders
from torchyard.worker.launch.ranks import Rank, Watch
from torchyard.worker.system import cgroups, processes
from torchyard.worker.system.cgroups import InForce

PROCESS_LIMIT, DISK_LIMIT, DISK_FULL = "process_limit", "disk_limit", "disk_full"
_EVERY_S, _NEARLY_FULL_EVERY_S = 1.0, 0.1
# Reading all of /proc takes longer than one file of a cgroup.
_COUNT_EVERY_S = 5.0
_MAKE_OTHER_AFTER_S = 10.0
# A log's space lasts until the ranks have been told to stop, and have said why.
_LEAST_SHARE = 8
_MIB = 1 << 20
_PROCESS_HINT = (
    "look for a program that starts processes or threads without end; a job that needs more says "
    "so: property `torchyard.max_processes`"
)
# What bash and dash print.
_FORK_REFUSED = (
    b"fork: retry: Resource temporarily unavailable",
    b"fork: Resource temporarily unavailable",
    b": Cannot fork",
)
_END_BYTES = 64 << 10
_SPACE_HINT = "write less, or free some space: `yard gc --explain` lists what can be removed"


@dataclass(frozen=True)
class WatchedNode:
    """The node: its number, the mark of its processes, its folders, the logs of its ranks.

    `counted` says that its cgroup counts processes.
    """

    number: int
    mark: str
    folders: NodeFolders
    logs: tuple[Path, ...]
    counted: bool


class LimitWatch:
    """Made before the ranks start: from then on their logs have space.

    `other` is a watch that is checked at the same times; `make_other` makes it after ten seconds
    where short jobs need none. `disk_full` says that the ranks found no space when last checked.

    Args:
        notify: shows a sentence to the user.
    """

    def __init__(
        self, node: WatchedNode, limits: LimitsPlan, notify: Callable[[str], None]
    ) -> None:
        self._node = node
        self._limits = limits
        self._notify = notify
        self.other: Watch | None = None
        self.make_other: Callable[[], Watch] | None = None
        self._started = time.monotonic()
        self._space = LogSpace(node.folders.node)
        self._disk_use = DiskUse(node.folders.node) if limits.disk_bytes else None
        self._refused = cgroups.refused_processes(node.mark)
        self._counted_at = time.monotonic()
        self.disk_full = self._told_full = False
        self._lost: dict[Path, int] = {}
        for log in node.logs:
            log.touch()
        self._space.reserve(self._growing())

    @property
    def used_bytes(self) -> int:
        """What the ranks have written, as last measured; 0 where nothing limits it."""
        return self._disk_use.size_bytes if self._disk_use is not None else 0

    @property
    def log_sizes(self) -> tuple[int, ...]:
        """How much each rank has printed, in bytes."""
        return tuple(log.stat().st_size if log.exists() else 0 for log in self._node.logs)

    def check(self, running: Mapping[int, Rank]) -> float:
        """As `Watch.check`.

        Raises:
            AttemptOver: the node's folder is gone, and with it all that could be delivered.
        """
        if not self._node.folders.node.exists():
            raise AttemptOver(f"the folder `{self._node.folders.node}` was deleted")
        intervals_s = [_EVERY_S]
        if self.make_other is not None and time.monotonic() >= self._started + _MAKE_OTHER_AFTER_S:
            self.other, self.make_other = self.make_other(), None
        if self.other is not None:
            intervals_s.append(self.other.check(running))
        self._check_processes()
        self._check_disk_use()
        if self._check_log_space():
            intervals_s.append(_NEARLY_FULL_EVERY_S)
        return min(intervals_s)

    def ending(self, running: Mapping[int, Rank]) -> None:
        if self.other is not None:
            self.other.ending(running)

    def explain(self, failure: Failure | None) -> Failure | None:
        """The failure of ranks that have ended, or the limit that they met."""
        self.disk_full = self.disk_full or self._space.is_full()
        self._look_for_losses()
        self._space.release()
        if failure is None:
            self._tell_refused_processes()
            return None
        details = {**failure.details, "ended": failure.message}
        if self._refused_more():
            return self._too_many_processes(details)
        if self._disk_use is not None and self._exceeds_disk():
            return self._too_much_disk(details)
        return failure

    # Processes

    def _check_processes(self) -> None:
        if self._refused_more():
            # Or they would be started faster than they are ended.
            cgroups.allow_no_processes(self._node.mark)
            raise self._too_many_processes({})
        now = time.monotonic()
        limit = self._limits.processes
        if self._node.counted or not limit or now < self._counted_at + _COUNT_EVERY_S:
            return
        self._counted_at = now
        if len(processes.family(os.getpid(), self._node.mark)) >= limit:
            raise self._too_many_processes({})

    def _refused_more(self) -> bool:
        return cgroups.refused_processes(self._node.mark) > self._refused

    def _too_many_processes(self, details: Mapping[str, object]) -> Failure:
        return Failure(
            PROCESS_LIMIT,
            f"the ranks on node {self._node.number} started more processes and threads than the "
            f"{self._limits.processes:,} they may have at once",
            _PROCESS_HINT,
            details={**details, "node": self._node.number, "limit": self._limits.processes},
        )

    def _tell_refused_processes(self) -> None:
        """Of ranks that succeeded all the same: a shell goes on where it can't start a program."""
        if self._refused_more():
            failure = self._too_many_processes({})
            self._notify(f"{failure.message}, and the job went on: {failure.hint}")
            return
        for log in self._node.logs:
            if any(words in _ends_of(log) for words in _FORK_REFUSED):
                self._notify(
                    f"a shell on node {self._node.number} could not start a process, because the "
                    f"job or the machine reached its limit of them, and went on: see {log.name}; "
                    f"{_PROCESS_HINT}"
                )
                return

    # Disk

    def _check_disk_use(self) -> None:
        if self._disk_use is not None and self._exceeds_disk():
            raise self._too_much_disk({})

    def _exceeds_disk(self) -> bool:
        assert self._disk_use is not None
        return self._disk_use.measure() > self._limits.disk_bytes

    def _too_much_disk(self, details: Mapping[str, object]) -> Failure:
        size_bytes = self._disk_use.size_bytes if self._disk_use is not None else 0
        limit_mb = self._limits.disk_bytes / _MIB
        return Failure(
            DISK_LIMIT,
            f"the ranks on node {self._node.number} wrote {size_bytes / _MIB:,.0f} MiB, and may "
            f"write {limit_mb:,.0f} MiB",
            "remove checkpoints that are no longer needed, or raise the property "
            "`torchyard.disk_quota_mb` as far as the workspace allows",
            details={**details, "node": self._node.number, "limit_bytes": self._limits.disk_bytes},
        )

    def _check_log_space(self) -> bool:
        """Reserve more; True while the disk has no more."""
        short = self._space.reserve(self._growing())
        full = bool(short) or self._space.is_full()
        # Once: where others write and remove files, the disk is full again and again.
        if full and not self._told_full:
            self._told_full = True
            self._notify(
                f"no space left on `scratch` of node {self._node.number}: files that the job "
                "writes are refused; its logs and metrics use space kept for them"
            )
        self.disk_full = full
        self._look_for_losses()
        for log in self._node.logs:
            if log in short and short[log] < self._space.ahead_bytes // _LEAST_SHARE:
                raise self._no_space_for(log)
        return full

    def _no_space_for(self, log: Path) -> Failure:
        return Failure(
            DISK_FULL,
            f"no space left on `scratch` of node {self._node.number}: the job was stopped because "
            f"what it prints to {log.name} has no more space",
            _SPACE_HINT,
            details={"node": self._node.number},
        )

    def _look_for_losses(self) -> None:
        """Tell of logs that fill their space to the end: what came after it was refused."""
        if not self.disk_full:
            return
        for log in self._node.logs:
            try:
                status = os.stat(log)
            except OSError:
                continue
            if status.st_size < status.st_blocks * 512 or self._lost.get(log) == status.st_size:
                continue
            first_time = log not in self._lost
            self._lost[log] = status.st_size
            if first_time:
                self._notify(
                    f"{log.name} on node {self._node.number} is incomplete: no space was left "
                    f"after {status.st_size:,} bytes, {_lines_in(log):,} lines"
                )

    def _growing(self) -> Iterable[Path]:
        """The files that grow while ranks run: their logs, and what the worker keeps of history."""
        spool = self._node.folders.spool
        folder = spool / "history"
        history = [folder / name for name in history_spool.files_in(folder)[-1:]]
        return [*self._node.logs, *history, spool / "events.jsonl"]


def limit_notices(node: int, plan: LaunchPlan, in_force: InForce) -> Iterator[str]:
    """What the user is told of the limits; nothing where the ordinary ones hold."""
    processes_limit = f"{plan.limits.processes:,} processes"
    enforced = [limit for limit in in_force.held if limit != processes_limit]
    if enforced:
        yield f"node {node} is limited to {' and '.join(enforced)} by its compute size"
    missing = [limit for limit in in_force.missing if limit != processes_limit]
    if missing:
        yield (
            f"node {node} can't hold its limit of {' and '.join(missing)}: it has no cgroup of its "
            "own; `yard doctor` says what is missing"
        )


def _ends_of(file: Path) -> bytes:
    """The beginning and the end of a log."""
    try:
        with open(file, "rb") as reader:
            head = reader.read(_END_BYTES)
            reader.seek(max(len(head), reader.seek(0, os.SEEK_END) - _END_BYTES))
            return head + reader.read(_END_BYTES)
    except OSError:
        return b""


def _lines_in(file: Path) -> int:
    count = 0
    with open(file, "rb") as reader:
        while chunk := reader.read(1 << 20):
            count += chunk.count(b"\n")
    return count
