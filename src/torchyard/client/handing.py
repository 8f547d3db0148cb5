"""Hand files to this machine's server as open descriptors, and be handed them.

Owns: the connection to the server's socket, when the slower way is taken instead.
Leaves: how a descriptor travels to shared/descriptors.py, requests to base/http.py.
Always: a file that can't be handed over is sent in a request, as to a server elsewhere; the request
that names a handed file carries the token, as any does.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from torchyard.base.errors import TorchyardError, Unreachable, from_answer
from torchyard.base.http import Transport

_CONNECT_LIMIT_S = 5.0
_PIECE_BYTES = 16 << 20
# What the server says of a file that it does not take so, or of a request that it does not know.
# A full disk may have the file already, which its hash would show.
_OTHERWISE = ("not_handed", "not_found", "method_not_allowed", "disk_full")

Add = Callable[[int], None]
"""Called with the number of bytes that came since."""


def store(transport: Transport, workspace_path: str, descriptor: int, add: Add) -> str | None:
    """Have the server store an open file; its sha256, or None where it must be sent.

    Raises:
        Conflict: it changed while the server read it.
        Unreachable: the server ended.
    """
    with _connected(transport) as handed:
        if handed is None:
            return None
        from torchyard.shared import descriptors

        connection, ticket = handed
        try:
            descriptors.send(connection, descriptor)
            with closing(transport.twin()) as twin:
                return _stored(twin, f"{workspace_path}/blobs/handed", ticket, add)
        except OSError:
            return None
        except TorchyardError as error:
            if error.code in _OTHERWISE:
                return None
            raise


def _stored(transport: Transport, path: str, ticket: str, add: Add) -> str:
    stored_bytes = 0
    with transport.stream(path, body={"ticket": ticket}) as answer:
        for line in answer:
            fields = json.loads(line)
            if "error" in fields:
                raise from_answer(fields["status"], fields["error"])
            now_bytes = fields.get("size_bytes", fields.get("stored_bytes", 0))
            add(now_bytes - stored_bytes)
            stored_bytes = now_bytes
            if "sha256" in fields:
                return str(fields["sha256"])
    raise Unreachable("the server ended while it stored a file", "try again")


def fetch(transport: Transport, bundle: str, source: str, target: str, add: Add) -> bool:
    """Copy a file that the server opens to `target`; whether it came whole.

    Args:
        bundle: the route for many files; `source` as it takes them.
    """
    with _connected(transport) as handed:
        if handed is None:
            return False
        from torchyard.shared import descriptors

        connection, ticket = handed
        try:
            transport.post(f"{bundle}/handed", {"ticket": ticket, "source": source})
            descriptor = descriptors.receive(connection)
        except (TorchyardError, descriptors.NotHanded):
            return False  # the request for its bytes says what is wrong
        try:
            with open(target, "wb") as file:
                return _copy(descriptor, file.fileno(), add)
        finally:
            os.close(descriptor)


def _copy(source: int, target: int, add: Add) -> bool:
    from torchyard.shared import descriptors

    size_bytes = os.fstat(source).st_size
    if descriptors.clone(source, target):
        # It may have another size since.
        if os.fstat(target).st_size < size_bytes:
            return False
        os.ftruncate(target, size_bytes)
        add(size_bytes)
        return True
    copied = 0
    while copied < size_bytes:
        piece_bytes = min(_PIECE_BYTES, size_bytes - copied)
        count = descriptors.copy_range(source, target, copied, piece_bytes)
        if not count:
            add(-copied)
            return False
        copied += count
        add(count)
    return True


@contextmanager
def _connected(transport: Transport) -> Iterator[tuple[socket.socket, str] | None]:
    """A connection to the server's socket, and its ticket; None where there is no such socket."""
    if not os.path.exists(transport.files_socket):
        yield None
        return
    from torchyard.shared import descriptors, unix_sockets

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        ticket = b""
        try:
            connection.settimeout(_CONNECT_LIMIT_S)
            unix_sockets.connect(connection, transport.files_socket)
            owner = os.stat(os.path.dirname(transport.files_socket)).st_uid
            if descriptors.peer_user(connection) == owner:
                ticket = connection.recv(descriptors.TICKET_CHARACTERS, socket.MSG_WAITALL)
        except OSError:
            pass
        is_whole = len(ticket) == descriptors.TICKET_CHARACTERS
        yield (connection, ticket.decode("ascii", "replace")) if is_whole else None
