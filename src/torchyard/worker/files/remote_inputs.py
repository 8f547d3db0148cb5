"""Download inputs to a node that can't access the server's disk.

Owns: requesting the files of an input from the server, writing them.
Leaves: how the ranks see them to inputs.py.
Always: every file has the announced size, or the node fails; an unreachable server only delays it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry
from torchyard.worker.files.blobs import relative_path

if TYPE_CHECKING:
    from torchyard.worker.files.node_cache import NodeCache


def fetch_input(
    link: Connection,
    name: str,
    folder: Path,
    give_up: Callable[[], bool],
    cache: NodeCache | None = None,
) -> Path:
    """Write the input's files below `folder`; return the file, or the folder if there are several.

    Args:
        cache: the node's, where the files are kept instead.

    Raises:
        Failure: the server has no input of that name.
    """
    try:
        listing = retry(lambda: link.call("GET", f"/inputs/{quote(name)}"), give_up)
        if cache is None:
            _fetch_files(link, name, folder, listing, give_up)
        else:
            folder = cache.tree(
                "cache/inputs",
                _key(listing),
                lambda: sum(int(file["size_bytes"]) for file in listing["files"]),
                lambda draft: _fetch_files(link, name, draft, listing, give_up),
                give_up,
            )
    except Refused as refusal:
        error = refusal.body.get("error") or {}
        raise Failure(
            "input_missing",
            f"input `{name}` could not be fetched: {error.get('message') or refusal.status}",
            "submit the job again",
        ) from refusal
    folder.mkdir(parents=True, exist_ok=True)
    return folder / listing["files"][0]["path"] if listing["single"] else folder


def _key(listing: Mapping[str, Any]) -> str:
    """Of the server's copy; when it changes, its files' times do."""
    text = json.dumps(listing, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _fetch_files(
    link: Connection,
    name: str,
    folder: Path,
    listing: Mapping[str, Any],
    give_up: Callable[[], bool],
) -> None:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for file in listing["files"]:
        target = folder / relative_path(str(file["path"]))
        target.parent.mkdir(parents=True, exist_ok=True)
        url_path = f"/inputs/{quote(name)}/files/{quote(str(file['path']))}"
        size = int(file["size_bytes"])
        retry(lambda: fetch_file(link, url_path, target, size), give_up)  # noqa: B023
        os.chmod(target, int(str(file["mode"]), 8) & 0o777)


def fetch_file(link: Connection, url_path: str, target: Path, size: int) -> None:
    """Download one file.

    Raises:
        OSError: the response was cut off, or the server is unreachable; try again.
        Refused: the file does not exist.
    """
    with open(target, "wb") as file:
        link.download(url_path, file.write)
        if file.tell() != size:
            raise OSError(f"received {file.tell()} of {size} bytes")
