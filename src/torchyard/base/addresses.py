"""IP addresses of clients.

Owns: which addresses count as one client, networks that an owner names.
Leaves: which address a request comes from to app/forwarded.py.
Always: an IPv4 address counts the same however it is written.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache

from torchyard.base.errors import InvalidInput

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

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


def parse_networks(texts: Iterable[str], what: str) -> tuple[Network, ...]:
    """Addresses and networks in CIDR form.

    Args:
        what: the option or setting that holds them, for the message.

    Raises:
        InvalidInput: one is neither.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text.strip()))
        except ValueError as error:
            raise InvalidInput(
                f"`{what}` names `{text[:80]}`, which is not an address or network ({error})",
                "write `10.0.0.5` or `10.0.0.0/24`; host names are not accepted",
            ) from error
    return tuple(networks)


def is_within(text: str, networks: Iterable[Network]) -> bool:
    address = parse(text)
    return address is not None and any(address in network for network in networks)
