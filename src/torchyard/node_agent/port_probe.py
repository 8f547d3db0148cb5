"""Whether Ray's connections can be opened between this machine and the head's.

Owns: a port that answers while the server tries to reach it; trying the head's own port.
Leaves: trying the other way to compute/port_check.py, what is told of it to agent.py.
Always: standard library only; the port is one of those that Ray's own programs listen at, and it
gives a word that only the server was told, so that nothing else is taken for this machine.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput

_REACH_S = 5.0
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIREWALL = "see `nft list ruleset` or `iptables -L -n` there"


@contextlib.contextmanager
def answering(address: str) -> Iterator[dict[str, Any]]:
    """Listen at a port of this machine for as long as the block runs.

    Yields:
        what the server is told of it: the port, the word that it gives, the range that it is of.

    Raises:
        InvalidInput: the address is not one of this machine's.
    """
    word = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_listener(address))
        stack.callback(_wake, listener)
        threading.Thread(target=_answer, args=(listener, word), daemon=True).start()
        first, last = port_range()
        yield {"port": listener.getsockname()[1], "word": word, "range": [first, last]}


def _listener(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.bind((address, 0))
        listener.listen()
    except OSError as error:
        listener.close()
        raise InvalidInput(
            f"`{address}` is not an address of this machine ({error.strerror or error})",
            "name one of those that `ip address` lists, with `--address`",
        ) from error
    return listener


def _answer(listener: socket.socket, word: str) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.settimeout(_REACH_S)
                connection.sendall(word.encode())


def _wake(listener: socket.socket) -> None:
    """End an accept that waits: closing alone would not."""
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)


def check_head(address: str) -> None:
    """
    Raises:
        InvalidInput: no connection to the head's port can be opened.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise InvalidInput(
            f"this machine can't connect to the cluster's head at {host}, port {port}: {reason}",
            f"allow TCP from this machine to port {port} of the server's machine: {_FIREWALL}",
            code="ports_blocked",
        ) from error


def port_range() -> tuple[int, int]:
    """Of which the ports are that Ray's programs choose."""
    try:
        first, last = map(int, _RANGE.read_text().split())
    except (OSError, ValueError):
        return 32768, 60999
    return first, last
