"""Results on their way to the server's store.

Owns: walking `outputs` and the named outputs, streaming each file.
Leaves: how long to try to node.py.
Always: a file is sent in blocks, never held in memory; a file that the script removes meanwhile
is left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from torchyard.worker.failures import Failure
from torchyard.worker.link import Link, Refused
from torchyard.worker.patience import patiently

_BLOCK = 1 << 20


def upload_folder(link: Link, folder: Path, target: str, give_up: Callable[[], bool]) -> int:
    """Send every file below `folder` to `target` (`/files/outputs` for example).

    Returns how many were sent.

    Raises:
        OSError: the server is away and `give_up` said so.
        Failure: the server refuses a file.
    """
    sent = 0
    for file in files_below(folder):
        relative = quote(os.fsencode(file.relative_to(folder).as_posix()))
        try:
            sent += patiently(lambda: _upload(link, file, f"{target}/{relative}"), give_up)  # noqa: B023
        except Refused as refusal:
            raise _refused(file.relative_to(folder), refusal) from refusal
    return sent


def files_below(folder: Path) -> Iterator[Path]:
    """Regular files in a fixed order; links are followed, but never in circles."""
    yield from _walk(folder, ())


def _walk(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    try:
        here = os.stat(folder)
        names = sorted(os.listdir(folder))
    except OSError:
        return
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    for name in names:
        entry = folder / name
        try:
            mode = os.stat(entry).st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode):
            yield from _walk(entry, (*above, identity))
        elif stat.S_ISREG(mode):
            yield entry


def _upload(link: Link, file: Path, target: str) -> int:
    try:
        reader = open(file, "rb")
    except FileNotFoundError:
        return 0
    with reader:
        link.send("PUT", target, _blocks(reader.fileno()))
    return 1


def _blocks(reader: int) -> Iterator[bytes]:
    while True:
        block = os.read(reader, _BLOCK)
        if not block:
            return
        yield block


def _refused(path: Path, refusal: Refused) -> Failure:
    error = refusal.body.get("error")
    said = error if isinstance(error, dict) else {}
    why = said.get("message") or f"it answered {refusal.status}"
    return Failure(
        "upload_refused",
        f"the server refused the output `{path}`: {why}",
        str(said.get("hint") or "see worker.log on the node"),
    )
