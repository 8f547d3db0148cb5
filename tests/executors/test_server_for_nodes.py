"""Whether the nodes of a cluster can reach the server, as far as that is known before a job."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import pytest

from torchyard.executors.executor import EngineNode, EngineRefused
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes, own_addresses

LOOPBACK = ("http://127.0.0.1:8765",)
HERE = EngineNode("n1", "127.0.0.1")
# Nobody's (RFC 5737, RFC 2606).
FAR = EngineNode("gpu-3", "192.0.2.3")
NAMED = EngineNode("gpu-4", "gpu-4.invalid")


def check(urls: tuple[str, ...], settings: Mapping[str, Any], *nodes: EngineNode) -> None:
    ServerForNodes("server", lambda: NodeAddresses(urls)).check_reachable(settings, nodes)


@pytest.mark.parametrize("node", [FAR, NAMED])
@pytest.mark.parametrize(
    ("urls", "settings"),
    [
        (LOOPBACK, {}),
        (("http://127.0.0.1:8765", "https://[::1]:8766"), {}),
        (("https://10.0.0.9:8766",), {"server_urls": ["https://localhost:8766"]}),
    ],
)
def test_a_server_that_only_its_own_machine_reaches_refuses_nodes_of_others_by_name(
    urls: tuple[str, ...], settings: Mapping[str, Any], node: EngineNode
) -> None:
    with pytest.raises(EngineRefused) as caught:
        check(urls, settings, HERE, node)
    for part in (node.name, node.address, *settings.get("server_urls", urls)):
        assert part in caught.value.message
    assert "`yard server start --listen`" in caught.value.hint
    assert "TCP port" in caught.value.hint


@pytest.mark.parametrize(
    ("urls", "settings"),
    [
        (("http://127.0.0.1:8765", "https://10.0.0.9:8766"), {}),
        (LOOPBACK, {"server_urls": ["https://login-1:8766"]}),
    ],
)
def test_an_address_that_others_may_reach_is_left_to_the_nodes(
    urls: tuple[str, ...], settings: Mapping[str, Any]
) -> None:
    check(urls, settings, FAR)


def test_nodes_of_this_machine_reach_it_by_whatever_address_they_have() -> None:
    addresses = ["localhost", "127.0.0.2", *own_addresses()]
    check(LOOPBACK, {}, *(EngineNode("here", address) for address in addresses))


def test_a_name_of_this_machine_is_resolved() -> None:
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        pytest.skip("this machine does not know its own name")
    check(LOOPBACK, {}, EngineNode("here", socket.gethostname()))


def test_a_node_whose_address_is_not_known_yet_is_no_reason() -> None:
    check(LOOPBACK, {}, EngineNode("joining"))
