"""How the other nodes of a job get mini-batches from the first one.

Owns: the connection between two nodes: who may connect, and one line of JSON for each message.
Leaves: what is asked and answered to nodes.py.
Always: both ends prove that they know the job's token before anything else is read; a line has a
limit.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

LIMIT_S = 60.0
_LONGEST_LINE = 256 << 20
_GREETING = 64
_BLOCK = 1 << 16


class LinkLost(Exception):
    """The other end is gone, or is not a node of this job."""


class Link:
    """One connection; used by one thread."""

    def __init__(self, connected: socket.socket, is_server: bool) -> None:
        self._socket = connected
        self._roles = ("server", "client") if is_server else ("client", "server")
        self._buffer = b""
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def prove(self) -> None:
        """Exchange proofs that both know the job's token.

        Raises:
            LinkLost: the other end doesn't.
        """
        self._socket.settimeout(LIMIT_S)
        nonce = os.urandom(16).hex()
        self._send(nonce.encode())
        peer_nonce = self._line(_GREETING).decode("ascii", "replace")
        # With its role: a proof of one connection is none for another one.
        self._send(_proof(self._roles[0], nonce, peer_nonce).encode())
        answer = self._line(2 * _GREETING)
        if not hmac.compare_digest(answer, _proof(self._roles[1], peer_nonce, nonce).encode()):
            raise LinkLost("the other end is not a node of this job")
        self._socket.settimeout(None)

    def send(self, body: dict[str, Any]) -> None:
        self._send(json.dumps(body).encode())

    def receive(self) -> dict[str, Any]:
        """
        Raises:
            LinkLost: the other end is gone.
        """
        try:
            body: dict[str, Any] = json.loads(self._line(_LONGEST_LINE).decode())
        except ValueError as error:
            raise LinkLost(f"what was received is not JSON: {error}") from error
        return body

    def close(self) -> None:
        self._socket.close()

    def _send(self, line: bytes) -> None:
        try:
            self._socket.sendall(line + b"\n")
        except OSError as error:
            raise LinkLost(str(error)) from error

    def _line(self, longest: int) -> bytes:
        parts, size = [self._buffer], len(self._buffer)
        while b"\n" not in parts[-1]:
            if size > longest:
                raise LinkLost("a line is too long")
            try:
                block = self._socket.recv(_BLOCK)
            except OSError as error:
                raise LinkLost(str(error)) from error
            if not block:
                raise LinkLost("the other end has closed the connection")
            parts.append(block)
            size += len(block)
        line, _, self._buffer = b"".join(parts).partition(b"\n")
        return line


def _proof(role: str, first: str, second: str) -> str:
    token = os.environ.get("MLFLOW_TRACKING_TOKEN") or os.environ.get("AZUREML_RUN_TOKEN") or ""
    if not token:
        raise LinkLost("the job has no token")
    text = f"torchyard-batch {role} {first} {second}"
    return hmac.new(token.encode(), text.encode(), hashlib.sha256).hexdigest()
