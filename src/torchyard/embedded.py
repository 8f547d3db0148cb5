"""The server of this machine: find it, start it, stop it.

Owns: `server.json`, `server.lock` and readiness, seen from the command's side.
Leaves: serving to server.py, which writes `server.json`, `port` and `token` itself.
Always: however many ask at once, one server is started; a process is signalled only when it is
the one that `server.json` names, start time included; standard library only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from torchyard.base.errors import InvalidInput, NotAuthenticated, TorchyardError, Unreachable
from torchyard.base.http import Transport
from torchyard.base.settings import Settings

START_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0
SERVER_COMMAND = (sys.executable, "-m", "torchyard.server")

_POLL_S = 0.02
_TAIL_LINES = 20

# Servers that this process started: they outlive it, unless it stops them itself and reaps them.
_children: set[int] = set()


@dataclass(frozen=True)
class Running:
    """What `server.json` says of a server that is alive."""

    url: str
    pid: int
    start_time: int
    version: str


def ensure(
    settings: Settings,
    on_start: Callable[[], None] | None = None,
    command: Sequence[str] = SERVER_COMMAND,
    port: int | None = None,
) -> Running:
    """The running server, started when there is none.

    Args:
        on_start: called before a server is started.
        command: what to start; `--home H --ready-fd N` and maybe `--port P` are added.

    Raises:
        Unreachable: it does not become ready, with the last lines of its log.
    """
    running = find(settings)
    if running is not None and _answers(running):
        return running
    with _locked(settings):
        running = find(settings)
        if running is None:
            if on_start is not None:
                on_start()
            return _start(settings, command, port)
        # Alive without an answer: a loaded machine, or a server that is just starting or ending.
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if _answers(running):
                return running
            if find(settings) != running:
                return _start(settings, command, port)
            time.sleep(0.1)
    raise Unreachable(
        f"the server (pid {running.pid}) at `{running.url}` is alive and does not answer",
        "see `yard server logs`, then `yard server stop` and try again",
    )


def find(settings: Settings) -> Running | None:
    """The server that `server.json` names, if that process is alive."""
    try:
        body = json.loads(settings.server_file.read_bytes())
        running = Running(
            str(body["url"]), int(body["pid"]), int(body["start_time"]), str(body["version"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return running if is_alive(running.pid, running.start_time) else None


def stop(settings: Settings, limit_s: float = STOP_LIMIT_S) -> Running | None:
    """End the server: SIGTERM, and SIGKILL after `limit_s`. Jobs go on without it.

    Returns the server that was ended; None when none ran.
    """
    with _locked(settings):
        running = find(settings)
        if running is None:
            return None
        for kind, wait_s in ((signal.SIGTERM, limit_s), (signal.SIGKILL, limit_s)):
            _signal(running, kind)
            if _ended(running, wait_s):
                break
        else:
            raise Unreachable(
                f"the server (pid {running.pid}) does not end",
                "see what holds it with `ps`, it may wait for a disk",
            )
        if find(settings) is None:
            settings.server_file.unlink(missing_ok=True)
        return running


def token(settings: Settings) -> str:
    """The token of the owner of this machine's server.

    Raises:
        NotAuthenticated: the token file can't be read.
    """
    try:
        return settings.token or settings.token_file.read_text().strip()
    except OSError as error:
        raise NotAuthenticated(
            f"the token file `{settings.token_file}` can't be read ({error.strerror})",
            "the server writes it when it starts first: run as the user who owns that folder, or "
            "set TORCHYARD_TOKEN",
        ) from error


def log_tail(settings: Settings, lines: int = _TAIL_LINES, start: int = 0) -> str:
    """The last lines of the server's log, of what was written behind the offset `start`."""
    try:
        with open(settings.server_log, "rb") as log:
            size_bytes = log.seek(0, os.SEEK_END)
            log.seek(max(start, size_bytes - (1 << 16)))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def is_alive(pid: int, start_time: int) -> bool:
    """Whether process `pid` is the one that started at `start_time`, and no zombie."""
    return process_start_time(pid) == start_time


