"""How nodes of other machines reach this server.

Owns: the addresses and the certificate that are told to nodes.
Leaves: opening the listeners to app/listeners.py, trying the addresses to the nodes.
Always: the newest addresses; a server that moved is found at them.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

_KEPT_S = 10.0


@dataclass(frozen=True)
class NodeAddresses:
    """`urls` in the order in which nodes try them; `certificate` is PEM, the only one that they
    trust then, empty for what their machines trust.
    """

    urls: tuple[str, ...] = ()
    certificate: str = ""


class ServerForNodes:
    """
    Args:
        server_id: the home's, as in `LaunchPlan`.
        addresses: asked again after a while: a machine's addresses change.
    """

    def __init__(self, server_id: str, addresses: Callable[[], NodeAddresses]) -> None:
        self.server_id = server_id
        self._addresses = addresses
        self._read: tuple[float, NodeAddresses] | None = None

    def read(self) -> NodeAddresses:
        now = time.monotonic()
        if self._read is None or now - self._read[0] > _KEPT_S:
            self._read = (now, self._addresses())
        return self._read[1]

    @property
    def urls(self) -> list[str]:
        return list(self.read().urls)

    @property
    def certificate(self) -> str:
        """PEM."""
        return self.read().certificate


def own_addresses() -> list[str]:
    """Of this machine, those that others may reach it by, the one of the default route first."""
    addresses: list[str] = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # Nothing is sent: connecting a datagram socket only chooses the route.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            addresses.append(str(probe.getsockname()[0]))
    with suppress(OSError):
        entries = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        addresses += [str(entry[4][0]) for entry in entries]
    usable = [address for address in addresses if not ipaddress.ip_address(address).is_loopback]
    return list(dict.fromkeys(usable))


def url_of(scheme: str, host: str, port: int) -> str:
    """With the brackets that an IPv6 address needs."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
