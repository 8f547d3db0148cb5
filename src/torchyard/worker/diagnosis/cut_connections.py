"""Find out which other nodes do not answer any more, while ranks train.

Owns: reading from the kernel's tables which nodes do not acknowledge what was sent to them.
Leaves: telling it to watches.py.
Always: nothing is sent; one lost packet says nothing, and an answer ends the silence. A rank that
waits without having sent anything is not seen on its own node, but on that of its peer.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections.abc import Callable, Sequence

from torchyard.worker.system import tcp_table

LIMIT_S = 20.0
"""After so long without an answer; the kernel has sent the same seven times by then."""
_ESTABLISHED = "01"
# A connection's inode, and the address of its other end.
_Connection = tuple[str, str]


class CutConnections:
    """The connections of one node's ranks to the other nodes of their job.

    Args:
        hosts: the address of each node, in node order.
        read: the lines of the kernel's tables, as a process sees them.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        node: int,
        read: Callable[[int], Sequence[str]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._nodes = {host: other for other, host in enumerate(hosts) if host != hosts[node]}
        self._read = read or tcp_table.lines
        self._now = now
        self._since: dict[_Connection, float] = {}
        self._told: set[str] = set()

    def news(self, pid: int) -> list[str]:
        """What is to be told since the last look, which nodes are silent and which answer again.

        Args:
            pid: a process of a rank.
        """
        now = self._now()
        found = _unanswered(self._read(pid))
        self._since = {
            connection: self._since.get(connection, now)
            for connection in found
            if connection[1] in self._nodes
        }
        silent: dict[str, float] = {}
        for (_, host), since in sorted(self._since.items()):
            silent[host] = max(now - since, silent.get(host, 0.0))
        messages = []
        for host, seconds in silent.items():
            if seconds >= LIMIT_S and host not in self._told:
                self._told.add(host)
                messages.append(
                    f"node {self._node} gets no answer from node {self._nodes[host]} ({host}): "
                    f"what its ranks sent {seconds:.0f} s ago is not acknowledged; check the "
                    "network between them, and that the machine runs"
                )
        for host in sorted(self._told - set(silent)):
            self._told.remove(host)
            messages.append(
                f"node {self._nodes[host]} ({host}) answers node {self._node} again, or their "
                "connection was closed"
            )
        return messages


def _unanswered(lines: Sequence[str]) -> list[_Connection]:
    """Connections on which something was sent again, and is still not acknowledged."""
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _ESTABLISHED:
            continue
        unacknowledged, sent_again = fields[4].partition(":")[0], fields[6]
        if int(unacknowledged, 16) and int(sent_again, 16):
            found.append((fields[9], _address(fields[2].partition(":")[0])))
    return found


def _address(written: str) -> str:
    """As people write it; the kernel writes words of the machine's byte order."""
    words = [int(written[at : at + 8], 16) for at in range(0, len(written), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    if len(words) == 1:
        return socket.inet_ntoa(packed)
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)
