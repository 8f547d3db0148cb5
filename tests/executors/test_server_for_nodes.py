"""Whether the nodes of a cluster can reach the server, as far as that is known before a job."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
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


def test_only_addresses_beyond_loopback_are_for_others() -> None:
    urls = ("http://127.0.0.1:1", "https://10.0.0.9:1", "https://[::1]:1", "https://box.lab:1")
    server = ServerForNodes("server", lambda: NodeAddresses(urls))
    assert server.public_urls == ["https://10.0.0.9:1", "https://box.lab:1"]


# A machine on two networks: one of them without a default route, and a bridge of containers.
_TWO_NETWORKS = """
ip link set lo up
for network in "lan 10.77.0.2" "cluster 10.78.0.2"; do
  set -- $network
  ip link add $1 type veth peer name far-$1
  ip addr add $2/24 dev $1
  ip link set $1 up
done
ip link add containers type bridge
ip addr add 172.30.0.1/24 dev containers
ip route add default via 10.78.0.1
mount -t sysfs none /sys
exec "$0" -c 'from torchyard.executors import server_for_nodes as s; print(s.own_addresses())'
"""


def test_a_machine_on_two_networks_has_both_addresses() -> None:
    made = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if (
        shutil.which("ip") is None
        or subprocess.run([*made, "true"], capture_output=True).returncode
    ):
        pytest.skip("this machine allows no network namespaces")
    words = [*made, "sh", "-ec", _TWO_NETWORKS, sys.executable]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == "['10.78.0.2', '10.77.0.2']"


def test_a_node_whose_address_is_not_known_yet_is_no_reason() -> None:
    check(LOOPBACK, {}, EngineNode("joining"))
