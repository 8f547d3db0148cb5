"""Bring files from the server.

Owns: files that are whole or not there, paths that stay in their folder, several at a time.
Leaves: which files to client/.
Always: of a file that was interrupted the rest is requested, then all is an error; none is left
half-written.
"""

from __future__ import annotations

import http.client
import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Event
from typing import NamedTuple, Protocol

from torchyard.base import files
from torchyard.base.errors import InvalidInput, Unreachable
from torchyard.base.http import Transport
from torchyard.client import handing
from torchyard.client.times import Deadline

_TRIES = 3
_AT_ONCE = 4
# A larger buffer leaves the processor's cache between reading and writing: with 1 MiB, the kernel
# took three times as long.
_READ_BYTES = 64 << 10
_SMALL_BYTES = 1 << 16
_FILES_A_BUNDLE = 500
# A file that was small when it was listed may have grown since.
_CONTENT_MOST_BYTES = 64 << 20
_HEADER_MOST_BYTES = 32
_NAME_MOST, _PATH_MOST_BYTES = 255, 3000

_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|COM\d|LPT\d)(\..*)?", re.IGNORECASE)


class Counter(Protocol):
    """Is told how much there will be, then of every piece that came."""

    def total(self, size_bytes: int) -> None: ...
    def add(self, size_bytes: int) -> None: ...


@dataclass(frozen=True)
class RequestedFile:
    """What `source` answers belongs at `target`.

    `bundle` is the route that gives many of such files at once, empty when none does.
    """

    source: str
    target: Path
    size_bytes: int = 0
    bundle: str = ""


@dataclass(frozen=True)
class _Reports:
    """Who hears of pieces that came, and of files that took another one's path."""

    add: Callable[[int], None] | None = None
    replace: Callable[[Path], None] | None = None


class _Stopped(Exception):
    """Another thread has failed, or the user has pressed Ctrl-C."""


@dataclass
class _Partial:
    """What has come of a file; `mark` tells its content from any other, empty if unknown."""

    draft: Path
    written: int = 0
    mark: str = ""

    def range_headers(self) -> dict[str, str]:
        """Ask for the rest alone, if the file is still the same."""
        if not self.written or not self.mark:
            return {}
        return {"Range": f"bytes={self.written}-", "If-Range": self.mark}


class Share(NamedTuple):
    """What one request brings: a bundle of files, or one file by its own route."""

    bundle: str | None
    files: Sequence[RequestedFile]


def download_all(
    transport: Transport,
    files: Sequence[RequestedFile],
    count: Counter | None = None,
    timeout_s: float | None = None,
    on_replace: Callable[[Path], None] | None = None,
) -> list[Path]:
    """Download all of `files`, over several connections; returns the files in their order.

    Many small ones come in bundles, a request for 500.

    Args:
        timeout_s: how long it may take; None for as long as it takes.
        on_replace: called, from several threads, with each file that another one replaces.

    Raises:
        Unreachable: a response was interrupted again and again; the files before it are there.
        Timeout: it took longer than `timeout_s`; the files that are there are whole.
    """
    if count is not None:
        count.total(sum(file.size_bytes for file in files))
    hint = "download it again with a longer `timeout_s`"
    deadline = Deadline(timeout_s, f"{len(files)} files are not downloaded", hint)
    stop = Event()

    def add(piece_bytes: int) -> None:
        if stop.is_set():
            raise _Stopped
        deadline.check()
        if count is not None:
            count.add(piece_bytes)

    def work(shares: Iterable[Share]) -> None:
        limit_s = None if timeout_s is None else max(deadline.within(60), 0.001)
        with closing(transport.twin(limit_s)) as connection:
            try:
                for share in shares:
                    if share.bundle:
                        _download_bundle(connection, share.bundle, share.files, reports)
                    else:
                        _download_file(connection, share.files[0], reports)
            except Unreachable:
                deadline.check()
                raise

    reports, shares = _Reports(add, on_replace), _shares(files)
    if len(files) < 2 * _AT_ONCE:
        work(shares)
        return [file.target for file in files]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        workers = [threads.submit(work, shares[first::_AT_ONCE]) for first in range(_AT_ONCE)]
        try:
            for done in workers:
                done.result()
        finally:
            # Also after Ctrl-C: no thread begins another piece.
            stop.set()
    return [file.target for file in files]


def _shares(files: Sequence[RequestedFile]) -> list[Share]:
    if len(files) < 2 * _AT_ONCE:
        return [Share(None, [file]) for file in files]
    small = [file for file in files if file.size_bytes <= _SMALL_BYTES and file.bundle]
    single = [file for file in files if file.size_bytes > _SMALL_BYTES or not file.bundle]
    shares = [Share(None, [file]) for file in single]
    for first in range(0, len(small), _FILES_A_BUNDLE):
        part = small[first : first + _FILES_A_BUNDLE]
        shares.append(Share(part[0].bundle, part))
    return shares


def _download_file(transport: Transport, file: RequestedFile, reports: _Reports) -> None:
    """Write what its source answers; a file that is there stays until the new one is whole.

    Raises:
        Unreachable: the response was interrupted again and again.
    """
    file.target.parent.mkdir(parents=True, exist_ok=True)
    draft = _draft(file.target)
    try:
        if _is_handed(transport, file, draft, reports):
            _replace(str(draft), file.target, reports)
            return
        partial, add = _Partial(draft), reports.add or _ignore
        for _ in range(_TRIES):
            add(0)
            if _download_to(transport, file.source, partial, add):
                _replace(str(draft), file.target, reports)
                return
    finally:
        draft.unlink(missing_ok=True)
    raise Unreachable(
        f"`{file.target.name}` could not be downloaded: the connection was interrupted {_TRIES} "
        "times",
        "try again, or see `yard server status`",
    )


