"""The server of this machine, or those that share its home: find, start, stop.

Owns: `server.json`, `servers/`, `server.lock` and readiness, seen from the command's side.
Leaves: serving to server.py, which writes `server.json`, `port` and `token` itself.
Always: however many ask at once, one server is started; a process is signalled only when it is
the one that `server.json` names, start time included; standard library only.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from torchyard.base.errors import InvalidInput, NotAuthenticated, TorchyardError, Unreachable
from torchyard.base.home import home_service
from torchyard.base.http import Transport
from torchyard.base.machine import NETWORK_FILE_SYSTEMS, file_system, is_alive, is_seen
from torchyard.base.settings import Settings

START_LIMIT_S = 120.0
STOP_LIMIT_S = 10.0
# How long the server of a unit, or one for other machines, may take to come back.
RESTART_LIMIT_S = 15.0
SERVER_COMMAND = (sys.executable, "-m", "torchyard.server")

_POLL_S = 0.02
_TAIL_LINES = 20
_RUNNING_JOBS = re.compile(
    r'^torchyard_jobs\{status="(?:Starting|Running|Finalizing|NotResponding)"\} (\S+)$',
    re.MULTILINE,
)
_REFUSED = re.compile(r"^error: (.+)(?:\nhint: (.+))?\Z", re.MULTILINE)

# Servers that this process started: they outlive it, unless it stops them itself and reaps them.
_children: set[int] = set()


@dataclass(frozen=True)
class Running:
    """What its file says of a server that is alive; `machine` is empty for one that is alone."""

    url: str
    pid: int
    start_time: int
    version: str
    machine: str = ""


def ensure(
    settings: Settings,
    on_start: Callable[[], None] | None = None,
    command: Sequence[str] = SERVER_COMMAND,
    port: int | None = None,
    options: Sequence[str] = (),
) -> Running:
    """The running server, started when there is none.

    Warns when it got another port for Azure's clients than the one that `yard client-env` printed.

    Args:
        on_start: called before a server is started.
        command: what to start; `--home H --ready-fd N` and maybe `--port P` are added.
        options: further ones of `yard-server`.

    Raises:
        InvalidInput: it refuses to start, as with a port that is taken, or this is not Linux.
        Unreachable: it does not become ready, with the last lines of its log; or it is not this
            command's to start.
    """
    running = answering(settings)
    if running is not None:
        return running
    _refuse_elsewhere()
    service = home_service.read(settings.home)
    if service is not None:
        return _await_service(settings, service)
    with _locked(settings):
        running = find(settings)
        if running is None:
            if on_start is not None:
                on_start()
            return _start(settings, [*command, *options], port)
        # Alive without an answer: a loaded machine, or a server that is just starting or ending.
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            answers = answering(settings)
            if answers is not None:
                return answers
            if find(settings) is None:
                return _start(settings, [*command, *options], port)
            time.sleep(0.1)
    raise Unreachable(
        f"the server (pid {running.pid}) at `{running.url}` is alive and does not answer",
        "see `yard server logs`, then `yard server stop` and try again",
    )


def _await_service(settings: Settings, service: home_service.HomeService) -> Running:
    """The server that somebody else starts, which may just be starting again."""
    lost = killed(settings)
    if lost is not None:
        raise Unreachable(
            f"the server (pid {lost.pid}) at `{lost.url}` was killed or crashed; `{settings.home}` "
            f"is served by {service}",
            f"{service.start_hint}; `{settings.server_log}` may say why it ended",
        )
    deadline = time.monotonic() + RESTART_LIMIT_S
    while time.monotonic() < deadline:
        time.sleep(_POLL_S * 5)
        running = answering(settings)
        if running is not None:
            return running
    raise Unreachable(
        f"`{settings.home}` is served by {service}, and no server answers",
        f"{service.start_hint}; to have commands start a server for this home again, delete "
        f"`{settings.home / 'service.json'}`",
    )


def find(settings: Settings) -> Running | None:
    """The server that `server.json` names, if that process is alive; else another of its home."""
    return next(living(settings), None)


def killed(settings: Settings) -> Running | None:
    """The server that `server.json` still names though it has ended: one that ends in order takes
    its name back. None where another one lives.
    """
    server = _read_running(settings.server_file)
    if server is None or not is_seen(server.machine) or find(settings) is not None:
        return None
    return server


def running_jobs(settings: Settings, server: Running) -> int:
    """How many jobs of all workspaces run on nodes, as the server's metrics say; 0 if unknown."""
    try:
        transport = Transport(server.url, token(settings), timeout_s=5.0)
        with closing(transport), transport.stream("/metrics") as answer:
            text = answer.read().decode("utf-8", "replace")
    except (TorchyardError, OSError):
        return 0
    return sum(int(float(match[1])) for match in _RUNNING_JOBS.finditer(text))


