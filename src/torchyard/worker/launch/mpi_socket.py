"""Where Open MPI's processes knock: the worker's socket for those of this node.

Owns: the socket, one request a connection, the answers.
Leaves: what a request means to mpi.py; asking to mpi_shim.py.
Always: it is in a folder of this user's alone; a request that makes no sense is turned away, and
no one who knocks and says nothing keeps others waiting.
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
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Request:
    """A rank to start (`told` is what Open MPI says to it), or a daemon on another host."""

    connection: socket.socket
    told: dict[str, str]
    host: str = ""
    command: str = ""

    def answer(self, text: str) -> None:
        """`0` ends the shim well, anything else is why not; one that has gone hears nothing."""
        try:
            self.connection.sendall(f"{text}\n".encode())
        except OSError:
            pass
        self.connection.close()


class Door:
    """`take` is for the main thread; `wake` is called at each request."""

    def __init__(self, path: Path, wake: Callable[[], None]) -> None:
        self.path = path
        self._wake = wake
        self._requests: deque[Request] = deque()
        self._socket = socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        os.chmod(path, 0o600)
        self._socket.listen(1024)
        threading.Thread(target=self._accept, name="mpi-door", daemon=True).start()

    def take(self) -> Request | None:
        return self._requests.popleft() if self._requests else None

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        connection.settimeout(_PATIENCE_S)
        try:
            line = connection.makefile("rb").readline(_REQUEST_BYTES)
            request = _request(connection, json.loads(line))
            connection.settimeout(None)
        except (OSError, ValueError, TypeError, KeyError):
            connection.close()
            return
        self._requests.append(request)
        self._wake()


def _request(connection: socket.socket, body: dict[str, Any]) -> Request:
    if "rank" in body:
        told = {str(name): str(value) for name, value in body["rank"].items()}
        return Request(connection, told)
    return Request(connection, {}, str(body["host"]), str(body["command"]))
