"""Hosts as people write them."""

from __future__ import annotations

import pytest

from torchyard.base.errors import InvalidInput
from torchyard.cli.hosts import addresses, ssh


@pytest.mark.parametrize(
    "text, target, port, name",
    [
        ("lab-1", "lab-1", 0, "lab-1"),
        ("ann@lab-1", "ann@lab-1", 0, "lab-1"),
        ("ann@Lab_1.example.org:2222", "ann@Lab_1.example.org", 2222, "lab-1-example-org-2222"),
        ("ssh://ann@lab-1:22", "ann@lab-1", 22, "lab-1"),
        ("10.0.0.3", "10.0.0.3", 0, "10-0-0-3"),
        ("fd00::7", "fd00::7", 0, "fd00-7"),
        ("ann@[fd00::7]:2222", "ann@fd00::7", 2222, "fd00-7-2222"),
    ],
)
def test_a_host_is_read(text: str, target: str, port: int, name: str) -> None:
    (host,) = addresses.read([text])
    assert (host.target, host.port, host.name) == (target, port, name)
    words = ssh.words("ssh", host)
    assert words[-3:] == ["--", target, ssh.COMMAND]
    assert ("-p" in words) == bool(port) and "BatchMode=yes" in words
    assert not any("StrictHostKeyChecking" in word for word in words)


def test_commas_and_spaces_part_hosts_and_each_counts_once() -> None:
    hosts = addresses.read(["a,b, c", "a", "ann@d"])
    assert [host.text for host in hosts] == ["a", "b", "c", "ann@d"]


@pytest.mark.parametrize(
    "text",
    [
        "-oProxyCommand=evil", "ann@-oProxyCommand=evil", "a;b", "$(id)", "a`id`", "a'b", "ann@",
        "@lab", "lab:", "lab:0", "lab:65536", "lab:22x", "[lab]:22", "[fd00::7]22", "ä", "a/b",
        "ann b@@lab", "-l@lab", "x" * 64, "_", "1:2:3",
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        addresses.read([text])
    assert "is not a host" in refused.value.message and "ann@lab-1:2222" in refused.value.hint


def test_one_host_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="`ann@lab` and `bob@lab` are both machine `lab`"):
        addresses.read(["ann@lab", "bob@lab"])
    with pytest.raises(InvalidInput, match="no host is named"):
        addresses.read([" , "])
