"""The server's end of the socket at which programs of this machine hand over open files.

Owns: the socket, who may connect, its connections by ticket.
Leaves: what may be done, and by whom, to the routes that are told a ticket: they demand the token
and the permission that the same bytes need in a request; copying to the packages.
Always: a ticket says only which connection is meant, and nothing of a descriptor is read but for a
request that was let in.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import socket
import threading
from contextlib import suppress
from pathlib import Path

from torchyard.base.errors import InvalidInput
from torchyard.base.files import OpenFile
from torchyard.base.threads import Threads
from torchyard.shared import descriptors, unix_sockets

in_handover_thread = Threads("handover", 4).run
"""Run in one of the threads for handed files, so that a slow disk holds nobody else."""

NOT_HANDED = "not_handed"
"""The code of a refusal after which the same file may be sent in a request."""
_MOST_CONNECTIONS = 64
_PAUSE_S = 1.0
_log = logging.getLogger(__name__)


class Handover:
    """Of one server process; without a socket until `listen`."""

    def __init__(self) -> None:
        self._connections: dict[str, socket.socket] = {}
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._path: Path | None = None
        self._is_closed = threading.Event()

    def listen(self, path: Path) -> None:
        """Let programs of the server's own user connect at `path`.

        Where there can be no socket, as on some shared file systems, they send files in requests.
        """
        try:
            listener = unix_sockets.listen(path)
        except OSError as error:
            _log.info("no socket for files at `%s`: %s", path, error)
            return
        self._listener, self._path = listener, path
        self._is_closed.clear()
        if listener is not None:
            threading.Thread(
                target=self._accept, args=(listener,), name="handover", daemon=True
            ).start()

    def close(self) -> None:
        """Take and give no more files."""
        self._is_closed.set()
        if self._listener is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
            self._listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
            self._listener.close()
        with self._lock:
            for connection in self._connections.values():
                connection.close()
            self._connections.clear()

    def take(self, ticket: str) -> OpenFile:
        """The next file that was handed over; blocks for a while until it comes.

        Raises:
            InvalidInput: none was, or one that is not read so (code `not_handed`).
        """
        try:
            return OpenFile("handed", descriptors.receive(self._connection(ticket)))
        except descriptors.NotHanded as error:
            raise not_handed(str(error)) from error

    def give(self, ticket: str, descriptor: int) -> None:
        """Hand a file out; the caller goes on to own its descriptor.

        Raises:
            InvalidInput: nobody takes it.
        """
        try:
            descriptors.send(self._connection(ticket), descriptor)
        except OSError as error:
            raise not_handed(f"nobody takes it ({error})") from error

    def _connection(self, ticket: str) -> socket.socket:
        with self._lock:
            connection = self._connections.get(ticket)
        if connection is None:
            raise not_handed("this server has no connection of that ticket")
        return connection

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._is_closed.wait(_PAUSE_S):
                    return
                continue  # such as of too many open files
            ticket = secrets.token_hex(descriptors.TICKET_CHARACTERS // 2)
            try:
                if descriptors.peer_user(connection) not in (os.geteuid(), 0):
                    raise PermissionError("another user's program")
                self._add(ticket, connection)
                connection.setblocking(False)
                connection.sendall(ticket.encode())
            except OSError:
                connection.close()
                with self._lock:
                    self._connections.pop(ticket, None)

    def _add(self, ticket: str, connection: socket.socket) -> None:
        """
        Raises:
            OSError: there are too many.
        """
        with self._lock:
            for other in [each for each, kept in self._connections.items() if _is_over(kept)]:
                self._connections.pop(other).close()
            if len(self._connections) >= _MOST_CONNECTIONS:
                raise ConnectionRefusedError("too many connections")
            self._connections[ticket] = connection


def _is_over(connection: socket.socket) -> bool:
    with suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(connection, select.POLLRDHUP)
        return bool(poll.poll(0))
    return True


def not_handed(reason: str) -> InvalidInput:
    """The refusal after which the file comes in a request."""
    return InvalidInput(
        f"the file was not handed over: {reason}", "send it in a request", code=NOT_HANDED
    )
