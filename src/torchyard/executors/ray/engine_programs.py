"""Ray's programs as the engine user, through the runner.

Owns: starting uv, a bridge and a head there, and ending them.
Leaves: the account to runner/, what they are told to bridge.py, head_nodes.py and
ray_environment.py.
Always: nothing of Ray runs as the server's user then, which opens no file of theirs either; of the
server's variables they get those that uv and Ray read.
"""

from __future__ import annotations

import os
import pwd
import re
import select
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.ray.programs import (
    Ended,
    Lasting,
    OwnPrograms,
    RayPrograms,
    Running,
    held_line,
)
from torchyard.executors.runner_client import (
    RunnerClient,
    RunnerRefused,
    RunnerUnreachable,
    RunningRequest,
)
from torchyard.shared import processes

_MOST_SAID_BYTES = 1 << 16
_TOOL_LIMIT_S = 300.0
_TEST, _REMOVE, _TOUCH = "/usr/bin/test", "/bin/rm", "/usr/bin/touch"
# What Ray's programs and uv need of the server's variables; the rest may be anything.
_PASSED = re.compile(
    r"(UV_|PIP_|SSL_CERT_|RAY_|LC_)|(PATH|LANG|NO_COLOR|(https?|all|no)_proxy)\Z", re.IGNORECASE
)
# Folders of the server's own user, which the engine user can't enter.
_OWN_FOLDERS = ("UV_CACHE_DIR", "UV_PYTHON_INSTALL_DIR", "PIP_CACHE_DIR")


class EnginePrograms:
    """As the engine user, through the runner.

    Whatever is called raises:
        EngineUnreachable: the runner has no engine user, or can't be asked.
    """

    is_apart = True

    def __init__(self, runner: RunnerClient) -> None:
        self._runner = runner
        self._known: dict[str, Any] = {}

    @property
    def folder(self) -> Path:
        return Path(self._hello()["engines"])

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self._hello()["engine_user"]).pw_uid

    @property
    def python(self) -> str:
        return str(self._hello()["python"])

    def _hello(self) -> dict[str, Any]:
        if not self._known:
            with _told():
                answer = self._runner.call("hello")
            if not answer.get("engine_user"):
                raise EngineUnreachable(
                    "the runner has no engine user, and Ray runs as nobody else",
                    "name one as `engine_user` in /etc/torchyard/runner.json, then restart "
                    "torchyard-runner and the server",
                )
            self._known = answer
        return self._known

    def exists(self, path: Path) -> bool:
        return self._run_tool(_TEST, "-e", str(path)).code == 0

    def remove(self, path: Path) -> None:
        self._run_tool(_REMOVE, "-rf", "--one-file-system", "--", str(path))

    def touch(self, path: Path) -> None:
        self._run_tool(_TOUCH, "--", str(path))

    def _run_tool(self, *words: str) -> Ended:
        return self.run(words, {}, _TOOL_LIMIT_S, -1)

    def run(
        self, words: Sequence[str], environ: Mapping[str, str], limit_s: float, lock: int
    ) -> Ended:
        # The lock is this server's, and the program ends with it.
        with tempfile.TemporaryFile() as said, open(os.devnull, "r+b") as nothing:
            streams = [nothing.fileno(), nothing.fileno(), said.fileno()]
            request, _ = self._start(words, environ, streams)
            with request:
                if not _has_news(request, limit_s):
                    raise TimeoutError
                code = _exit_code(request)
            said.seek(max(0, said.seek(0, os.SEEK_END) - _MOST_SAID_BYTES))
            return Ended(code, said.read().decode("utf-8", "replace"))

    def open(self, words: Sequence[str], environ: Mapping[str, str], log: IO[Any]) -> Running:
        stdin, to_program = os.pipe()
        from_program, stdout = os.pipe()
        try:
            request, pid = self._start(words, environ, [stdin, stdout, log.fileno()])
        except BaseException:
            os.close(to_program)
            os.close(from_program)
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        return _EngineProcess(request, pid, to_program, from_program)

    def start_lasting(
        self,
        name: str,
        words: Sequence[str],
        environ: Mapping[str, str],
        first_line: str,
        log: IO[Any],
    ) -> Lasting:
        with held_line(first_line) as stdin:
            streams = [stdin.fileno(), log.fileno(), log.fileno()]
            request, pid = self._start(words, environ, streams, lasting=True, name=name)
        request.connection.close()
        return _EngineHead(pid, processes.start_time(pid))

    def signal(self, name: str, pid: int, start_time: int, signum: int) -> None:
        with _told():
            self._runner.call(
                "signal_engine", name=name, pid=pid, start_time=start_time, signal=signum
            )

    def _start(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        streams: Sequence[int],
        **more: Any,
    ) -> tuple[RunningRequest, int]:
        self._hello()
        passed = {
            name: text
            for name, text in environ.items()
            if _PASSED.match(name) and name not in _OWN_FOLDERS
        }
        with _told():
            request = self._runner.start(
                "engine", streams, command=list(words), environment=passed, **more
            )
            try:
                return request, int(request.answer()["pid"])
            except BaseException:
                request.connection.close()
                raise


class _EngineProcess:
    """Held by the connection over which it was asked for."""

    def __init__(
        self, request: RunningRequest, pid: int, to_program: int, from_program: int
    ) -> None:
        self._request = request
        self._code: int | None = None
        self._lock = threading.Lock()
        self.pid = pid
        self.stdin: IO[str] = os.fdopen(to_program, "w", encoding="utf-8")
        self.stdout: IO[bytes] = os.fdopen(from_program, "rb")

    def poll(self) -> int | None:
        try:
            self.wait(0.0)
        except TimeoutError:
            return None
        return self._code

    def wait(self, limit_s: float | None = None) -> None:
        with self._lock:
            if self._code is not None:
                return
            if not _has_news(self._request, limit_s):
                raise TimeoutError
            try:
                self._code = _exit_code(self._request)
            except EngineUnreachable:
                self._code = -signal.SIGKILL  # whoever watched it was killed
            self._request.connection.close()

    def kill(self) -> None:
        with self._lock:
            if self._code is None:
                # Who watches it ends it then, with all that it has started.
                self._request.connection.close()
                self._code = -signal.SIGKILL


@dataclass
class _EngineHead:
    """The runner's child, which reaps it."""

    pid: int
    start_time: int

    def poll(self) -> int | None:
        return None if processes.is_running(self.pid, self.start_time) else 0


def _has_news(request: RunningRequest, limit_s: float | None) -> bool:
    return bool(select.select([request.connection], [], [], limit_s)[0])


def _exit_code(request: RunningRequest) -> int:
    with _told():
        return int(request.answer()["exit_code"])


@contextmanager
def _told() -> Iterator[None]:
    """What the runner refuses, as engines say it."""
    try:
        yield
    except (RunnerRefused, RunnerUnreachable) as error:
        raise EngineUnreachable(error.message, error.hint) from error


def of_server(home: Path, runner: RunnerClient | None) -> RayPrograms:
    """As whom a server runs them."""
    return OwnPrograms(home) if runner is None else EnginePrograms(runner)
