"""A port that stays a test's own while nobody listens on it.

Owns: the second socket that keeps it: it never listens, so that connections are refused.
"""

from __future__ import annotations

import os
import socket
import weakref
from http.server import ThreadingHTTPServer


class PortKeepingServer(ThreadingHTTPServer):
    """An HTTP server beside which a socket may keep the port."""

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


def keep(port: int, owner: object) -> None:
    """Keep a port of loopback, on which somebody with SO_REUSEPORT listens, while `owner` lives."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.bind(("127.0.0.1", port))
    weakref.finalize(owner, os.close, keeper.detach())
