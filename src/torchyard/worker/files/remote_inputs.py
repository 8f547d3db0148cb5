"""Inputs on a node that does not see the server's disk.

Owns: asking the server for the files of an input, writing them.
Leaves: how the ranks see them to inputs.py.
Always: every file has the size that was told, or the node fails; a server that is away is waited
for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry
from torchyard.worker.files.blobs import inside


def bring(link: Connection, name: str, folder: Path, give_up: Callable[[], bool]) -> Path:
    """Write the input's files below `folder`; returns the file, or the folder of several.

    Raises:
        Failure: the server has none of that name.
    """
    try:
        told = retry(lambda: link.call("GET", f"/inputs/{quote(name)}"), give_up)
        for file in told["files"]:
            target = folder / inside(str(file["path"]))
            target.parent.mkdir(parents=True, exist_ok=True)
            at = f"/inputs/{quote(name)}/files/{quote(str(file['path']))}"
            size = int(file["size_bytes"])
            retry(lambda: fetch(link, at, target, size), give_up)  # noqa: B023
            os.chmod(target, int(str(file["mode"]), 8) & 0o777)
    except Refused as refusal:
        error = refusal.body.get("error") or {}
        raise Failure(
            "input_missing",
            f"input `{name}` could not be fetched: {error.get('message') or refusal.status}",
            "submit the job again",
        ) from refusal
    folder.mkdir(parents=True, exist_ok=True)
    return folder / told["files"][0]["path"] if told["single"] else folder


def fetch(link: Connection, at: str, target: Path, size: int) -> None:
    """One file.

    Raises:
        OSError: it was cut off, or the server is away; try again.
        Refused: there is none.
    """
    with open(target, "wb") as file:
        link.download(at, file.write)
        if file.tell() != size:
            raise OSError(f"{file.tell()} of {size} bytes came")
