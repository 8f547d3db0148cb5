"""The first node gives mini-batches to the others; the others ask for them.

Owns: the listener on the first node, a thread for each connection, what the other nodes do.
Leaves: the connection to link.py, which mini-batch is next to coordinator.py.
Always: a mini-batch whose node is gone is given to another one; every node is told the end.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

from .link import Link, LinkLost

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .coordinator import Coordinator, MiniBatch
    from .settings import Settings

_WAIT_S = 5.0
_CONNECT_S = 300.0


class Server:
    """On the first node. `close` returns once every other node's scoring processes, which have a
    connection each, know the end, within a limit.
    """

    def __init__(self, coordinator: Coordinator, settings: Settings) -> None:
        self._coordinator, self._settings = coordinator, settings
        self._told = 0
        self._changed = threading.Condition()
        host, port = _address()
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._listener = socket.socket(family, kind)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(address)
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        with self._changed:
            while self._told < (self._settings.node_count - 1) * self._settings.processes:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        link = Link(connected, is_server=True)
        batch: MiniBatch | None = None
        try:
            link.prove()
            while True:
                message = link.receive()
                if batch is not None and "answer" in message:
                    scored, batch = batch, None
                    self._coordinator.report(scored, message["answer"])
                if message.get("failed"):
                    self._coordinator.stop(str(message["failed"]))
                batch = self._coordinator.next(_WAIT_S)
                if batch is not None:
                    link.send({"files": self._coordinator.paths(batch)})
                elif self._coordinator.is_over:
                    link.send({"end": True})
                    with self._changed:
                        self._told += 1
                        self._changed.notify_all()
                    return
                else:
                    link.send({"wait": True})
        except (LinkLost, KeyError, ValueError, TypeError):
            pass
        finally:
            if batch is not None:
                self._coordinator.give_back(batch)
            link.close()


def follow(run: Callable[[list[str]], dict[str, Any]]) -> None:
    """Score what the first node gives out, until it says the end.

    Args:
        run: gets paths in the input's folder, returns what came of them.

    Raises:
        LinkLost: the first node is gone.
    """
    link = _connected()
    try:
        message: dict[str, Any] = {}
        while True:
            link.send(message)
            reply = link.receive()
            message = {}
            if reply.get("end"):
                return
            if "files" in reply:
                answer = run(reply["files"])
                message["failed" if "failed" in answer else "answer"] = answer.get("failed", answer)
    finally:
        link.close()


def _connected() -> Link:
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            link = Link(socket.create_connection(_address(), timeout=10), is_server=False)
            link.prove()
            return link
        except (OSError, LinkLost) as error:
            if time.monotonic() > deadline:
                raise LinkLost(f"the first node does not answer: {error}") from error
            time.sleep(0.5)


def _address() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
