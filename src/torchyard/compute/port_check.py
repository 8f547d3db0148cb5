"""Whether Ray's connections can be opened from here to a machine that joins.

Owns: trying the port that its agent listens at.
Leaves: listening, and the other way, to node_agent/port_probe.py.
Always: nothing is sent, and only who gives the agent's word counts as reached.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import Conflict, InvalidInput

_REACH_S = 5.0
_WORD = re.compile(r"[0-9a-f]{32}")
_LAST_PORT = 65535


@dataclass(frozen=True)
class Probe:
    """A `port` that gives `word`, one of the ports `first` to `last` that Ray may choose."""

    port: int
    word: str
    first: int
    last: int


def read(body: Mapping[str, Any]) -> Probe | None:
    """What an agent says of its port; None from one that has none.

    Raises:
        InvalidInput: it is not one.
    """
    probe = body.get("probe")
    if probe is None:
        return None
    values = probe if isinstance(probe, Mapping) else {}
    ports = [values.get("port"), *_listed(values.get("range"))]
    word = values.get("word")
    numbers = [port for port in ports if type(port) is int and 0 < port <= _LAST_PORT]
    if len(numbers) != 3 or not isinstance(word, str) or not _WORD.fullmatch(word):
        raise InvalidInput("`probe` is not a port with its word", "send what the agent listens at")
    return Probe(numbers[0], word, numbers[1], numbers[2])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def check(name: str, address: str, probe: Probe) -> None:
    """
    Raises:
        Conflict: the machine can't be reached there.
    """
    reason = _failure(address, probe)
    if reason:
        raise Conflict(
            f"the server's machine can't connect to `{name}` at {address}, port {probe.port}: "
            f"{reason}",
            f"allow TCP from the server's machine to ports {probe.first} to {probe.last} of "
            f"`{name}`: see `nft list ruleset` or `iptables -L -n` there; or name another of its "
            "addresses with `--address`",
            code="ports_blocked",
        )


def _failure(address: str, probe: Probe) -> str:
    """Why it is not reached; empty when it is."""
    try:
        with socket.create_connection((address, probe.port), _REACH_S) as connection:
            answer = _read(connection, len(probe.word))
    except TimeoutError:
        return f"no answer within {_REACH_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return "" if answer == probe.word.encode() else "something else answers there"


def _read(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size and (block := connection.recv(size - len(content))):
        content += block
    return content
