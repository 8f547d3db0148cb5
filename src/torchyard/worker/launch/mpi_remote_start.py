"""Start a process on another node from node 0, without ssh.

Owns: the port on which a worker accepts a remote start, the proof that it comes from its attempt.
Leaves: running the command to mpi.py, publishing the port to preflight/rendezvous.py.
Always: nothing is started without the attempt's report token, and the token itself is never sent; a
node accepts one remote start.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import threading
from collections.abc import Callable

_REQUEST_BYTES = 1 << 20
_TIMEOUT_S = 10.0


class RemoteStart:
    """Listens for a remote start.

    `command` is empty until one was accepted; then `wake` is called, from the listening thread.
    """

    def __init__(self, token: str, loopback_only: bool, wake: Callable[[], None]) -> None:
        self._token = token
        self._wake = wake
        self._socket = _listen(loopback_only)
        self.port = int(self._socket.getsockname()[1])
        self.command = ""
        threading.Thread(target=self._accept, name="mpi-remote-start", daemon=True).start()

    def _accept(self) -> None:
        while not self.command:
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(_TIMEOUT_S)
                try:
                    self._read_request(connection)
                except (OSError, ValueError, TypeError, KeyError):
                    continue
        self._socket.close()

    def _read_request(self, connection: socket.socket) -> None:
        challenge = os.urandom(16).hex()
        connection.sendall(f"{challenge}\n".encode())
        body = json.loads(connection.makefile("rb").readline(_REQUEST_BYTES))
        command = str(body["command"])
        if not hmac.compare_digest(_proof(self._token, challenge, command), str(body["proof"])):
            return
        connection.sendall(b"accepted\n")
        self.command = command
        self._wake()


def request_start(address: str, port: int, token: str, command: str) -> str:
    """Ask the node at this address to start `command`; return the error, empty on success."""
    try:
        with socket.create_connection((address, port), _TIMEOUT_S) as connection:
            reader = connection.makefile("r")
            proof = _proof(token, reader.readline().strip(), command)
            body = json.dumps({"command": command, "proof": proof})
            connection.sendall(body.encode() + b"\n")
            return "" if reader.readline() == "accepted\n" else "the remote start was refused"
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
