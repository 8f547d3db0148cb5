"""Numbered files of a shared folder: a part of a request or of a response each.

An attempt's folder holds `requests/`, where nodes put the blocks of requests, and one folder per
connection, where the server puts the blocks of responses. Both are HTTP/1.1 as it is on a wire,
cut into blocks.

Owns: names, the form of a file and its signature, writing whole files, refusing others.
Leaves: when which is written to connection.py (the node) and executors/folder_gate.py (the server).
Always: standard library, Python 3.9; a file appears whole, under its name, or not at all; the token
is in no file; links are never followed; a file counts only with the signature for its place, so
that none can be moved, repeated elsewhere, cut off or made by somebody without the token.

Source: the signature is HMAC-SHA256, RFC 2104.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Optional
from urllib.parse import quote, unquote, urlsplit

SCHEME = "folder"
REQUESTS = "requests"
"""Beside the folders of connections, in an attempt's folder."""
WORKERS = "workers"
"""Beside the folders of attempts: the worker's program, by its sha256."""
MORE, LAST, RESET = 0, 1, 2
"""Kinds of blocks: others follow, none follows, the server gave the request up."""
BLOCK_BYTES = 4 << 20
WINDOW = 8
"""So many blocks of a request or response lie there at most, unread."""
MOST_FILES = 20_000
"""In one folder; what is beyond them is not read."""
RESET_NUMBER = 99_999_999
"""The number of a RESET, which comes after a response's blocks."""
_MAGIC = b"TYF1"
_MAC_BYTES = 32
_HEAD_BYTES = len(_MAGIC) + 1 + _MAC_BYTES
_CONNECTION = re.compile(r"[0-9a-f]{32}\Z")
_REQUEST = re.compile(r"([0-9a-f]{32})-(\d{8})-(\d{8})\Z")


class Forged(OSError):
    """A file of the shared folder is not what its place says, or not from who has the token."""


@dataclass(frozen=True)
class BlockId:
    """Where a block belongs. `request` and `number` count from 1 and from 0; `is_response` says in
    which direction it goes.
    """

    attempt: str
    connection: str
    request: int
    number: int
    is_response: bool

    @property
    def name(self) -> str:
        """Of the file, in `requests/` or in the connection's folder."""
        name = f"{self.request:08d}-{self.number:08d}"
        return name if self.is_response else f"{self.connection}-{name}"


@dataclass(frozen=True)
class Block:
    kind: int
    content: bytes


def key_of(token: str) -> bytes:
    """What signs the files of who has this token."""
    return hmac.new(token.encode(), b"torchyard shared folder", hashlib.sha256).digest()


def new_connection() -> str:
    return secrets.token_hex(16)


def is_connection(name: str) -> bool:
    return _CONNECTION.match(name) is not None


def request_of(attempt: str, name: str) -> Optional[BlockId]:
    """The place that a file of `requests/` is named for; None for another file."""
    match = _REQUEST.match(name)
    return BlockId(attempt, match[1], int(match[2]), int(match[3]), False) if match else None


def url_of(folder: Path) -> str:
    """The address that stands for an attempt's folder."""
    return f"{SCHEME}:{quote(str(folder))}"


def folder_of(url: str) -> Path:
    """The folder that `url_of` was given."""
    return Path(unquote(urlsplit(url).path))


def check_private(folder: Path) -> None:
    """
    Raises:
        OSError: it is not there.
        Forged: it is a link, another user's, or others may enter it.
    """
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise Forged(f"`{folder}` is not a folder")
    if status.st_uid != os.geteuid():
        raise Forged(
            f"`{folder}` belongs to user {status.st_uid}, and this process is user {os.geteuid()}"
        )
    if status.st_mode & 0o077:
        raise Forged(f"other users may enter `{folder}`")


def names(folder: Path) -> list[str]:
    """The files there, none that is still being written.

    The folder is opened again each time: network file systems then ask their server.

    Raises:
        OSError: it is not there.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        listed = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    listed.append(entry.name)
                if len(listed) >= MOST_FILES:
                    break
        return listed
    finally:
        os.close(descriptor)


def write(folder: Path, block_id: BlockId, key: bytes, block: Block) -> None:
    """Put a block into its folder, whole.

    Raises:
        OSError: the folder is not there, or the disk is full.
    """
    head = _MAGIC + bytes([block.kind]) + _signature(key, block_id, block)
    write_whole(folder, block_id.name, head, block.content)


def write_whole(folder: Path, name: str, *parts: bytes) -> None:
    """Write a file that only its owner reads, and name it when all of it is on the disk."""
    draft = folder / f".{secrets.token_hex(8)}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for part in parts:
                left = memoryview(part)
                while left:
                    left = left[file.write(left) :]
            os.fsync(file.fileno())
        os.rename(draft, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def read(folder: Path, block_id: BlockId, key: bytes) -> Block:
    """
    Raises:
        FileNotFoundError: it is not there.
        Forged: it is not a block for this place, signed with the key.
    """
    raw = _content(folder / block_id.name)
    if len(raw) < _HEAD_BYTES or not raw.startswith(_MAGIC):
        raise Forged(f"`{block_id.name}` is not a block")
    block = Block(raw[len(_MAGIC)], raw[_HEAD_BYTES:])
    if not hmac.compare_digest(
        raw[len(_MAGIC) + 1 : _HEAD_BYTES], _signature(key, block_id, block)
    ):
        raise Forged(f"`{block_id.name}` is not signed for its place")
    return block


def remove(folder: Path, block_id: BlockId) -> None:
    with contextlib.suppress(OSError):
        os.unlink(folder / block_id.name)


def _content(file: Path) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(file, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Forged(f"`{file.name}` is not a file: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise Forged(f"`{file.name}` is not a file of this user")
        if status.st_size > BLOCK_BYTES + _HEAD_BYTES:
            raise Forged(f"`{file.name}` is longer than a block")
        return opened.read(BLOCK_BYTES + _HEAD_BYTES)


def _signature(key: bytes, block_id: BlockId, block: Block) -> bytes:
    direction = "response" if block_id.is_response else "request"
    numbers = f"{block_id.request}\0{block_id.number}\0{block.kind}"
    text = f"{direction}\0{block_id.attempt}\0{block_id.connection}\0{numbers}\0"
    signature = hmac.new(key, text.encode(), hashlib.sha256)
    signature.update(block.content)
    return signature.digest()
