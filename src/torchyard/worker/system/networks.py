"""This machine's addresses.

Owns: listing interfaces, choosing the address by which others reach this machine.
Leaves: which nodes connect to preflight/rendezvous.py.
Always: no host name is resolved: that can take seconds and return 127.0.1.1.
"""

from __future__ import annotations

import errno
import socket
import struct
from urllib.parse import urlsplit

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915
_SIOCGIFMTU = 0x8921
# The network for documentation (RFC 5737); finding the route to it sends nothing.
_OUTSIDE = "192.0.2.1"


def interfaces() -> dict[str, str]:
    """IPv4 address by interface name."""
    import fcntl

    addresses: dict[str, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                response = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue
            addresses[name] = socket.inet_ntoa(response[20:24])
    return addresses


def interface_of(address: str) -> str:
    """The name of the interface with this address, empty when none has it.

    All addresses from 127.0.0.1 up are those of one interface.
    """
    if address.startswith("127."):
        address = LOOPBACK
    return next((name for name, ipv4 in interfaces().items() if ipv4 == address), "")


def all_addresses() -> dict[str, list[str]]:
    """IPv4 and IPv6 addresses by interface name; one without any is left out.

    Source: /proc/net/if_inet6 as proc_net(5) has it.
    """
    addresses = {name: [address] for name, address in interfaces().items()}
    try:
        with open("/proc/net/if_inet6") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    for fields in map(str.split, lines):
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[0]))
        addresses.setdefault(fields[5], []).append(address)
    return addresses


def mtu_of(interface: str) -> int:
    """The largest packet in bytes, -1 where there is no such interface."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            request = struct.pack("256s", interface.encode()[:15])
            response = fcntl.ioctl(probe.fileno(), _SIOCGIFMTU, request)
        except OSError:
            return -1
    return int(struct.unpack("i", response[16:20])[0])


def own_address(server_url: str) -> str:
    """The address by which other machines reach this one; loopback only when it has no other."""
    for host in (urlsplit(server_url).hostname or LOOPBACK, _OUTSIDE):
        address = _address_towards(host)
        if address and not address.startswith("127."):
            return address
    others = [ipv4 for ipv4 in interfaces().values() if not ipv4.startswith("127.")]
    return others[0] if others else LOOPBACK


def answers(address: str, port: int, timeout_s: float = 5.0) -> bool:
    """Whether the machine at this address responds; a refused connection is a response, too."""
    try:
        socket.create_connection((address, port), timeout_s).close()
    except OSError as error:
        return error.errno == errno.ECONNREFUSED
    return True


def _address_towards(host: str) -> str:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""