def answering_endpoints(settings: Settings, server: Running) -> list[str]:
    """`WORKSPACE/NAME` of the online endpoints with traffic: their router outlives the server."""
    if not (settings.home / "router").is_dir():
        return []
    names = []
    try:
        with closing(Transport(server.url, token(settings), timeout_s=5.0)) as transport:
            for workspace in transport.get("/v1/workspaces")["value"]:
                path = f"/v1/workspaces/{quote(workspace['name'], safe='')}/online-endpoints"
                for endpoint in transport.get(path)["value"]:
                    if any((endpoint.get("traffic") or {}).values()):
                        names.append(f"{workspace['name']}/{endpoint['name']}")
    except (TorchyardError, OSError):
        return []
    return names


def living(settings: Settings) -> Iterator[Running]:
    """Every server of the home that is alive, the one that `server.json` names first."""
    seen: set[Running] = set()
    for file in (settings.server_file, *sorted(settings.servers_folder.glob("*.json"))):
        running = _read_running(file)
        if running is not None and running not in seen:
            seen.add(running)
            if _lives(running):
                yield running


def answering(settings: Settings, but: str = "") -> Running | None:
    """A living server that answers.

    Args:
        but: the URL of one that is not meant.
    """
    return next(
        (server for server in living(settings) if server.url != but and _answers(server)), None
    )


def stop(settings: Settings, limit_s: float = STOP_LIMIT_S) -> Running | None:
    """As `stop_all`; returns one of those that were ended, None when none ran."""
    return next(iter(stop_all(settings, limit_s)), None)


def stop_all(settings: Settings, limit_s: float = STOP_LIMIT_S) -> list[Running]:
    """End the home's servers on this machine: SIGTERM, and SIGKILL after `limit_s`.

    Jobs go on without them. Returns those that were ended.
    """
    with _locked(settings):
        here = [server for server in living(settings) if is_seen(server.machine)]
        for running in here:
            _end(running, limit_s)
        if find(settings) is None:
            settings.server_file.unlink(missing_ok=True)
        return here


def _end(running: Running, limit_s: float) -> None:
    for kind, wait_s in ((signal.SIGTERM, limit_s), (signal.SIGKILL, limit_s)):
        _signal(running, kind)
        if _ended(running, wait_s):
            return
    raise Unreachable(
        f"the server (pid {running.pid}) does not end",
        "see what holds it with `ps`, it may wait for a disk",
    )


