"""Which nodes do not answer any more, by the kernel's tables."""

from __future__ import annotations

import os
import socket
import struct

import pytest

from torchyard.worker.diagnosis.cut_connections import LIMIT_S, CutConnections

HOSTS = ("10.0.0.1", "10.0.0.2", "fd00::3")


class Kernel:
    """Its tables, which say what a test wants, and its clock."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_s = 100.0
        self.watch = CutConnections(HOSTS, 0, lambda pid: self.lines, lambda: self.now_s)

    def look(self, after_s: float, *lines: str) -> list[str]:
        self.lines = list(lines)
        self.now_s += after_s
        return self.watch.news(1)


def line(host: str, inode: int, sent: int = 1, again: int = 1, state: str = "01") -> str:
    """A row as the kernel writes it, for a connection from port 40000 to port 6105."""
    local = _written("10.0.0.1")
    return (
        f"   0: {local}:9C40 {_written(host)}:17D9 {state} {sent:08X}:00000000 01:00000A1B "
        f"{again:08X}     0        0 {inode} 3 ffff8880 100 0 0 10 -1"
    )


def _written(host: str) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


@pytest.mark.parametrize(
    ("host", "node"), [("10.0.0.2", 1), ("::ffff:10.0.0.2", 1), ("fd00::3", 2)]
)
def test_a_node_that_does_not_answer_is_told_once_and_when_it_answers_again(
    host: str, node: int
) -> None:
    kernel = Kernel()
    assert kernel.look(0, line(host, 7)) == []
    assert kernel.look(LIMIT_S - 1, line(host, 7, again=6)) == []
    (message,) = kernel.look(1, line(host, 7, again=7))
    assert message.startswith(f"node 0 gets no answer from node {node} ({HOSTS[node]})")
    assert f"sent {LIMIT_S:.0f} s ago" in message
    assert kernel.look(60, line(host, 7, again=9)) == []
    (message,) = kernel.look(5, line(host, 7, sent=0, again=0))
    assert message.startswith(f"node {node} ({HOSTS[node]}) answers node 0 again")
    assert kernel.look(5) == []


@pytest.mark.parametrize(
    "row",
    [
        line("10.0.0.2", 7, sent=0),
        line("10.0.0.2", 7, again=0),
        line("10.0.0.2", 7, state="02"),
        line("10.0.0.1", 7),
        line("192.0.2.1", 7),
        "nothing",
    ],
    ids=["all-acknowledged", "nothing-lost", "not-connected", "itself", "no-node", "half-a-row"],
)
def test_other_connections_say_nothing(row: str) -> None:
    kernel = Kernel()
    for _ in range(10):
        assert kernel.look(LIMIT_S, row) == []


def test_lost_packets_that_are_acknowledged_in_between_are_no_silence() -> None:
    kernel = Kernel()
    for _ in range(10):
        assert kernel.look(LIMIT_S / 2, line("10.0.0.2", 7)) == []
        assert kernel.look(LIMIT_S / 2, line("10.0.0.2", 7, sent=0, again=0)) == []


def test_the_tables_of_this_machine_are_read() -> None:
    watch = CutConnections(("127.0.0.1", "10.255.255.1"), 0)
    assert watch.news(os.getpid()) == []
