"""How nodes of other machines reach this server.

Owns: the addresses and the certificate that nodes get; refusing a cluster whose nodes can't reach
any of the addresses.
Leaves: opening the listeners to app/listeners.py, trying the addresses to the nodes.
Always: the newest addresses; a server that moved is found at them.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from torchyard.base import addresses
from torchyard.executors.executor import EngineNode, EngineRefused

_KEPT_S = 10.0
_RESOLVE_S = 5.0
_SIOCGIFADDR = 0x8915


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

    def urls_for(self, settings: Mapping[str, Any]) -> list[str]:
        """Where the nodes of a cluster with these settings look for the server, in this order."""
        return list(settings.get("server_urls") or self.urls)

    @property
    def public_urls(self) -> list[str]:
        """Those by which other machines may reach the server; empty when none can."""
        return [url for url in self.urls if not addresses.is_loopback(urlsplit(url).hostname or "")]

    @property
    def certificate(self) -> str:
        """PEM."""
        return self.read().certificate

    def check_reachable(self, settings: Mapping[str, Any], nodes: Iterable[EngineNode]) -> None:
        """
        Raises:
            EngineRefused: only this machine can reach the server, and a node is another one.
        """
        urls = self.urls_for(settings)
        if not all(addresses.is_loopback(urlsplit(url).hostname or "") for url in urls):
            return
        far = next((node for node in nodes if node.address and not _is_here(node.address)), None)
        if far is not None:
            raise EngineRefused(
                f"node `{far.name}` ({far.address}) can't reach this server, which listens at "
                f"{', '.join(urls)} alone",
                "start it with `yard server start --listen`, and open its TCP port to the nodes; "
                "`torchyard: {server_urls: [https://this-machine:8766]}` names an address of it",
            )


def _is_here(host: str) -> bool:
    """Whether an address, or a name, is this machine's."""
    if addresses.is_loopback(host):
        return True
    with suppress(OSError):
        for family, address in addresses.resolve((host, 0), socket.SOCK_DGRAM, _RESOLVE_S):
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind(address)  # another machine's is refused
                return True
    return False


def own_addresses() -> list[str]:
    """Of this machine, those that others may reach it by, the one of the default route first.

    Of further networks only IPv4 addresses: each interface has several others of IPv6 that come
    and go. Those of bridges are left out, behind which are mostly this machine's own containers.
    """
    found: list[str] = []
    for family, target in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # Nothing is sent: connecting a datagram socket only chooses the route.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            found.append(str(probe.getsockname()[0]))
    with suppress(OSError):
        entries = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        found += [str(entry[4][0]) for entry in entries]
    found += _addresses_of_interfaces()
    usable = [address for address in found if not ipaddress.ip_address(address).is_loopback]
    return list(dict.fromkeys(usable))


def _addresses_of_interfaces() -> list[str]:
    """IPv4 addresses, in the order of the interfaces.

    Source: netdevice(7), SIOCGIFADDR.
    """
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            if os.path.isdir(f"/sys/class/net/{name}/bridge"):
                continue
            with suppress(OSError):
                request = struct.pack("256s", os.fsencode(name)[:15])
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


def url_of(scheme: str, host: str, port: int) -> str:
    """With the brackets that an IPv6 address needs."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
