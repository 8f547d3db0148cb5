"""This machine's addresses.

Owns: which interfaces there are, which address others reach this machine by.
Leaves: who talks to whom to meeting.py.
Always: no name is looked up: that can take seconds and give 127.0.1.1.
"""

from __future__ import annotations

import errno
import socket
import struct
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915
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
