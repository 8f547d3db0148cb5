"""A network that loses one answer: a proxy of TCP that hangs up once, when it is told to.

Owns: its listener and threads.
Leaves: what goes through, which is TLS, to both ends.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class LosingProxy:
    """Listens on loopback from the start, and passes everything on to `port`.

    After `lose_next` the first answer of the server is thrown away and its connection closed, the
    request having arrived whole.
    """

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._losing = threading.Event()
        self.lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next(self) -> None:
        self._losing.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
                for source, target, answers in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._pass, args=(source, target, answers), daemon=True
                    ).start()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError), source, target:
            while chunk := source.recv(65536):
                if answers and self._losing.is_set():
                    self._losing.clear()
                    self.lost += 1
                    target.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(chunk)
