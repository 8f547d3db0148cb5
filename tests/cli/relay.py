"""One more address of a server, at which a test cuts answers off or nobody answers.

Owns: the port, which stays its own between `stop` and `start`.
Always: bytes are passed on as they are; what is connected stays so after `stop`.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from socketserver import BaseRequestHandler
from urllib.parse import urlsplit

from kept_port import PortKeepingServer, keep


class Relay:
    """
    Args:
        server_url: where the requests go.
        cuts: after so many bytes each of the first answers is cut; later ones are whole.
        path: a part of the paths whose answers are.
        pause_s: before each piece of a request is passed on.

    Attributes:
        url: the same over `stop` and `start`.
        cuts: those to come.
    """

    def __init__(
        self,
        server_url: str,
        cuts: Iterable[int] = (),
        path: str = "/stream",
        pause_s: float = 0.0,
    ) -> None:
        self.cuts = list(cuts)
        self._path = path.encode()
        self._pause_s = pause_s
        self._server_address = ("127.0.0.1", urlsplit(server_url).port or 80)
        self._port = 0
        self.start()
        keep(self._port, self)

    def start(self) -> None:
        relay = self

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                with suppress(OSError):  # clients go away, too
                    relay._pass_on(self.request)

        self._listener = PortKeepingServer(("127.0.0.1", self._port), Handler)
        self._port = self._listener.server_port
        self.url = f"http://127.0.0.1:{self._port}"
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()

    def _pass_on(self, client: socket.socket) -> None:
        left: int | None = None
        with socket.create_connection(self._server_address) as server:
            while left is None or left > 0:
                source = select.select([client, server], [], [])[0][0]
                block = source.recv(1 << 16)
                if not block:
                    return
                if source is client:
                    if self.cuts and self._path in block.partition(b"\r\n")[0]:
                        left = self.cuts.pop(0)
                    time.sleep(self._pause_s)
                    server.sendall(block)
                else:
                    client.sendall(block if left is None else block[:left])
                    left = None if left is None else left - len(block)
