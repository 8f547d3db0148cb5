"""What the files of a node's folder say about its worker.

Owns: reading worker.json and plan.json, the state of a node.
Leaves: writing them to worker/node/, acting on the state to executors/ and runner/.
Always: a file that somebody else put there can't hurt: no link is followed, nothing is waited for,
no more than a limit is read, and what is not a record counts as none.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import Any, Literal, Optional

from torchyard.shared import processes

State = Literal["running", "ending", "exited", "lost"]
WORKER = "worker.json"
EXIT = "exit.json"
PLAN = "plan.json"
# Tells a worker that the signal which asks it to end is the server's.
STOP = "stop-requested"
STARTER_DIED = "starter-died"
_MOST_BYTES = 8 << 20
_MOST_DEVICES = 64
SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class NodeRecords:
    """The records of one attempt, by its scratch folder.

    Args:
        scratch: a path, or the folder as a descriptor.
    """

    def __init__(self, scratch: str, dir_fd: Optional[int] = None) -> None:
        self._scratch = scratch
        self._dir_fd = dir_fd

    def worker(self, node: int) -> Optional[dict[str, Any]]:
        """The worker's own record; None before it wrote one."""
        return self._read(f"node-{node}/{WORKER}")

    def has_begun(self, node: int) -> bool:
        """Whether the node's folder exists; it is made just before its worker is started."""
        return self._exists(f"node-{node}")

    def devices(self, node_count: int) -> list[list[dict[str, Any]]]:
        """The devices that an earlier launch of the attempt gave its nodes, by node."""
        written = (self._read(PLAN) or {}).get("devices")
        nodes = written if isinstance(written, list) else []
        devices = [_devices(node) for node in nodes[:node_count]]
        return devices + [[] for _ in range(node_count - len(devices))]

    def state(self, node: int, launched: Mapping[str, Any]) -> State:
        """
        Args:
            launched: pid and start_time of the process that a launch started.
        """
        # Read in this order: a worker is recorded, writes its exit, and then ends.
        worker = self.worker(node)
        supervisor = (worker or {}).get("supervisor") or {}
        if worker is not None and is_running(worker):
            return "running"
        if self._exists(f"node-{node}/{EXIT}"):
            # Its supervisor still reads the folder, which must not be emptied before.
            return "ending" if is_running(supervisor) else "exited"
        if worker is None and is_running(launched):
            return "running"
        if worker is not None and (is_running(launched) or is_running(supervisor)):
            return "ending"
        # It may have been recorded, or have ended, since the first read.
        if self.worker(node) != worker or self._exists(f"node-{node}/{EXIT}"):
            return self.state(node, launched)
        return "lost"

    def reported_state(self, node: int) -> State:
        """The state of a node on another machine, by its files alone."""
        return "exited" if self._exists(f"node-{node}/{EXIT}") else "running"

    def note_stop(self, node: int) -> None:
        """Say that the SIGTERM which follows is the server's; nothing without a worker."""
        self._touch(node, STOP)

    def note_starter_died(self, node: int) -> None:
        """Say that the SIGTERM which follows is for the end of what the node's engine started."""
        self._touch(node, STARTER_DIED)

    def _touch(self, node: int, name: str) -> None:
        path = os.path.join(self._scratch, f"node-{node}", name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            os.close(os.open(path, flags, 0o600, dir_fd=self._dir_fd))
        except OSError:
            pass  # a folder that is gone has no worker

    def _read(self, name: str) -> Optional[dict[str, Any]]:
        try:
            descriptor = os.open(os.path.join(self._scratch, name), SAFELY, dir_fd=self._dir_fd)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            with open(descriptor, "rb", closefd=False) as file:
                body = json.loads(file.read(_MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        finally:
            os.close(descriptor)
        return body if isinstance(body, dict) else None

    def _exists(self, name: str) -> bool:
        try:
            os.lstat(os.path.join(self._scratch, name), dir_fd=self._dir_fd)
        except OSError:
            return False
        return True


def receipt(process: Mapping[str, Any]) -> dict[str, int]:
    """pid and start_time of a process; zeros where it has none."""
    if not isinstance(process, Mapping):
        return receipt({})
    return {key: _unsigned_integer(process.get(key)) for key in ("pid", "start_time")}


def is_running(process: Mapping[str, Any]) -> bool:
    if not isinstance(process, Mapping):
        return False
    return processes.is_running(
        _unsigned_integer(process.get("pid")), _unsigned_integer(process.get("start_time"))
    )


def _devices(written: Any) -> list[dict[str, Any]]:
    devices = []
    for device in written[:_MOST_DEVICES] if isinstance(written, list) else []:
        if not isinstance(device, dict):
            continue
        kind, index, uuid = (device.get(key) for key in ("kind", "index", "uuid"))
        if isinstance(kind, str) and isinstance(index, int) and isinstance(uuid, str):
            devices.append({"kind": kind[:100], "index": index, "uuid": uuid[:200]})
    return devices


def _unsigned_integer(value: Any) -> int:
    # A worker's record is its user's to write.
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0
