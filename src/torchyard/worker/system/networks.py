"""This machine's addresses.

Owns: which interfaces there are, which address others reach this machine by.
Leaves: who talks to whom to preflight/rendezvous.py.
Always: no name is looked up: that can take seconds and give 127.0.1.1.
"""

from __future__ import annotations

import errno
import socket
import struct
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915
_SIOCGIFMTU = 0x8921
# Documentation's own net (RFC 5737): asking for the way there sends nothing.
_SOMEWHERE = "192.0.2.1"


def interfaces() -> dict[str, str]:
    """IPv4 address by interface name."""
    import fcntl

    found: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(asker.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def interface_of(address: str) -> str:
    """The name of the interface that has this address, empty when none has."""
    return next((name for name, own in interfaces().items() if own == address), "")


def all_addresses() -> dict[str, list[str]]:
    """IPv4 and IPv6 addresses by interface name; one without any is left out.

    Source: /proc/net/if_inet6 as proc_net(5) has it.
    """
    found = {name: [own] for name, own in interfaces().items()}
    try:
        with open("/proc/net/if_inet6") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    for fields in map(str.split, lines):
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))
        found.setdefault(fields[5], []).append(address)
    return found


def mtu_of(interface: str) -> int:
    """The largest packet in bytes, -1 where there is no such interface."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        try:
            request = struct.pack("256s", interface.encode()[:15])
            answer = fcntl.ioctl(asker.fileno(), _SIOCGIFMTU, request)
        except OSError:
            return -1
    return int(struct.unpack("i", answer[16:20])[0])


def own_address(server_url: str) -> str:
    """The address by which other machines reach this one; loopback only when it has no other."""
    for host in (urlsplit(server_url).hostname or LOOPBACK, _SOMEWHERE):
        address = _address_towards(host)
        if address and not address.startswith("127."):
            return address
    others = [own for own in interfaces().values() if not own.startswith("127.")]
    return others[0] if others else LOOPBACK


def answers(address: str, port: int, timeout_s: float = 5.0) -> bool:
    """Whether the machine at this address answers; a refused connection is an answer too."""
    try:
        socket.create_connection((address, port), timeout_s).close()
    except OSError as error:
        return error.errno == errno.ECONNREFUSED
    return True


def _address_towards(host: str) -> str:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
            asker.connect((host, 9))
            return str(asker.getsockname()[0])
    except OSError:
        return ""
