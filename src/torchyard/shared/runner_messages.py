"""Messages between the server and the runner: one JSON object each way, and open files.

Owns: the frame, its limits, passing descriptors, one request and its answer.
Leaves: what a request means to runner/, asking to executors/runner_client.py.
Always: a message that is too long, torn or no object is refused, and what it carried is closed.

Source: unix(7), SCM_RIGHTS.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

SOCKET = "/run/torchyard/runner.sock"
MOST_BYTES = 8 << 20
# As many devices as one node has, and then some; the kernel's own limit is 253.
MOST_DESCRIPTORS = 64
_LENGTH_BYTES = 4
_DESCRIPTOR_BYTES = array.array("i").itemsize


class BadMessage(Exception):
    """The other end sent something else than a message."""


def send(connection: socket.socket, body: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message; the descriptors stay open here."""
    payload = json.dumps(body).encode()
    if len(payload) > MOST_BYTES:
        raise BadMessage(f"a message of {len(payload):,} bytes, and {MOST_BYTES:,} are allowed")
    frame = len(payload).to_bytes(_LENGTH_BYTES, "big") + payload
    # An empty list of descriptors would be sent as an empty control message.
    sent = (
        socket.send_fds(connection, [frame], list(descriptors))
        if descriptors
        else connection.send(frame)
    )
    if sent < len(frame):  # an empty rest would fail where the other end has answered and gone
        connection.sendall(frame[sent:])


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Receive one message; the descriptors are this process's now, closed on exec.

    Raises:
        BadMessage: it is none.
        OSError: the connection failed.
    """
    descriptors: list[int] = []
    try:
        header = _exactly(connection, _LENGTH_BYTES, descriptors)
        length = int.from_bytes(header, "big")
        if length > MOST_BYTES:
            raise BadMessage(f"a message of {length:,} bytes, and {MOST_BYTES:,} are allowed")
        body = json.loads(_exactly(connection, length, descriptors))
        if not isinstance(body, dict):
            raise BadMessage("the message is not a JSON object")
    except BaseException as error:
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(error, (ValueError, RecursionError)):
            raise BadMessage("the message is not JSON") from error
        raise
    return body, descriptors


def ask(
    path: str, request: str, limit_s: float, descriptors: Sequence[int] = (), **body: Any
) -> dict[str, Any]:
    """One request over a connection of its own; the answer, which may be a refusal.

    Raises:
        BadMessage: there was none.
        OSError: the connection failed.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(limit_s)
        connection.connect(path)
        send(connection, {"request": request, **body}, descriptors)
        answer, received = receive(connection)
    for descriptor in received:
        os.close(descriptor)
    return answer


def _exactly(connection: socket.socket, count: int, descriptors: list[int]) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        # Not by `socket.recv_fds`, which drops the flag that closes them on exec.
        data, controls, flags, _ = connection.recvmsg(
            count - len(parts),
            socket.CMSG_LEN(MOST_DESCRIPTORS * _DESCRIPTOR_BYTES),
            socket.MSG_CMSG_CLOEXEC,
        )
        for level, kind, content in controls:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                received = array.array("i")
                received.frombytes(content[: len(content) - len(content) % _DESCRIPTOR_BYTES])
                descriptors += received
        if flags & socket.MSG_CTRUNC or len(descriptors) > MOST_DESCRIPTORS:
            raise BadMessage(f"more than {MOST_DESCRIPTORS} descriptors")
        if not data:
            raise BadMessage("the message ended early")
        parts += data
    return bytes(parts)
