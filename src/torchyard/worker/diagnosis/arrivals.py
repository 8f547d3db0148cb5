"""Which ranks have come to the process group's meeting place.

Owns: reading from the kernel's tables who talks to the master's port.
Leaves: how long to wait to watches.py.
Always: nothing is said to the master; a rank that was once there stays counted.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from torchyard.worker.launch.ranks import Rank
from torchyard.worker.system import processes

_ESTABLISHED, _LISTENS = "01", "0A"


class Arrivals:
    """Of the ranks of one node, at one address and port."""

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._port = port
        self.come: set[int] = set()

    def look(self, running: Mapping[int, Rank]) -> list[Rank]:
        """The ranks that run and have not come yet."""
        waited_for = {pid: rank for pid, rank in running.items() if rank.rank not in self.come}
        sockets = _sockets(self._port) if waited_for else set()
        for pid, rank in waited_for.items():
            if sockets and any(_holds(one.pid, sockets) for one in processes.below(pid)):
                self.come.add(rank.rank)
        return [rank for rank in waited_for.values() if rank.rank not in self.come]

    def others_wait(self) -> bool:
        """Whether anybody is there: a rank of this node, or whoever listens."""
        return bool(self.come) or _answers(self._address, self._port)


def _sockets(port: int) -> set[str]:
    """The kernel's numbers of all sockets that are bound or connected to the port.

    Source: proc_net_tcp in the kernel's documentation.
    """
    wanted = f":{port:04X}"
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            local, remote, state = fields[1], fields[2], fields[3]
            if state == _LISTENS and local.endswith(wanted):
                found.add(fields[9])
            elif state == _ESTABLISHED and (local.endswith(wanted) or remote.endswith(wanted)):
                found.add(fields[9])
    return found - {"0"}


def _holds(pid: int, sockets: set[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in sockets:
            return True
    return False


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 2.0).close()
    except OSError:
        return False
    return True
