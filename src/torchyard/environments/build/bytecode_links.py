"""`python -I -S -B bytecode_links.py list|take REQUEST`: compiled modules of an environment.

Owns: the store of compiled modules, by the SHA-256 of their source and the version of Python;
linking them into `__pycache__`; which sources have none yet, and in which order they are wanted.
Leaves: compiling them to bytecode_program.py, whose output `take` reads, running both to
bytecode.py, locking and removing the store to packages/caches.py.
Always: it runs as the server's user, who alone writes the store; nothing of an environment is run.
A module appears whole. A folder of the environment can be written for the moment of a link only.
The standard library only.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_COMPILED = "__pycache__"
_HEAD = re.compile(rb"([0-9a-f]{64}) ([0-9]{1,9}) ([0-9a-f]{64})\n")
_DRAFT = re.compile(r"\..{1,250}\.pyc\.\d{1,10}")
_LONGEST_LINE = 4096
# PEP 552: the flags of a module that is compared with its source by hash, always.
_CHECKED = b"\x03\x00\x00\x00"
_HEAD_BYTES = 16
# As bytecode_program.py, which can't be imported by the path of this file alone.
_MOST_TIMES, _ALWAYS_BYTES, _MOST_BYTES = 16, 1 << 20, 64 << 20
# These are of the disk; any other error is one file's alone.
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)
# The file system has none left, or can't link here: then the environment gets a copy.
_CANT_LINK = (errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class Request:
    """
    Args:
        packages: the folder of the environment's packages.
        store: the folder of the environment's Python in the store; empty for an environment whose
            modules are its own alone.
        tag: that of its Python, as `cpython-311`.
        may_link: whether its files may be hard links into the store.
        is_idle: whether everything else goes first.
        first: the names of packages that are imported first.
        sources: (SHA-256, path) of what has no module yet, as `list` writes it.
    """

    packages: str
    store: str
    tag: str
    may_link: bool
    is_idle: bool
    first: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()


def main(arguments: list[str]) -> int:
    """The exit code; the system's error where a file can't be written."""
    verb, file = arguments
    request = Request(**json.loads(Path(file).read_text(encoding="ascii")))
    if request.is_idle:
        os.nice(19)
    try:
        if verb == "list":
            json.dump(_link(request), sys.stdout)
            sys.stdout.flush()
        else:
            _take(request, sys.stdin.buffer)
    except OSError as error:
        # What can't be written now must not fail again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error.errno or 1
    return 0


def _link(request: Request) -> list[tuple[str, str]]:
    """Link what the store has; (SHA-256, path) of the sources of which it has nothing."""
    missing = []
    for source in _by_need(_sources(request.packages), request):
        with _of_one_file():
            with open(source, "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                    continue
                digest = hashlib.sha256(file.read()).hexdigest()
            if not _put(request, digest, source):
                missing.append((digest, source))
    return missing


@contextmanager
def _of_one_file() -> Iterator[None]:
    """Go on with the next one where this one is odd, or gone with its environment."""
    try:
        yield
    except OSError as error:
        if error.errno in _OF_DISK:
            raise


def _sources(packages: str) -> Iterator[str]:
    is_sealed = not os.stat(packages).st_mode & stat.S_IWUSR
    for top, folders, names in os.walk(packages):
        if is_sealed:
            _close(top)
            if _COMPILED in folders:
                _close(os.path.join(top, _COMPILED))
        folders[:] = [name for name in folders if name != _COMPILED]
        for name in names:
            source = os.path.join(top, name)
            if name.endswith(".py") and not os.path.islink(source):
                yield source


def _close(folder: str) -> None:
    """Seal a folder again that a process was killed in, and remove the draft that it left."""
    with _of_one_file():
        mode = stat.S_IMODE(os.lstat(folder).st_mode)
        if mode & stat.S_IWUSR and not os.path.islink(folder):
            for name in os.listdir(folder):
                if _DRAFT.fullmatch(name):
                    os.unlink(os.path.join(folder, name))
            os.chmod(folder, mode & ~stat.S_IWUSR)


def _by_need(sources: Iterable[str], request: Request) -> list[str]:
    """What is imported first comes first: the packages that were asked for, tests at the end."""
    ranks = {name: rank for rank, name in enumerate(request.first)}
    start = len(request.packages) + 1

    def need(source: str) -> tuple[bool, int, int, str]:
        parts = source[start:].split("/")
        is_test = any(part in ("test", "tests") for part in parts)
        top = parts[0].removesuffix(".py").lower()
        return is_test, ranks.get(top, len(ranks)), len(parts), source

    return sorted(sources, key=need)


def _take(request: Request, frames: IO[bytes]) -> None:
    """Keep the modules that the output of bytecode_program.py has, and link each.

    Whoever wrote it is not believed: a module is taken for a source that the request names, once,
    and within a size. After what is no module nothing more is taken, since a module has any bytes
    in it, also those of another one.
    """
    has_begun = False
    targets: dict[str, list[str]] = {}
    for digest, source in request.sources:
        targets.setdefault(digest, []).append(source)
    while line := frames.readline(_LONGEST_LINE):
        head = _HEAD.fullmatch(line)
        if head is None:
            if has_begun:
                return
            continue  # the runner says that it waits, before the program begins
        has_begun = True
        digest, size = head[1].decode(), int(head[2])
        sources = targets.pop(digest, [])
        if not sources or size > _limit(sources[0]):
            return
        content = frames.read(size)
        if hashlib.sha256(content).hexdigest().encode() != head[3]:
            return
        if content[4:8] == _CHECKED and size > _HEAD_BYTES:
            _keep(request, digest, sources, content)


def _keep(request: Request, digest: str, sources: list[str], content: bytes) -> None:
    if request.store:
        stored = _stored(request, digest)
        stored.parent.mkdir(parents=True, exist_ok=True)
        _write(stored, content)
    for source in sources:
        with _of_one_file():
            if request.store:
                _put(request, digest, source)
                continue
            target = Path(_target(request, source))
            with _opened(target.parent):
                _write(target, content)


def _limit(source: str) -> int:
    try:
        times = _MOST_TIMES * os.stat(source).st_size
    except OSError:
        return 0
    return min(max(times, _ALWAYS_BYTES), _MOST_BYTES)


def _stored(request: Request, digest: str) -> Path:
    return Path(request.store, digest[:2], f"{digest}.pyc")


def _write(file: Path, content: bytes) -> None:
    """Write it whole, or not at all; readable by all, writable by nobody."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)  # of a process that was killed
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as opened:
            opened.write(content)
            os.fchmod(descriptor, 0o444)
        os.replace(draft, file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _put(request: Request, digest: str, source: str) -> bool:
    """Put the stored module beside its source; False where there is none."""
    target = _target(request, source)
    if not request.store:
        return _is_checked(target)
    stored = _stored(request, digest)
    is_stored, is_there = stored.exists(), os.path.lexists(target)
    if is_stored and is_there and _is_same(stored, target):
        return True
    if is_stored or is_there:
        with _opened(Path(target).parent):
            if is_there:
                # Nobody knows who wrote it.
                os.unlink(target)
            if is_stored:
                _link_or_copy(request, stored, target)
    return is_stored


def _link_or_copy(request: Request, stored: Path, target: str) -> None:
    if request.may_link:
        try:
            os.link(stored, target)
            return
        except OSError as error:
            if error.errno not in _CANT_LINK:
                raise
            if error.errno == errno.EMLINK:
                # Later environments link the new file; the many earlier ones keep the old one.
                _write(stored, stored.read_bytes())
    _write(Path(target), stored.read_bytes())


def _is_same(stored: Path, target: str) -> bool:
    there = os.lstat(target)
    if not stat.S_ISREG(there.st_mode):
        return False
    status = stored.stat()
    if os.path.samestat(status, there):
        return True
    return status.st_size == there.st_size and stored.read_bytes() == Path(target).read_bytes()


def _is_checked(target: str) -> bool:
    try:
        with open(target, "rb") as file:
            return file.read(8)[4:] == _CHECKED
    except OSError:
        return False


def _target(request: Request, source: str) -> str:
    folder, name = os.path.split(source)
    return f"{folder}/{_COMPILED}/{name[:-3]}.{request.tag}.pyc"


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """Let this user write into a folder within the block; made where it is not there."""
    if not folder.exists():
        mode = stat.S_IMODE(folder.parent.stat().st_mode)
        with _opened(folder.parent):
            folder.mkdir(exist_ok=True)
        os.chmod(folder, mode)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IWUSR:
        yield
        return
    os.chmod(folder, mode | stat.S_IWUSR)
    try:
        yield
    finally:
        os.chmod(folder, mode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
