"""Upload outputs to the server's store.

Owns: walking `outputs` and the named outputs, streaming each file.
Leaves: how long to try to node/delivery.py.
Always: a file is sent in blocks, never held in memory; a file that is deleted meanwhile is skipped.
A file that can't be read or that the server refuses does not keep others from being uploaded.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from torchyard.shared import disk
from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry

_BLOCK = 1 << 20
_MAX_DISPLAY_LENGTH = 300
# How Python represents such bytes in file names.
_NON_UTF8 = re.compile("[\udc80-\udcff]")
# Deleted meanwhile, or a broken link.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

OnMissing = Callable[[Path], None]
OnUnreadable = Callable[[Path, OSError], None]


class _Unreadable(Exception):
    """The file itself can't be read, so retrying is useless; the cause says why."""


def upload_folder(
    link: Connection,
    folder: Path,
    target: str,
    give_up: Callable[[], bool],
    is_sent: Callable[[Path], bool] = lambda _: False,
    on_missing: OnMissing = lambda _: None,
) -> int:
    """Upload every file below `folder` to `target`, for example `/files/outputs`.

    Args:
        is_sent: whether the server has a file already.
        on_missing: called for each link that points to nothing.

    Returns:
        The number of files uploaded.

    Raises:
        OSError: the server is unreachable and `give_up` returned True.
        Failure: a file can't be read or the server refused it; all others were uploaded.
    """
    sent = 0
    failures: list[Failure] = []

    def on_unreadable(file: Path, error: OSError) -> None:
        failures.append(_unreadable(file.relative_to(folder), error))
        print(failures[-1].message, file=sys.stderr, flush=True)

    for file in files_below(folder, on_unreadable, on_missing):
        if is_sent(file):
            continue
        path = file.relative_to(folder)
        relative = quote(utf8_path(path))
        try:
            sent += retry(lambda: _upload(link, file, f"{target}/{relative}"), give_up)  # noqa: B023
        except Refused as refusal:
            failures.append(refusal_failure(f"output `{_display_path(path)}`", refusal))
            print(failures[-1].message, file=sys.stderr, flush=True)
        except _Unreadable as error:
            assert isinstance(error.__cause__, OSError)
            on_unreadable(file, error.__cause__)
    if failures:
        raise failures[0]
    return sent


def upload_file(link: Connection, file: Path, target: str) -> None:
    """Upload one file, once.

    Raises:
        FileNotFoundError: it was deleted meanwhile.
        OSError: it can't be read, or the server is unreachable.
        Refused: the server does not take it.
    """
    try:
        if not _upload(link, file, target):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    except _Unreadable as error:
        assert isinstance(error.__cause__, OSError)
        raise error.__cause__ from None


def utf8_path(path: Path) -> str:
    """The path in UTF-8: other bytes are written as `%FF`, so that names stay distinct."""
    return _NON_UTF8.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", path.as_posix())


def files_below(
    folder: Path,
    on_unreadable: OnUnreadable = lambda *_: None,
    on_missing: OnMissing = lambda _: None,
) -> Iterator[Path]:
    """Regular files in a stable order; links are followed, but never in cycles.

    Args:
        on_unreadable: called for each entry that can't be examined.
        on_missing: called for each link that points to nothing, and for pipes, sockets and devices.
    """
    # The folders from the top down to the current one, each with its identity and the entries
    # still to visit. Not recursive, because a tree may exceed Python's recursion limit.
    ancestors: list[tuple[Path, tuple[int, int], Iterator[str]]] = []

    def enter(path: Path, identity: tuple[int, int]) -> None:
        if all(identity != ancestor for _, ancestor, _ in ancestors):
            ancestors.append((path, identity, iter(sorted(os.listdir(path)))))

    path: Path | None = folder
    while path is not None or ancestors:
        if path is None:
            parent, _, names = ancestors[-1]
            name = next(names, None)
            if name is None:
                ancestors.pop()
                continue
            path = parent / name
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                enter(path, (status.st_dev, status.st_ino))
            elif stat.S_ISREG(status.st_mode):
                yield path
            else:
                on_missing(path)
        except OSError as error:
            if error.errno not in _MISSING:
                on_unreadable(path, error)
            elif path.is_symlink():
                on_missing(path)
        path = None


def _upload(link: Connection, file: Path, target: str) -> int:
    try:
        reader = _opened(file)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _Unreadable from error
    with reader:
        try:
            link.send("PUT", target, _blocks(reader.fileno()))
        except _Unreadable:
            link.close()  # half of the file was sent on it
            raise
    return 1


def _opened(file: Path) -> BinaryIO:
    """A regular file; a pipe that came in its place would be waited for.

    Raises:
        FileNotFoundError: it was removed, or something else is in its place.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    return os.fdopen(descriptor, "rb")


def _blocks(reader: int) -> Iterator[bytes]:
    while True:
        try:
            block = os.read(reader, _BLOCK)
        except OSError as error:
            raise _Unreadable from error
        if not block:
            return
        yield block


def refusal_failure(subject: str, refusal: Refused) -> Failure:
    """The failure for an upload that the server refused, with the server's message."""
    error = refusal.body.get("error")
    details = error if isinstance(error, dict) else {}
    reason = details.get("message") or f"HTTP status {refusal.status}"
    return Failure(
        "upload_refused",
        f"the server refused {subject}: {reason}",
        str(details.get("hint") or "see worker.log on the node"),
    )


def _unreadable(path: Path, error: OSError) -> Failure:
    message = f"output `{_display_path(path)}` can't be read: {error.strerror}"
    disk_failure = disk.failure(error)
    if disk_failure is not None:
        return Failure(disk_failure.code, message, disk_failure.hint)
    return Failure(
        "output_unreadable",
        message,
        "outputs must be readable for the user that runs the server, and their paths must not be "
        "too long; all other files were uploaded",
    )


def _display_path(path: Path) -> str:
    text = utf8_path(path)
    return text if len(text) <= _MAX_DISPLAY_LENGTH else f"{text[:_MAX_DISPLAY_LENGTH]}…"
