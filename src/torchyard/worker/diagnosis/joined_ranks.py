"""Find out which ranks have joined the process group's rendezvous, and which listen on a port.

Owns: reading connections and listening sockets from the kernel's tables.
Leaves: how long to wait to watches.py.
Always: nothing is sent to the master; a rank that has joined once stays joined.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping

from torchyard.worker.launch.ranks import Rank
from torchyard.worker.system import processes, tcp_table

_ESTABLISHED, _LISTENS = "01", "0A"


class JoinedRanks:
    """The joined ranks of one node, at one master address and port."""

    def __init__(self, address: str, port: int) -> None:
        self._address = address
        self._port = port
        self.joined: set[int] = set()

    def find_missing(self, running: Mapping[int, Rank]) -> list[Rank]:
        """The running ranks that have not joined yet."""
        missing = {pid: rank for pid, rank in running.items() if rank.rank not in self.joined}
        sockets = _sockets(self._port) if missing else set()
        for pid, rank in missing.items():
            if sockets and any(
                _has_socket(process.pid, sockets) for process in processes.below(pid)
            ):
                self.joined.add(rank.rank)
        return [rank for rank in missing.values() if rank.rank not in self.joined]

    def has_members(self) -> bool:
        """Whether any rank has joined: one of this node, or the master on another node."""
        return bool(self.joined) or _accepts_connections(self._address, self._port)


def listeners(rank_numbers: Mapping[int, int]) -> dict[int, int]:
    """The rank that listens, by port.

    Args:
        rank_numbers: of the running ranks, by pid.
    """
    ports = {
        inode: int(local.rpartition(":")[2], 16)
        for local, _, state, inode in _tcp_sockets()
        if state == _LISTENS
    }
    return {
        ports[inode]: rank
        for pid, rank in rank_numbers.items()
        for process in processes.below(pid)
        for inode in _inodes(process.pid)
        if inode in ports
    }


def _sockets(port: int) -> set[str]:
    """The inodes of all sockets that listen on the port or are connected to it."""
    port_suffix = f":{port:04X}"
    inodes = set()
    for local, remote, state, inode in _tcp_sockets():
        is_at_port = local.endswith(port_suffix)
        if (state == _LISTENS and is_at_port) or (
            state == _ESTABLISHED and (is_at_port or remote.endswith(port_suffix))
        ):
            inodes.add(inode)
    return inodes - {"0"}


def _tcp_sockets() -> Iterator[tuple[str, str, str, str]]:
    """(local address, remote address, state, inode), as the kernel writes them."""
    for line in tcp_table.lines():
        fields = line.split()
        yield fields[1], fields[2], fields[3], fields[9]


def _has_socket(pid: int, sockets: set[str]) -> bool:
    return any(inode in sockets for inode in _inodes(pid))


def _inodes(pid: int) -> Iterator[str]:
    """Those of the sockets that a process has open."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _accepts_connections(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 2.0).close()
    except OSError:
        return False
    return True
