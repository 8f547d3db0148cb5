"""As whom Ray's programs run: this process's own user, or with a runner its engine user.

Owns: what both ways offer, the way of an own user.
Leaves: the engine user to engine_programs.py, what programs are told to bridge.py, head_nodes.py
and ray_environment.py.
Always: a program that is not to outlive the server ends with it; travels to hosts that join, with
the standard library alone.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol


@dataclass(frozen=True)
class Ended:
    """How a program ended, and the end of what it wrote."""

    code: int
    said: str


class Running(Protocol):
    """A program with which the server speaks by lines; it ends with the server."""

    pid: int
    stdin: IO[str]
    stdout: IO[bytes]

    def poll(self) -> int | None: ...

    def wait(self, limit_s: float | None = None) -> None:
        """
        Raises:
            TimeoutError: it goes on.
        """
        ...

    def kill(self) -> None:
        """End it with all that it started."""
        ...


class Lasting(Protocol):
    """A program that outlives the server."""

    pid: int

    def poll(self) -> int | None: ...


class RayPrograms(Protocol):
    """Attributes: `is_apart` where they run as another user than the server."""

    is_apart: bool

    @property
    def folder(self) -> Path:
        """Theirs; it holds Ray's environments."""
        ...

    @property
    def uid(self) -> int: ...

    @property
    def python(self) -> str:
        """One that they can run, for programs that need the standard library alone."""
        ...

    def exists(self, path: Path) -> bool: ...

    def remove(self, path: Path) -> None: ...

    def touch(self, path: Path) -> None: ...

    def run(
        self, words: Sequence[str], environ: Mapping[str, str], limit_s: float, lock: int
    ) -> Ended:
        """Run a program to its end.

        Args:
            lock: stays open as long as the program runs.

        Raises:
            TimeoutError: it took longer.
            OSError: it can't be started.
        """
        ...

    def open(self, words: Sequence[str], environ: Mapping[str, str], log: IO[Any]) -> Running: ...

    def start_lasting(
        self,
        name: str,
        words: Sequence[str],
        environ: Mapping[str, str],
        first_line: str,
        log: IO[Any],
    ) -> Lasting:
        """
        Args:
            name: what it is signalled by.
            first_line: all that it reads from its standard input.
        """
        ...

    def signal(self, name: str, pid: int, start_time: int, signum: int) -> None:
        """Signal the process group of a lasting program, as long as its leader is there."""
        ...


class OwnPrograms:
    """As this process's own user.

    Args:
        home: environments are made in its folder `engines`.
    """

    is_apart = False
    python = sys.executable

    def __init__(self, home: Path) -> None:
        self.folder = home / "engines"
        self.uid = os.geteuid()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def remove(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)

    def touch(self, path: Path) -> None:
        path.touch()

    def run(
        self, words: Sequence[str], environ: Mapping[str, str], limit_s: float, lock: int
    ) -> Ended:
        try:
            ended = subprocess.run(
                words,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
                pass_fds=[lock],
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        return Ended(ended.returncode, ended.stderr)

    def open(self, words: Sequence[str], environ: Mapping[str, str], log: IO[Any]) -> Running:
        return _OwnProcess(words, environ, log)

    def start_lasting(
        self,
        name: str,
        words: Sequence[str],
        environ: Mapping[str, str],
        first_line: str,
        log: IO[Any],
    ) -> Lasting:
        with held_line(first_line) as stdin:
            return subprocess.Popen(
                words, env=environ, stdin=stdin, stdout=log, stderr=log, start_new_session=True
            )

    def signal(self, name: str, pid: int, start_time: int, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(pid, signum)


class _OwnProcess:
    def __init__(self, words: Sequence[str], environ: Mapping[str, str], log: IO[Any]) -> None:
        self._process = subprocess.Popen(
            words,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self.stdin: IO[str] = io.TextIOWrapper(self._process.stdin, encoding="utf-8")
        self.stdout: IO[bytes] = self._process.stdout
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, limit_s: float | None = None) -> None:
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def held_line(text: str) -> Iterator[IO[bytes]]:
    """A file without a name that holds one line."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode() + b"\n")
        file.seek(0)
        yield file
