"""Compile the modules of built environments, after jobs may start in them.

Owns: which environment is next, that one is compiled at a time, what makes it end and go on; the
mark of an environment whose modules are compiled.
Leaves: the programs to bytecode.py, as whom they run to a Compiler, building to builds.py.
Always: it never holds an environment's lock, and an environment is as good without it: a build, a
repair, a removal or a full disk end it; what it had compiled stays. It ends with the server, and
the next one goes on.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from torchyard.base import disk, files, leash
from torchyard.base.errors import TorchyardError, Unreachable
from torchyard.environments.build import bytecode
from torchyard.environments.build.bytecode import Modules
from torchyard.environments.build.folders import BuiltFolders, read_text
from torchyard.environments.build.records import BuildRecords
from torchyard.environments.packages import caches
from torchyard.environments.packages.requirements import package_name
from torchyard.shared import locks

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 60.0
_POLL_S = 0.1
_AGAIN_S = 5.0
_REQUESTS, _OLD_S, _CLOSE_S = ".compiling-", 3600.0, 10.0
# Jobs import them before what they list.
_FIRST = ("torch", "numpy")


class Compiler(Protocol):
    """Runs the compiler of an environment's Python in a process of its own.

    Attributes:
        is_for_strangers: whether others than this process's user make environments.
        limit_s: after how long it lets others do what it does as the same account; None for never.
    """

    is_for_strangers: bool
    limit_s: float | None

    def compile(self, modules: Modules, request: Path) -> AbstractContextManager[Compile]:
        """Run bytecode_program.py; it is ended with the block."""
        ...


@dataclass(frozen=True)
class Compile:
    """A program that compiles; `exit_code` waits for its end, and is called after its output."""

    output: IO[bytes]
    exit_code: Callable[[], int]


class LocalCompiler:
    """As this process's own user."""

    is_for_strangers = False
    limit_s: float | None = None

    @contextmanager
    def compile(self, modules: Modules, request: Path) -> Iterator[Compile]:
        process = subprocess.Popen(
            leash.command(bytecode.compile_command(modules, request)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            with process.stdout:
                yield Compile(process.stdout, process.wait)
        finally:
            leash.end(process)


class BackgroundCompiler:
    """Compiles one environment after the other, those that were used last first.

    Args:
        store: of compiled modules.

    Attributes:
        is_idle: whether everything else on the machine goes first.
    """

    is_idle = True

    def __init__(
        self, folders: BuiltFolders, records: BuildRecords, store: Path, compiler: Compiler
    ) -> None:
        self._folders = folders
        self._records = records
        self._store = store
        self._compiler = compiler
        self._thread = threading.Thread(target=self._run, name="compiling", daemon=True)
        self._stopping = threading.Event()
        self._news = threading.Event()
        # One at a time in this process; among all that share the store, its file's lock.
        self._one = threading.Lock()
        self._count = threading.Lock()
        self._in_front = 0
        # Since when somebody waits for their modules.
        self._urgent: dict[str, float] = {}
        # With the marks that they had: what a full disk or a fault ended waits for a new server.
        self._failed: set[tuple[str, str]] = set()

    def start(self) -> None:
        """Begin with what an earlier server left, and go on until `close`."""
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def wake(self) -> None:
        """Turn to an environment that was built: its jobs come first."""
        self._news.set()

    def building(self) -> AbstractContextManager[None]:
        """Leave the account that compiles, if others use it, to a build within the block."""
        return nullcontext() if self._compiler.limit_s is None else self._paused()

    @contextmanager
    def _paused(self) -> Iterator[None]:
        """Compile nothing in the background within the block."""
        with self._count:
            self._in_front += 1
        try:
            yield
        finally:
            with self._count:
                self._in_front -= 1
            self._news.set()

    def is_ready(self, hash: str, limit_s: float) -> bool:
        """Whether an environment has its modules, or has been given so long to get them: it goes
        before others, and is compiled as fast as any program.
        """
        if self._unfinished(hash) is None or not self._thread.is_alive():
            return True
        now = time.monotonic()
        with self._count:
            is_new = hash not in self._urgent
            since = self._urgent.setdefault(hash, now)
        if is_new:
            self._news.set()
        return now - since > limit_s

    def finish(self, hash: str, canceled: Callable[[], bool] = lambda: False) -> None:
        """Compile what an environment lacks now, as fast as any program; nothing if it has all."""
        if self._unfinished(hash) is None:
            return

        def must_end() -> bool:
            return self._stopping.is_set() or canceled()

        with self._paused():
            while not self._one.acquire(timeout=_POLL_S):
                if must_end():
                    return
            try:
                with suppress(Unreachable):
                    self._compile(hash, must_end, is_idle=False)
            finally:
                self._one.release()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            try:
                is_done = self._compile_next()
            except Exception as error:
                if not isinstance(error, Unreachable):
                    _log.exception("modules could not be compiled; will retry")
                self._stopping.wait(_AGAIN_S)
                continue
            if not is_done:
                self._news.wait(_LOOK_EVERY_S)

    def _compile_next(self) -> bool:
        """Compile one environment, or as much of it as time is left; False if there is none."""
        hash = None if self._must_end() else self._next()
        if hash is None:
            return False
        self._store.parent.mkdir(parents=True, exist_ok=True)
        lock = self._store.with_name(".compiling.lock")
        with self._one, locks.hold(lock, self._must_end) as is_held:
            if is_held:
                is_idle = self.is_idle and hash not in self._urgent
                self._compile(hash, self._must_end, is_idle=is_idle)
        if self._unfinished(hash) is None:
            with self._count:
                self._urgent.pop(hash, None)
        return True

    def _must_end(self) -> bool:
        return self._stopping.is_set() or self._in_front > 0 or self._news.is_set()

    def _next(self) -> str | None:
        by_use = sorted(
            self._folders.all(), key=lambda item: (item[0] not in self._urgent, -_used_at_s(item[1]))
        )
        return next((hash for hash, _ in by_use if self._unfinished(hash) is not None), None)

    def _unfinished(self, hash: str) -> str | None:
        """The mark of an environment that lacks modules; None if there is nothing to do for it."""
        paths = self._folders.paths(hash)
        mark = read_text(paths.mark)
        if not mark or mark == read_text(paths.compiled) or not paths.is_whole():
            return None
        return None if (hash, mark) in self._failed else mark

    def _compile(self, hash: str, must_end: Callable[[], bool], *, is_idle: bool) -> None:
        """
        Raises:
            Unreachable: the runner or the database, which says nothing about the environment.
        """
        mark = self._unfinished(hash)
        if mark is None:
            return
        try:
            with caches.in_use(self._store):
                is_done = self._compile_all(hash, must_end, is_idle)
            # A repair may have put another build in its place.
            if is_done and self._unfinished(hash) == mark:
                with files.write_atomically(self._folders.paths(hash).compiled) as writing:
                    writing.write(mark.encode())
        except Unreachable:
            raise
        except (OSError, TorchyardError) as error:
            self._failed.add((hash, mark))
            full = disk.meaning(error)
            reason = full.message if full is not None else str(error)
            _log.warning(
                "modules of environment %s are compiled no further, jobs compile them as they "
                "import them: %s", hash[:12], reason,
            )  # fmt: skip

    def _compile_all(self, hash: str, must_end: Callable[[], bool], is_idle: bool) -> bool:
        """Compile until nothing more can be; False if it has to end before.

        Raises:
            OSError: the store can't be written.
            RunnerUnreachable, RunnerRefused: the runner can't be asked, or has no build user.
        """
        folder = self._folders.paths(hash).folder
        modules = bytecode.find(folder, self._store, self._compiler.is_for_strangers)
        if modules is None:
            return True
        request = modules.request(
            may_link=not self._folders.is_writable_by_jobs, first=self._first(hash)
        )
        tried: list[list[str]] = []
        is_first, exit_code = True, 0
        root = self._folders.root
        self._remove_left(root)
        with tempfile.TemporaryDirectory(prefix=_REQUESTS, dir=root) as name:
            asked, lacking = Path(name, "request.json"), Path(name, "lacking.json")
            while True:
                # Linking is quicker than any job's imports; it does not wait for them.
                bytecode.write(asked, {**request, "is_idle": is_idle and not is_first})
                is_first = False
                with open(lacking, "wb") as output:
                    words = bytecode.links_command("list", asked)
                    if not _end_of(words, must_end, stdout=output):
                        return False
                sources = json.loads(lacking.read_text("ascii"))
                if not sources:
                    return True
                if sources == tried:
                    if exit_code:
                        raise OSError(f"the program that compiles ended with {exit_code}")
                    return True  # they are not for this Python
                bytecode.write(asked, {**request, "is_idle": is_idle, "sources": sources})
                with self._compiler.compile(modules, asked) as compile:
                    words = bytecode.links_command("take", asked)
                    limit_s = self._compiler.limit_s
                    is_whole = _end_of(words, must_end, compile.output, limit_s=limit_s)
                    exit_code = compile.exit_code() if is_whole else 0
                if must_end():
                    return False
                if is_whole:
                    tried = sources
                else:
                    self._stopping.wait(1.0)  # a build of another server may begin

    def _remove_left(self, root: Path) -> None:
        """The requests of servers that were killed."""
        for folder in root.glob(f"{_REQUESTS}*"):
            with suppress(FileNotFoundError):
                if time.time() - folder.stat().st_mtime > _OLD_S:
                    shutil.rmtree(folder, ignore_errors=True)

    def _first(self, hash: str) -> list[str]:
        """The folders of packages that jobs import first."""
        build = self._records.row(hash)
        lines = build.spec.packages if build is not None else ()
        return [*_FIRST, *(package_name(line).replace("-", "_") for line in lines)]


def _end_of(
    words: list[str],
    must_end: Callable[[], bool],
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int = subprocess.DEVNULL,
    limit_s: float | None = None,
) -> bool:
    """Whether the program came to its end; it is ended as soon as it must, and after the limit.

    Raises:
        OSError: it failed.
    """
    until = None if limit_s is None else time.monotonic() + limit_s
    process = subprocess.Popen(
        leash.command(words),
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while True:
            try:
                code = process.wait(_POLL_S)
                break
            except subprocess.TimeoutExpired:
                if must_end() or (until is not None and time.monotonic() > until):
                    return False
    finally:
        leash.end(process)
    if code:
        raise OSError(code, os.strerror(code) if code < 128 else f"exit code {code}")
    return True


def _used_at_s(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0