def _read_running(file: Path) -> Running | None:
    try:
        body = json.loads(file.read_bytes())
        return Running(
            str(body["url"]),
            int(body["pid"]),
            int(body["start_time"]),
            str(body["version"]),
            str(body.get("machine", "")),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _lives(running: Running) -> bool:
    if is_seen(running.machine):
        return is_alive(running.pid, running.start_time, running.machine)
    return _answers(running)  # of another machine there is nothing else to see


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
    """The last lines of the server's log, of what was written behind the offset `start`.

    Where the log was rotated a moment ago, the file before it is read, too.
    """
    text = _last_of(settings.server_log, start)
    if not start and text.count("\n") < lines:
        text = _last_of(settings.server_log.with_name(f"{settings.server_log.name}.1"), 0) + text
    return "\n".join(text.splitlines()[-lines:])


def _last_of(file: Path, start: int) -> str:
    try:
        with open(file, "rb") as log:
            size_bytes = log.seek(0, os.SEEK_END)
            # It may have been rotated since `start` was its end.
            log.seek(max(start if start <= size_bytes else 0, size_bytes - (1 << 16)))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _answers(running: Running) -> bool:
    transport = Transport(running.url, "", timeout_s=5.0)
    try:
        health = transport.get("/health")
    except TorchyardError:
        return False
    finally:
        transport.close()
    return isinstance(health, dict) and health.get("pid") == running.pid


def _refuse_elsewhere() -> None:
    """
    Raises:
        InvalidInput: this system is not Linux.
    """
    if not sys.platform.startswith("linux"):
        raise InvalidInput(
            "torchyard's server runs on Linux alone, and there is none to log in to",
            "start one on a Linux machine by `yard server start --listen`, and log in here with "
            "`yard login URL`",
        )


def _start(settings: Settings, command: Sequence[str], port: int | None) -> Running:
    last_tls_port = settings.tls_port
    log_start = settings.server_log.stat().st_size if settings.server_log.exists() else 0
    ready, ready_child = os.pipe()
    arguments = [*command, "--home", str(settings.home), "--ready-fd", str(ready_child)]
    if port is not None:
        arguments += ["--port", str(port)]
    if settings.servers_folder.is_dir():
        arguments.append("--shared")  # as it was served last
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
            ready_line = _read_line(ready, START_LIMIT_S)
            running = find(settings) if ready_line else None
        except BaseException:
            child.kill()
            raise
        if running is not None:
            _children.add(child.pid)
            child.returncode = 0  # it is meant to run on; Popen would call that a leak
            _warn_of_moved_port(last_tls_port, settings.tls_port)
            _warn_of_network(settings.home)
            return running
        if child.poll() is None:
            child.kill()
        code = child.wait()
    finally:
        os.close(ready)
        if ready_child >= 0:
            os.close(ready_child)
    raise _not_started(settings, ready_line, code, log_start)


def _warn_of_network(home: Path) -> None:
    kind = file_system(home)
    if kind in NETWORK_FILE_SYSTEMS:
        warnings.warn(
            f"`{home}` is on a network file system ({kind}), where a database may be damaged when "
            "two machines open it: set TORCHYARD_HOME to a folder on a disk of this machine",
            stacklevel=2,
        )


def _warn_of_moved_port(last_port: int, port: int) -> None:
    """Say that the shells with `yard client-env` don't reach the server any longer.

    They send nothing to the program that has the port: its certificate isn't this home's.
    """
    if last_port and port != last_port:
        warnings.warn(
            f"another program uses port {last_port}, to which the variables of `yard client-env` "
            f"point; the server now uses port {port}: load them again with "
            '`eval "$(yard client-env)"`',
            stacklevel=2,
        )


def _not_started(settings: Settings, ready_line: str, code: int, log_start: int) -> TorchyardError:
    tail = log_tail(settings, start=log_start)
    # The server's own words, as when it is started by hand: what it was asked can't be done.
    refused = _REFUSED.search(tail) if code == InvalidInput.exit_code else None
    if refused is not None:
        return InvalidInput(
            f"the server could not be started: {refused[1]}",
            refused[2] or f"its whole log is `{settings.server_log}`",
        )
    how = (
        f"ended with {code}" if code != -signal.SIGKILL else f"was not ready in {START_LIMIT_S:g} s"
    )
    if ready_line:
        how = f"said it was ready and wrote no `{settings.server_file}`"
    return Unreachable(
        f"the server could not be started: it {how}" + (f"\n{tail}" if tail else ""),
        f"its whole log is `{settings.server_log}`",
    )


def _read_line(pipe: int, limit_s: float) -> str:
    """What the server writes when it is ready; empty when it ended or the time is over."""
    deadline = time.monotonic() + limit_s
    ready_line = b""
    while not ready_line.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([pipe], [], [], left_s)[0]:
            return ""
        chunk = os.read(pipe, 4096)
        if not chunk:
            return ""
        ready_line += chunk
    return ready_line.decode("utf-8", "replace").strip()


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
        from torchyard.shared import locks
    except ImportError:
        raise InvalidInput(
            "the server runs on Linux only", "set TORCHYARD_URL to a server on another machine"
        ) from None
    lock_file = settings.home / "server.lock"
    try:
        _make_home(settings.home)
        lock = locks.open_lock(lock_file)
    except OSError as error:
        raise InvalidInput(
            f"`{error.filename}` can't be written ({error.strerror})",
            "set TORCHYARD_HOME to a folder of your own",
        ) from error
    try:
        # The process that holds it has a limit of its own, so this wait ends.
        locks.lock(lock)
        yield
    finally:
        os.close(lock)


def _make_home(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
