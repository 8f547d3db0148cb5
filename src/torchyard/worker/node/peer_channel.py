"""What two nodes of an attempt say to each other about copies of checkpoints.

Owns: the proof that both have the attempt's token, messages and files on one connection.
Leaves: what is copied to peer_sender.py, what is kept to peer_keeper.py.
Always: the token is never sent, and neither end takes anything from one that lacks it; a message or
file that was changed, repeated or cut off is none. No read or write waits without a limit. What is
sent can be read by those who can read the network between the nodes.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from torchyard.worker.launch.launch_ports import FIRST_COPIES_PORT
from torchyard.worker.preflight.ports import LAST_PORT

_CONNECT_S = 10.0
_TRANSFER_S = 30.0
_NONCE_BYTES, _PROOF_BYTES = 16, 32
_NODE = struct.Struct("!I")
_LENGTH = struct.Struct("!I")
_COUNT = struct.Struct("!Q")
_MOST_MESSAGE_BYTES = 1 << 20
_BLOCK_BYTES = 1 << 20


class BadPeer(OSError):
    """The other end lacks the token, or what came is not what it sent."""


class PeerGone(OSError):
    """The other end has closed the connection."""


class Channel:
    """One connection whose ends have proved to each other that they belong to the attempt.

    Methods raise OSError when the other end is gone, silent for too long, or a `BadPeer`; the
    channel is of no use then.
    """

    def __init__(self, connection: socket.socket, send_key: bytes, receive_key: bytes) -> None:
        self._connection = connection
        self._keys = (send_key, receive_key)
        self._counts = [0, 0]
        connection.settimeout(_TRANSFER_S)

    def send(self, message: dict[str, Any]) -> None:
        content = json.dumps(message).encode()
        mac = self._mac(0)
        mac.update(content)
        self._connection.sendall(_LENGTH.pack(len(content)) + content + mac.digest())

    def receive(self) -> dict[str, Any]:
        (length,) = _LENGTH.unpack(_receive(self._connection, _LENGTH.size))
        if length > _MOST_MESSAGE_BYTES:
            raise BadPeer(f"a message of {length} bytes")
        content = _receive(self._connection, length)
        mac = self._mac(1)
        mac.update(content)
        self._check(mac)
        message = json.loads(content)
        if not isinstance(message, dict):
            raise BadPeer("a message is not an object")
        return message

    def send_file(self, file: BinaryIO, size_bytes: int, give_up: Callable[[], bool]) -> None:
        """
        Raises:
            BadPeer: the file is shorter by now.
            OSError: `give_up` returned True, too.
        """
        mac = self._mac(0)
        left = size_bytes
        while left:
            block = file.read(min(left, _BLOCK_BYTES))
            if not block or give_up():
                raise BadPeer("the file was cut off")
            mac.update(block)
            self._connection.sendall(block)
            left -= len(block)
        self._connection.sendall(mac.digest())

    def receive_file(self, size_bytes: int, write: Callable[[bytes], object]) -> None:
        """
        Raises:
            BadPeer: what was written is not what the other end had.
        """
        mac = self._mac(1)
        left = size_bytes
        while left:
            block = self._connection.recv(min(left, _BLOCK_BYTES))
            if not block:
                raise PeerGone("the other node has ended")
            mac.update(block)
            write(block)
            left -= len(block)
        self._check(mac)

    def close(self) -> None:
        """May be called by another thread: a call that waits there fails."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()

    def _mac(self, direction: int) -> hmac.HMAC:
        """Of the next message or file: its number keeps one from being repeated."""
        mac = hmac.new(self._keys[direction], _COUNT.pack(self._counts[direction]), "sha256")
        self._counts[direction] += 1
        return mac

    def _check(self, mac: hmac.HMAC) -> None:
        if not hmac.compare_digest(mac.digest(), _receive(self._connection, _PROOF_BYTES)):
            raise BadPeer("what came was changed on its way")


def connect(address: tuple[str, int], token: str, node: int) -> Channel:
    """To the node that keeps copies for `node`, this one.

    Raises:
        OSError: it can't be reached, or is another attempt's (`BadPeer`).
    """
    try:
        connection = socket.create_connection(address, _CONNECT_S)
    except OSError as error:
        raise OSError(
            f"no connection to {address[0]}, port {address[1]} ({error.strerror or error}): allow "
            f"TCP between the nodes on ports {FIRST_COPIES_PORT} to {LAST_PORT}"
        ) from error
    try:
        deadline = time.monotonic() + _CONNECT_S
        challenge = _receive(connection, _NONCE_BYTES, deadline)
        nonce = os.urandom(_NONCE_BYTES)
        spoken = _NODE.pack(node) + challenge + nonce
        connection.sendall(nonce + _NODE.pack(node) + _proof(token, b"owner", spoken))
        proof = _receive(connection, _PROOF_BYTES, deadline)
        if not hmac.compare_digest(proof, _proof(token, b"keeper", spoken)):
            raise BadPeer(f"{address[0]}:{address[1]} is not a node of this attempt")
        keys = _proof(token, b"from owner", spoken), _proof(token, b"from keeper", spoken)
        return Channel(connection, *keys)
    except BaseException:
        connection.close()
        raise


def accept(connection: socket.socket, token: str, node: int) -> Channel:
    """From `node`, and no other.

    Raises:
        OSError: the other end is silent, or has no token (`BadPeer`).
    """
    deadline = time.monotonic() + _CONNECT_S
    nonce = os.urandom(_NONCE_BYTES)
    connection.settimeout(_CONNECT_S)
    connection.sendall(nonce)
    answer = _receive(connection, _NONCE_BYTES + _NODE.size + _PROOF_BYTES, deadline)
    challenge, proof = answer[:_NONCE_BYTES], answer[-_PROOF_BYTES:]
    spoken = _NODE.pack(node) + nonce + challenge
    claim = answer[_NONCE_BYTES:-_PROOF_BYTES]
    if claim != _NODE.pack(node) or not hmac.compare_digest(proof, _proof(token, b"owner", spoken)):
        raise BadPeer("it is not the node whose checkpoints are kept here")
    connection.sendall(_proof(token, b"keeper", spoken))
    keys = _proof(token, b"from keeper", spoken), _proof(token, b"from owner", spoken)
    return Channel(connection, *keys)


def _proof(token: str, purpose: bytes, spoken: bytes) -> bytes:
    content = b"torchyard peer copies, " + purpose + b"\n" + spoken
    return hmac.new(token.encode(), content, "sha256").digest()


def _receive(connection: socket.socket, size: int, deadline: float | None = None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        if deadline is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise BadPeer("the other end is silent")
            connection.settimeout(left_s)
        part = connection.recv(size - len(parts))
        if not part:
            raise PeerGone("the other node has ended")
        parts += part
    return bytes(parts)
