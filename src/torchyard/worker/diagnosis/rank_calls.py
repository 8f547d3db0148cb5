"""Ask the ranks of a node for the collectives that they called last, or read what they left.

Owns: the sockets and files of in_rank/collectives_hook.py as the worker sees them.
Leaves: what is in them to shared/collectives.py.
Always: all ranks are asked at once and share one time limit; one that holds Python's lock or makes
something else of its socket gives no answer, and no more than a limit is read of any.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.shared import unix_sockets
from torchyard.worker.diagnosis import artifacts
from torchyard.worker.in_rank.collectives_hook import ENDING, SAVED, WITH_LINES

_MAX_BYTES = 256 << 10
_MAX_SOCKETS = 256
_POLL_S = 0.05


def ask(
    folders: Iterable[Path], limit_s: float, *, with_lines: bool = False
) -> tuple[list[dict[str, Any]], int]:
    """Return what the ranks called, as JSON (see shared/collectives.py), and how many of them did
    not answer.

    Args:
        folders: those of the ranks' records.
        limit_s: for all ranks together.
        with_lines: also the line of each call; the first time that takes a rank about a second.
    """
    deadline = time.monotonic() + limit_s
    folders = list(folders)
    requests: dict[Path, _Request] = {}
    for folder in folders:
        for file in sorted(folder.glob(f"*{ENDING}"))[:_MAX_SOCKETS]:
            saved = file.with_suffix(SAVED)
            if not saved.exists() and (connection := _connect(file, with_lines)) is not None:
                requests[saved] = _Request(connection)
    _wait(requests, deadline)
    # Last, because a rank may have ended meanwhile, with its list in a file.
    responses = [bytes(each.response) for saved, each in requests.items() if not saved.exists()]
    for folder in folders:
        files = sorted(folder.glob(f"*{SAVED}"))[:_MAX_SOCKETS]
        responses += [artifacts.text_of(file).encode() for file in files]
    silent_ranks = sum(not request.is_over for request in requests.values())
    return [body for response in responses for body in _parsed(response)], silent_ranks


@dataclass
class _Request:
    """A request to one rank, with as much of its response as has arrived."""

    connection: socket.socket
    response: bytearray = field(default_factory=bytearray)
    is_over: bool = False


def _connect(file: Path, with_lines: bool) -> socket.socket | None:
    """Send a request; None if nobody listens any more, because the rank has ended."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        unix_sockets.connect(connection, str(file))
        connection.send(WITH_LINES if with_lines else b"-")
    except OSError:
        connection.close()
        return None
    return connection


def _wait(requests: Mapping[Path, _Request], deadline: float) -> None:
    """Until all ranks have answered, or left a file instead."""
    while (left_s := deadline - time.monotonic()) > 0:
        by_descriptor = {
            each.connection.fileno(): each for each in requests.values() if not each.is_over
        }
        has_empty = any(not each.response and not path.exists() for path, each in requests.items())
        if not by_descriptor and not has_empty:
            break
        # Not `select.select`, which accepts only descriptors below 1,024.
        poll = select.poll()
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(1000 * min(_POLL_S, left_s)):
            request = by_descriptor[descriptor]
            try:
                chunk = request.connection.recv(65536)
            except OSError:
                chunk = b""
            request.response += chunk
            request.is_over = not chunk or len(request.response) > _MAX_BYTES
    for request in requests.values():
        request.connection.close()


def _parsed(content: bytes) -> list[dict[str, Any]]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return []
    return [body] if isinstance(body, dict) else []
