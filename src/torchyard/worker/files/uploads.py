"""Results on their way to the server's store.

Owns: walking `outputs` and the named outputs, streaming each file.
Leaves: how long to try to node/node.py.
Always: a file is sent in blocks, never held in memory; a file that the script removes meanwhile
is left out. One that can't be read, or that the server refuses, keeps none of the others here.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from torchyard.shared import disk
from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry

_BLOCK = 1 << 20
_SHOWN = 300
# As Python reads them from a disk.
_NO_UTF8 = re.compile("[\udc80-\udcff]")
# Removed meanwhile, or a link that leads nowhere.
_NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

Unread = Callable[[Path, OSError], None]


class _Unreadable(Exception):
    """The file itself, so that trying again is in vain; the cause says why."""


def upload_folder(link: Connection, folder: Path, target: str, give_up: Callable[[], bool]) -> int:
    """Send every file below `folder` to `target` (`/files/outputs` for example).

    Returns how many were sent.

    Raises:
        OSError: the server is away and `give_up` said so.
        Failure: the server refuses a file, or it can't be read; all others were sent.
    """
    sent = 0
    failures: list[Failure] = []

    def unread(file: Path, error: OSError) -> None:
        failures.append(_unreadable(file.relative_to(folder), error))
        print(failures[-1].message, file=sys.stderr, flush=True)

    for file in files_below(folder, unread):
        path = file.relative_to(folder)
        relative = quote(in_utf8(path))
        try:
            sent += retry(lambda: _upload(link, file, f"{target}/{relative}"), give_up)  # noqa: B023
        except Refused as refusal:
            failures.append(refused(f"output `{_shown(path)}`", refusal))
            print(failures[-1].message, file=sys.stderr, flush=True)
        except _Unreadable as error:
            assert isinstance(error.__cause__, OSError)
            unread(file, error.__cause__)
    if failures:
        raise failures[0]
    return sent


def in_utf8(path: Path) -> str:
    """As servers can keep it: bytes that are no UTF-8 are written `%FF`, so that names differ."""
    return _NO_UTF8.sub(lambda one: f"%{ord(one[0]) - 0xDC00:02X}", path.as_posix())


def files_below(folder: Path, unread: Unread = lambda *_: None) -> Iterator[Path]:
    """Regular files in a fixed order; links are followed, but never in circles.

    Args:
        unread: told of what can't be looked at.
    """
    # Folders from the top to here, each with what it is and what is still to be looked at. No
    # recursion: a tree may be deeper than Python's.
    above: list[tuple[Path, tuple[int, int], Iterator[str]]] = []

    def enter(path: Path, identity: tuple[int, int]) -> None:
        if all(identity != known for _, known, _ in above):
            above.append((path, identity, iter(sorted(os.listdir(path)))))

    path: Path | None = folder
    while path is not None or above:
        if path is None:
            parent, _, names = above[-1]
            name = next(names, None)
            if name is None:
                above.pop()
                continue
            path = parent / name
        try:
            found = os.stat(path)
            if stat.S_ISDIR(found.st_mode):
                enter(path, (found.st_dev, found.st_ino))
            elif stat.S_ISREG(found.st_mode):
                yield path
        except OSError as error:
            if error.errno not in _NOTHING_THERE:
                unread(path, error)
        path = None


def _upload(link: Connection, file: Path, target: str) -> int:
    try:
        reader = open(file, "rb")
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _Unreadable from error
    with reader:
        try:
            link.send("PUT", target, _blocks(reader.fileno()))
        except _Unreadable:
            link.close()  # half of the file is on it
            raise
    return 1


def _blocks(reader: int) -> Iterator[bytes]:
    while True:
        try:
            block = os.read(reader, _BLOCK)
        except OSError as error:
            raise _Unreadable from error
        if not block:
            return
        yield block


def refused(what: str, refusal: Refused) -> Failure:
    """Of something that the server will not have, in its own words."""
    error = refusal.body.get("error")
    said = error if isinstance(error, dict) else {}
    why = said.get("message") or f"it answered {refusal.status}"
    return Failure(
        "upload_refused",
        f"the server refused the {what}: {why}",
        str(said.get("hint") or "see worker.log on the node"),
    )


def _unreadable(path: Path, error: OSError) -> Failure:
    message = f"the output `{_shown(path)}` can't be read: {error.strerror}"
    blamed = disk.failure(error)
    if blamed is not None:
        return Failure(blamed.code, message, blamed.hint)
    return Failure(
        "output_unreadable",
        message,
        "what a job leaves must be readable for the user that the server runs as, under a path "
        "that is not too long; all other files were delivered",
    )


def _shown(path: Path) -> str:
    text = in_utf8(path)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
