"""What a rank and its writer say to each other over a socket.

Owns: the messages and their framing.
Leaves: what they cause to writer and writer_process.
Always: a message that was cut off by the death of its sender is not there at all.
"""

from __future__ import annotations

import array
import pickle
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.train.checkpoint.commits import SaveRequest
from torchyard.train.checkpoint.staging import Staged

_HEADER = struct.Struct("<Q")


@dataclass(frozen=True)
class Save:
    """Write a copy. The buffer's file descriptor goes with the first message that names it."""

    number: int
    request: SaveRequest
    buffer: int
    buffer_bytes: int
    staged: Mapping[int, Staged]


@dataclass(frozen=True)
class Assigned:
    """These positions of the plan are this rank's share."""

    number: int
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Notice:
    """Something that people should know, such as a full disk."""

    text: str


@dataclass(frozen=True)
class Saved:
    """The checkpoint is durable; those that it replaces are deleted next."""

    number: int
    path: Path


@dataclass(frozen=True)
class Cleaned:
    """The deletions are done too, so the copy's buffer is free."""

    number: int


@dataclass(frozen=True)
class Failed:
    number: int
    message: str
    hint: str


def send(connection: socket.socket, content: bytes, descriptor: int | None = None) -> None:
    header = _HEADER.pack(len(content))
    if descriptor is None:
        connection.sendall(header + content)
        return
    rights = array.array("i", [descriptor])
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
    connection.sendmsg([header], ancillary)
    connection.sendall(content)


def receive(connection: socket.socket) -> tuple[Any, int | None] | None:
    """The next message with its file descriptor; None when the sender has ended."""
    try:
        header, descriptor = _receive_header(connection)
        content = _receive_all(connection, _HEADER.unpack(header)[0])
    except (ConnectionError, EOFError):
        return None
    return pickle.loads(content), descriptor


def _receive_header(connection: socket.socket) -> tuple[bytes, int | None]:
    size = array.array("i").itemsize
    header, ancillary, _, _ = connection.recvmsg(_HEADER.size, socket.CMSG_SPACE(size))
    descriptor = None
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            rights = array.array("i")
            rights.frombytes(data[:size])
            descriptor = rights[0]
    return header + _receive_all(connection, _HEADER.size - len(header)), descriptor


def _receive_all(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