def process_start_time(pid: int) -> int:
    """When `pid` started, in clock ticks since boot; 0 when it is not running.

    Source: proc(5), `/proc/<pid>/stat`, fields 3 (state) and 22 (starttime).
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The command's name may hold anything, brackets and blanks included.
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _answers(running: Running) -> bool:
    transport = Transport(running.url, "", timeout_s=5.0)
    try:
        health = transport.get("/health")
    except (TorchyardError, ValueError):
        return False
    finally:
        transport.close()
    return isinstance(health, dict) and health.get("pid") == running.pid


def _start(settings: Settings, command: Sequence[str], port: int | None) -> Running:
    log_start = settings.server_log.stat().st_size if settings.server_log.exists() else 0
    ready, ready_child = os.pipe()
    arguments = [*command, "--home", str(settings.home), "--ready-fd", str(ready_child)]
    if port is not None:
        arguments += ["--port", str(port)]
    try:
        with open(settings.server_log, "ab") as log:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(ready_child,),
                cwd=settings.home,
            )
        os.close(ready_child)
        ready_child = -1
        try:
            said = _read_line(ready, START_LIMIT_S)
            running = find(settings) if said else None
        except BaseException:
            child.kill()
            raise
        if running is not None:
            _children.add(child.pid)
            child.returncode = 0  # it is meant to run on; Popen would call that a leak
            return running
        if child.poll() is None:
            child.kill()
        code = child.wait()
    finally:
        os.close(ready)
        if ready_child >= 0:
            os.close(ready_child)
    raise _not_started(settings, said, code, log_start)


def _not_started(settings: Settings, said: str, code: int, log_start: int) -> Unreachable:
    tail = log_tail(settings, start=log_start)
    how = f"ended with {code}" if code != -signal.SIGKILL else f"was not ready in {START_LIMIT_S} s"
    if said:
        how = f"said it was ready and wrote no `{settings.server_file}`"
    return Unreachable(
        f"the server could not be started: it {how}" + (f"\n{tail}" if tail else ""),
        f"its whole log is `{settings.server_log}`",
    )


def _read_line(pipe: int, limit_s: float) -> str:
    """What the server writes when it is ready; empty when it ended or the time is over."""
    deadline = time.monotonic() + limit_s
    said = b""
    while not said.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
            return ""
        chunk = os.read(pipe, 4096)
        if not chunk:
            return ""
        said += chunk
    return said.decode("utf-8", "replace").strip()


def _signal(running: Running, kind: signal.Signals) -> None:
    """Signal that very process: a pidfd keeps its number from being given to another one."""
    try:
        handle = os.pidfd_open(running.pid)
    except ProcessLookupError:
        return
    except OSError:
        if is_alive(running.pid, running.start_time):
            os.kill(running.pid, kind)
        return
    try:
        if is_alive(running.pid, running.start_time):
            signal.pidfd_send_signal(handle, kind)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise InvalidInput(
            f"the server (pid {running.pid}) belongs to another user", "stop it as that user"
        ) from error
    finally:
        os.close(handle)


def _ended(running: Running, limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while is_alive(running.pid, running.start_time):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    if running.pid in _children:
        _children.discard(running.pid)
        with suppress(ChildProcessError):
            os.waitpid(running.pid, 0)
    return True


@contextmanager
def _locked(settings: Settings) -> Iterator[None]:
    """Hold `server.lock`: one command at a time starts or stops the server."""
    try:
        import fcntl
    except ImportError:
        raise InvalidInput(
            "the server runs on Linux only", "set TORCHYARD_URL to a server on another machine"
        ) from None
    lock_file = settings.home / "server.lock"
    try:
        _make_home(settings.home)
        lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidInput(
            f"`{error.filename}` can't be written ({error.strerror})",
            "set TORCHYARD_HOME to a folder of your own",
        ) from error
    try:
        # Whoever holds it has a limit of its own, so this wait ends.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _make_home(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
