"""From the program of a local run to the server.

Owns: the addresses below the run, logs as JSON, files by their signed addresses.
Leaves: HTTP, and what a response means, to shared/connection.py.
Always: the user's token goes to the server that issued it, and to no other. Runs on the user's
machine on Python 3.9 and later, with the standard library and the worker's modules.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from torchyard.shared.connection import Connection
from torchyard.shared.server_address import ServerAddress

_SECRETS = {"MSI_ENDPOINT": "MSI_SECRET", "IDENTITY_ENDPOINT": "IDENTITY_HEADER"}
_BLOCK_BYTES = 1 << 20


class RunConnection(Connection):
    """A connection whose paths are below a local run.

    Args:
        path: of the run, as the client writes it.
    """

    def __init__(self, server: str, token: str, path: str) -> None:
        super().__init__(ServerAddress(server), token, path)

    def send(
        self,
        method: str,
        path: str,
        content: Any,
        query: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """As `Connection.send`, but a piece of a log becomes JSON: Azure's paths take no bytes."""
        if path == "/logs":
            piece = {**(query or {}), "content": base64.b64encode(content).decode()}
            content, query = json.dumps(piece).encode(), None
        return super().send(method, path, content, query, timeout_s, content_type)


def token(server: str, variables: Mapping[str, str]) -> str:
    """The user's token, as `yard client-env` has put it there; empty when it has not.

    Args:
        server: as the client named it, `https://host:port`.
    """
    for address, secret in _SECRETS.items():
        if variables.get(address, "").startswith(f"{server}/"):
            return variables.get(secret, "")
    return ""


def put(url: str, file: Path) -> None:
    """Send a file to a signed address; one that can't be read any more is left out.

    Raises:
        OSError: the server is unreachable; try again.
        Refused: the server refuses it.
    """
    try:
        reader = open(file, "rb")
    except OSError as error:
        print(f"{file} is not sent: {error}")
        return
    headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/octet-stream"}
    connection, target = _signed(url)
    with reader:
        size_bytes = os.fstat(reader.fileno()).st_size
        try:
            connection.upload(target, _blocks(reader.fileno(), size_bytes), size_bytes, headers)
        finally:
            connection.close()


def get(url: str, target: Path) -> None:
    """Fetch the file of a signed address; its folder is made.

    Raises:
        OSError: the server is unreachable; try again.
        Refused: the server refuses it.
    """
    connection, path = _signed(url)
    try:
        store(target, lambda write: connection.download(path, write))
    finally:
        connection.close()


def store(
    target: Path, download: Callable[[Callable[[bytes], object]], None], size_bytes: int = 0
) -> None:
    """Write a file that `download` passes on in blocks; its folder is made.

    The file is whole, or it isn't there.

    Args:
        size_bytes: how long it is; 0 where nobody knows.

    Raises:
        OSError: it was cut off, or `download` raised it; try again.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f"{target.name}.part")
    with open(draft, "wb") as file:
        download(file.write)
        if size_bytes and file.tell() != size_bytes:
            raise OSError(f"received {file.tell()} of {size_bytes} bytes")
    draft.replace(target)


def _signed(url: str) -> tuple[Connection, str]:
    """A connection that carries no token, and the target on it; never through a proxy."""
    parts = urlsplit(url)
    origin = SplitResult(parts.scheme, parts.netloc, "", "", "").geturl()
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return Connection(ServerAddress(origin), "", ""), target


def _blocks(reader: int, size_bytes: int) -> Iterator[bytes]:
    """At most `size_bytes` bytes: the file may still grow."""
    while size_bytes > 0:
        block = os.read(reader, min(size_bytes, _BLOCK_BYTES))
        if not block:
            return
        size_bytes -= len(block)
        yield block
