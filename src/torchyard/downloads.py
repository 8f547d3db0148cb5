"""Bring files from the server.

Owns: files that are whole or not there, paths that stay in their folder.
Leaves: which files to client.py.
Always: a file that broke off is asked for again, then an error; never left half-written.
"""

from __future__ import annotations

import http.client
import os
import secrets
from pathlib import Path, PurePosixPath

from torchyard.base.errors import InvalidInput, Unreachable
from torchyard.base.http import Transport

_TRIES = 3


def download_file(transport: Transport, source: str, target: Path) -> Path:
    """Write what `source` answers to `target`; what stood there stays until the new file is whole.

    Raises:
        Unreachable: the answer broke off again and again.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        for _ in range(_TRIES):
            if _whole(transport, source, temporary):
                os.replace(temporary, target)
                return target
    finally:
        temporary.unlink(missing_ok=True)
    raise Unreachable(
        f"`{target.name}` could not be downloaded: the connection broke off {_TRIES} times",
        "try again, or see `yard server status`",
    )


def _whole(transport: Transport, source: str, temporary: Path) -> bool:
    with transport.stream(source) as answer, open(temporary, "wb") as file:
        promised = answer.headers.get("Content-Length")
        written = 0
        while True:
            try:
                chunk = answer.read(1 << 20)
            except (http.client.HTTPException, OSError):
                return False
            if not chunk:
                # http.client says nothing when a body of known length ends early.
                return promised is None or written == int(promised)
            file.write(chunk)
            written += len(chunk)


def below(folder: Path, path: str) -> Path:
    """`path` below `folder`; a server's word does not lead out of it."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in path:
        raise InvalidInput(f"the server names a file `{path}`, which leads out of the folder")
    return folder.joinpath(*parts)