def _is_handed(transport: Transport, file: RequestedFile, draft: Path, reports: _Reports) -> bool:
    """Whether a server of this machine gave the file as it is, to be copied from there."""
    if not file.bundle or file.size_bytes <= _SMALL_BYTES:
        return False
    source = file.source.removeprefix(_folder_of(file.bundle))
    return handing.fetch(transport, file.bundle, source, str(draft), reports.add or _ignore)


def _ignore(piece_bytes: int) -> None:
    pass


def _folder_of(bundle: str) -> str:
    return bundle.rpartition("/")[0] + "/"


def _download_bundle(
    transport: Transport,
    bundle: str,
    files: Sequence[RequestedFile],
    reports: _Reports,
) -> None:
    """Bring small files in one answer; what a broken answer lacks is asked for one by one."""
    here = _folder_of(bundle)
    came = 0
    sources = [file.source.removeprefix(here) for file in files]
    token = secrets.token_hex(6)
    with suppress(http.client.HTTPException, OSError, ValueError):
        with transport.stream(bundle, body={"sources": sources}) as answer:
            for file in files:
                size_bytes = int(answer.readline(_HEADER_MOST_BYTES))
                if not 0 <= size_bytes <= _CONTENT_MOST_BYTES:
                    break
                content = answer.read(size_bytes)
                if len(content) < size_bytes:
                    break
                _write(file.target, content, token, reports)
                came += 1
                if reports.add is not None:
                    reports.add(size_bytes)
    for file in files[came:]:
        _download_file(transport, file, reports)


def _write(target: Path, content: bytes, token: str, reports: _Reports) -> None:
    """
    Args:
        token: of the caller alone; of thousands of files, a random name each takes its time.
    """
    folder, name = os.path.split(target)
    draft = os.path.join(folder, f".{name[:50]}.{token}.part")
    try:
        try:
            file = open(draft, "xb", buffering=0)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            file = open(draft, "xb", buffering=0)
        with file:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        _replace(draft, target, reports)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def _replace(draft: str, target: Path, reports: _Reports) -> None:
    was_there = reports.replace is not None and os.path.lexists(target)
    os.replace(draft, target)
    if was_there and reports.replace is not None:
        reports.replace(target)


def _draft(target: Path) -> Path:
    return target.with_name(files.draft_name(target.name))


def _download_to(
    transport: Transport,
    source: str,
    partial: _Partial,
    add: Callable[[int], None],
) -> bool:
    """Write the answer, or the rest of it if the file is still the same; whether all came."""
    headers = partial.range_headers()
    mode = "r+b" if headers else "wb"
    buffer = memoryview(bytearray(_READ_BYTES))
    with transport.stream(source, headers=headers) as answer, open(partial.draft, mode, 0) as file:
        if answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            file.truncate(0)
            add(-partial.written)
            partial.written = 0
        file.seek(partial.written)
        partial.mark = answer.headers.get("ETag", "")
        promised = answer.headers.get("Content-Length")
        end = None if promised is None else partial.written + int(promised)
        while True:
            try:
                count = answer.readinto(buffer)
            except (http.client.HTTPException, OSError):
                return False
            if not count:
                # http.client says nothing when a body of known length ends early.
                return end is None or partial.written == end
            left = buffer[:count]
            while left:
                left = left[file.write(left) :]
            partial.written += count
            add(count)


def below(folder: Path, path: str) -> Path:
    """`path` below `folder`; a server's word does not lead out of it, on no system.

    Raises:
        InvalidInput: it does, or through a link that stands there.
    """
    return all_below(folder, [path])[0]


def all_below(folder: Path, paths: Iterable[str]) -> list[Path]:
    """As `below`, for many paths, whose folders are looked at once each."""
    top = _with_end(os.path.realpath(folder))
    inside: set[str] = set()
    targets = []
    for path in paths:
        parts = _parts(path)
        parent = os.path.join(folder, *parts[:-1])
        # What came before is files alone, so a link below the folder is the user's own.
        if parent not in inside and not _with_end(os.path.realpath(parent)).startswith(top):
            raise InvalidInput(
                f"`{path}` lies behind a link that leads out of `{folder}`", "name an empty folder"
            )
        inside.add(parent)
        targets.append(Path(parent, parts[-1]))
    return targets


def _parts(path: str) -> Sequence[str]:
    """
    Raises:
        InvalidInput: it is no path of a file below a folder.
    """
    parts = PurePosixPath(path).parts
    size_bytes = len(path.encode("utf-8", "replace"))
    if size_bytes > _PATH_MOST_BYTES or any(len(part) > _NAME_MOST for part in parts):
        raise InvalidInput(
            f"the server names a file `{path[:80]!a}…`, which is too long for a disk"
        )
    if not parts or parts[0] == "/" or ".." in parts or "\0" in path or _leads_away(parts):
        raise InvalidInput(
            f"the server names a file `{path!a}`, which leads out of the folder",
            "nothing was written; ask your server's administrator",
        )
    return parts


def _leads_away(parts: Sequence[str]) -> bool:
    """Windows has more ways to name a place, and names that are devices."""
    return _on_windows() and any(
        "\\" in part or ":" in part or part.rstrip(". ") != part or _DEVICE.fullmatch(part)
        for part in parts
    )


def _on_windows() -> bool:
    return os.name == "nt"


def _with_end(folder: str) -> str:
    return folder if folder.endswith(os.sep) else folder + os.sep
