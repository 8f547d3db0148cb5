"""How node 0 has a process started on another node, without ssh.

Owns: the port where a worker takes such an errand, the proof that it comes from its own attempt.
Leaves: what is started to mpi.py; telling the port to preflight/rendezvous.py.
Always: whoever does not hold the attempt's report token has nothing started, and the token itself
never goes over the wire; a node takes one errand.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
from collections.abc import Callable

_REQUEST_BYTES = 1 << 20
_PATIENCE_S = 10.0


class Errands:
    """A listening port of this node; `command` is empty until the errand came, then `wake` is
    called, by a thread of its own.
    """

    def __init__(self, token: str, loopback_only: bool, wake: Callable[[], None]) -> None:
        self._token = token
        self._wake = wake
        self._socket = _listen(loopback_only)
        self.port = int(self._socket.getsockname()[1])
        self.command = ""
        threading.Thread(target=self._accept, name="mpi-errands", daemon=True).start()

    def _accept(self) -> None:
        while not self.command:
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(_PATIENCE_S)
                try:
                    self._take(connection)
                except (OSError, ValueError, TypeError, KeyError):
                    continue
        self._socket.close()

    def _take(self, connection: socket.socket) -> None:
        challenge = os.urandom(16).hex()
        connection.sendall(f"{challenge}\n".encode())
        body = json.loads(connection.makefile("rb").readline(_REQUEST_BYTES))
        command = str(body["command"])
        if not hmac.compare_digest(_proof(self._token, challenge, command), str(body["proof"])):
            return
        connection.sendall(b"taken\n")
        self.command = command
        self._wake()


def send(address: str, port: int, token: str, command: str) -> str:
    """Have the node at this address start `command`; returns why not, empty when it will."""
    try:
        with socket.create_connection((address, port), _PATIENCE_S) as connection:
            reader = connection.makefile("r")
            proof = _proof(token, reader.readline().strip(), command)
            body = json.dumps({"command": command, "proof": proof})
            connection.sendall(body.encode() + b"\n")
            return "" if reader.readline() == "taken\n" else "it did not take the errand"
    except OSError as error:
        return f"{error.strerror or error}"


def _proof(token: str, challenge: str, command: str) -> str:
    return hmac.new(token.encode(), f"{challenge}\n{command}".encode(), "sha256").hexdigest()


def _listen(loopback_only: bool) -> socket.socket:
    if loopback_only:
        return socket.create_server(("127.0.0.1", 0))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))
