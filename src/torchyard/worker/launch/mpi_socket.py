"""The worker's socket for Open MPI's processes on this node.

Owns: the socket, one request per connection, the answers.
Leaves: what a request means to mpi.py, the client to mpi_shim.py.
Always: the socket is in a folder of this user alone; an invalid request is refused, and a client
that sends nothing does not block others.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REQUEST_BYTES = 4 << 20
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class RankRequest:
    """A rank to start with Open MPI's `variables`, or a daemon to start on another host."""

    connection: socket.socket
    variables: dict[str, str]
    host: str = ""
    command: str = ""

    def answer(self, text: str) -> None:
        """Send `0` for success or an error message; ignored if the shim has ended."""
        try:
            self.connection.sendall(f"{text}\n".encode())
        except OSError:
            pass
        self.connection.close()


class MpiSocket:
    """`take` is for the main thread; `wake` is called for each request."""

    def __init__(self, path: Path, wake: Callable[[], None]) -> None:
        self.path = path
        self._wake = wake
        self._requests: deque[RankRequest] = deque()
        self._socket = socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        os.chmod(path, 0o600)
        self._socket.listen(1024)
        threading.Thread(target=self._accept, name="mpi-socket", daemon=True).start()

    def take(self) -> RankRequest | None:
        return self._requests.popleft() if self._requests else None

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        connection.settimeout(_TIMEOUT_S)
        try:
            line = connection.makefile("rb").readline(_REQUEST_BYTES)
            request = _request(connection, json.loads(line))
            connection.settimeout(None)
        except (OSError, ValueError, TypeError, KeyError):
            connection.close()
            return
        self._requests.append(request)
        self._wake()


def _request(connection: socket.socket, body: dict[str, Any]) -> RankRequest:
    if "rank" in body:
        variables = {str(name): str(value) for name, value in body["rank"].items()}
        return RankRequest(connection, variables)
    return RankRequest(connection, {}, str(body["host"]), str(body["command"]))
