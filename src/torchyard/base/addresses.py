"""IP addresses of clients, and of hosts that a server connects to.

Owns: which addresses count as one client, networks that an owner names, resolving a host's name
within a limit, which addresses are of the public internet.
Leaves: which address a request comes from to uvicorn.
Always: an IPv4 address counts the same however it is written.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from torchyard.base.errors import InvalidInput

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolved = tuple[int, tuple[Any, ...]]
"""A family, and an address as `socket.connect` takes it."""
# Translators turn its addresses into the IPv4 address in their last 32 bits.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# What Python calls global although it leads to a cloud's own services, or nowhere: Azure's and
# Oracle's metadata, and the second network for documentation (RFC 9637).
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text) for text in ("168.63.129.16/32", "192.0.0.192/32", "3fff::/20")
)

_IPV6_CLIENT_BITS = 64
"""A provider gives a client at least this network, within which it may use any address."""


def parse(text: str) -> IpAddress | None:
    """The address, IPv4 where it is one mapped into IPv6; None for what is not an address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


@lru_cache(maxsize=4096)
def client_of(text: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 network of an IPv6 address."""
    address = parse(text[:100])
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((address.packed, _IPV6_CLIENT_BITS), strict=False))
    return text[:100] if address is None else str(address)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens at `host`, a name or an address."""
    address = parse(host)
    return host == "localhost" if address is None else address.is_loopback


def parse_networks(texts: Iterable[str], name: str) -> tuple[Network, ...]:
    """Addresses and networks in CIDR form.

    Args:
        name: the option or setting that holds them, for the message.

    Raises:
        InvalidInput: one is neither.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text.strip()))
        except ValueError as error:
            raise InvalidInput(
                f"`{name}` names `{text[:80]}`, which is not an address or network ({error})",
                "write `10.0.0.5` or `10.0.0.0/24`; host names are not accepted",
            ) from error
    return tuple(networks)


def resolve(address: tuple[str, int], kind: socket.SocketKind, limit_s: float) -> list[Resolved]:
    """The families and addresses of a host and port, one or more.

    Raises:
        OSError: the name is unknown, or nobody said so within `limit_s`, for which the system's own
            resolver has no option.
    """
    addresses: list[Resolved] = []
    failed: list[OSError] = []

    def look_up() -> None:
        try:
            addresses.extend((each[0], each[4]) for each in socket.getaddrinfo(*address, type=kind))
        except OSError as error:
            failed.append(error)
        except UnicodeError as error:
            failed.append(OSError(f"`{address[0]}` is not a host name: {error}"))

    thread = threading.Thread(target=look_up, name="resolver", daemon=True)
    thread.start()
    thread.join(limit_s)
    if failed:
        raise failed[0]
    if not addresses:
        raise TimeoutError(f"`{address[0]}` was not resolved within {limit_s:.0f} s")
    return addresses


def is_public(address: IpAddress) -> bool:
    """Whether an address, and any that stands inside it, is of the public internet."""
    return all(
        each.is_global
        and not any(each in network for network in _NOT_PUBLIC)
        and not (each.is_multicast or each.is_reserved or each.is_unspecified)
        and not (isinstance(each, ipaddress.IPv6Address) and each.is_site_local)
        for each in _with_inner(address)
    )


def _with_inner(address: IpAddress) -> Iterator[IpAddress]:
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        if address.sixtofour is not None:
            yield address.sixtofour
        if address.teredo is not None:
            yield from address.teredo
        if address in _NAT64:
            yield ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
