from __future__ import annotations

import pytest

from torchyard.base import addresses


@pytest.mark.parametrize("text", ["93.184.216.34", "8.8.8.8", "2606:4700::1111"])
def test_an_address_of_the_internet_is_public(text: str) -> None:
    address = addresses.parse(text)
    assert address is not None and addresses.is_public(address)


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "192.0.2.1", "198.18.0.1", "::", "::1", "fe80::1", "fd00::1", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1",
        "2002:7f00:1::", "2002:a00:1::", "2001:db8::1", "2001:0:7f00:1::",
        "168.63.129.16", "192.0.0.192", "3fff::1", "::ffff:168.63.129.16", "64:ff9b::a83f:8110",
    ],
)  # fmt: skip
def test_an_address_of_a_machine_or_site_is_not_public(text: str) -> None:
    address = addresses.parse(text)
    assert address is not None and not addresses.is_public(address)


def test_a_client_by_ipv6_is_its_network() -> None:
    first = addresses.client_of("2001:db8::1")
    assert first == addresses.client_of("2001:db8::ffff:2")
    assert first != addresses.client_of("2001:db8:0:1::1")
