"""How many client connections the router holds.

Owns: the limit in all and per address, which idle one makes way.
Leaves: what a connection does to client_side.py.
Always: a connection with a request at work is never closed for another.
"""

from __future__ import annotations

import ipaddress
import resource
from typing import Protocol

MOST = 4096
_PER_ADDRESS = 512
_OTHER_FILES = 128


class Connection(Protocol):
    """What is counted."""

    host: str

    @property
    def is_idle(self) -> bool: ...

    def abort(self) -> None: ...

    def close_if_idle(self) -> None: ...

    def check(self, now: float) -> None: ...


class Connections:
    """Of one router."""

    def __init__(self, limit: int = MOST) -> None:
        self._limit = min(limit, _affordable())
        self._all: dict[Connection, None] = {}
        self._by_host: dict[str, int] = {}
        self.refused = 0

    def __len__(self) -> int:
        return len(self._all)

    def all(self) -> list[Connection]:
        return list(self._all)

    def admit(self, connection: Connection) -> bool:
        """Whether there is a place for it."""
        host = _name(connection.host)
        is_crowded = len(self._all) >= self._limit
        if is_crowded or (host and self._by_host.get(host, 0) >= _PER_ADDRESS):
            if not self._close_one("" if is_crowded else host):
                self.refused += 1
                return False
        self._all[connection] = None
        self._by_host[host] = self._by_host.get(host, 0) + 1
        return True

    def forget(self, connection: Connection) -> None:
        if connection not in self._all:
            return
        del self._all[connection]
        host = _name(connection.host)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    def _close_one(self, host: str) -> bool:
        for connection in self._all:
            if connection.is_idle and (not host or _name(connection.host) == host):
                self.forget(connection)
                connection.abort()
                return True
        return False


def _name(host: str) -> str:
    """What is counted together; empty for this machine itself, which has no limit."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if address.is_loopback:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return "" if address.ipv4_mapped.is_loopback else str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


def _affordable() -> int:
    """How many connections the limit of open files allows, each with one to an instance."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    return max(32, (soft - _OTHER_FILES) // 2)
