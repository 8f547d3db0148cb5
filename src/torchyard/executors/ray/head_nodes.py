"""Ray heads that torchyard starts and looks after, one for each cluster that asks for it.

Owns: starting a head, finding it again after a restart of the server, its port and its token.
Leaves: Ray's environment to ray_environment.py, attempts to executor.py, joining to
node_agent/.
Always: a head outlives the server; its port and token stay the same, so that machines find it
again after it was restarted; the token is in a file that only the server's user reads, and with a
runner in one of the engine user's; nothing is ended but by process id.

Source: `ray start --help` of Ray 2.60; RAY_AUTH_MODE and
RAY_AUTH_TOKEN_PATH: https://docs.ray.io/en/latest/ray-security/token-auth.html
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import BuildFailed, TorchyardError
from torchyard.base.home.uv import find_uv
from torchyard.executors.executor import EngineUnreachable
from torchyard.executors.ray import engine_programs, private_start
from torchyard.executors.ray.programs import Lasting, OwnPrograms, RayPrograms
from torchyard.executors.ray.ray_environment import (
    RayEnvironment,
    RayEnvironments,
    RayVersion,
)
from torchyard.executors.ray.ray_variables import PORTS, variables
from torchyard.executors.runner_client import RunnerClient
from torchyard.executors.server_for_nodes import own_addresses
from torchyard.shared import locks, processes

_START_S = 90.0
_POLL_S = 0.2
_END_S = 10.0
_KEEP_EVERY_S = 10.0
_OBJECT_STORE_BYTES = 100_000_000
_PRIVATE_START = Path(private_start.__file__)
_RECORD, _BEGUN, _ADDRESS = "head.json", "head-begun.json", "address"


@dataclass(frozen=True)
class RayHead:
    """How to reach a head, and what joins it must have. `token` is read from `token_file`."""

    address: str
    version: str
    python: str
    token_file: Path

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()


class _Start:
    """A start in a thread of its own; `error` is why it failed."""

    def __init__(self, start: Callable[[], object]) -> None:
        self.error: EngineUnreachable | None = None
        self._start = start
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._start()
        except EngineUnreachable as error:
            self.error = error
        except BuildFailed as error:
            self.error = EngineUnreachable(error.message, error.hint)
        except OSError as error:
            self.error = EngineUnreachable(f"the Ray head can't be started: {error}")


class Heads:
    """
    Args:
        folder: keeps a folder for each head, closed to others.
        environment: makes Ray's own environment where it is not there, and returns it.
        own_address: the address by which other machines reach this one.
    """

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        environment: Callable[[], RayEnvironment],
        own_address: Callable[[], str],
        programs: RayPrograms | None = None,
    ) -> None:
        self._programs = programs or OwnPrograms(folder)
        self._folder = folder
        self._environ = dict(environ)
        self._environment = environment
        self._own_address = own_address
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._starts: dict[str, _Start] = {}
        self._children: dict[str, Lasting] = {}
        self._closing = threading.Event()

    def start_keeping(self, find_needed: Callable[[], Collection[str]]) -> None:
        """Call `keep` now and again, until `close`: a cluster may go long after its deletion was
        asked for, with its last job, and in other ways.
        """

        def run() -> None:
            is_first = True
            while is_first or not self._closing.wait(_KEEP_EVERY_S):
                is_first = False
                try:
                    self.keep(find_needed)
                except TorchyardError:
                    pass  # the database is unreachable, which the scheduler says

        threading.Thread(target=run, name="ray-heads", daemon=True).start()

    def close(self) -> None:
        """End no head: they outlive the server."""
        self._closing.set()

    def ensure(self, key: str, address: str = "") -> RayHead:
        """The head, started unless it runs.

        Args:
            key: the cluster's; see compute/types.py.
            address: of this machine, by which nodes reach it, kept for later starts; a head at
                another one is ended. Empty to leave it where it is.

        Raises:
            EngineUnreachable: it does not start; the end of its log says why.
        """
        folder = self._folder / key
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Other servers may share the home.
        with self._starting, self._held(key):
            head = self._running(folder)
            if head is None and self._record_begun(folder):
                head = self._running(folder)
            if address:
                (folder / _ADDRESS).write_text(address)
                if head is not None and head.host != address:
                    self._stop(key, folder)
                    head = None
            if head is None:
                return self._start(key, folder)
            self._await(key, folder, head)
            return head

    def running(self, key: str) -> RayHead:
        """The head, without waiting for one that has to be started.

        Raises:
            EngineUnreachable: it is being started, or could not be.
        """
        head = self.find(key)
        if head is not None:
            return head
        with self._lock:
            start = self._starts.get(key)
            if start is None:
                start = self._starts[key] = _Start(lambda: self.ensure(key))
            if start.is_over:
                del self._starts[key]
        raise start.error or EngineUnreachable(
            "the Ray head of this cluster is being started",
            "this takes some seconds, and a minute where Ray is to be installed first",
        )

    def find(self, key: str) -> RayHead | None:
        """The head if it runs, and answers."""
        folder = self._folder / key
        head = self._running(folder)
        body = _read(folder) or {}
        return head if body.get("answers") else None

    def keep(self, find_needed: Callable[[], Collection[str]]) -> None:
        """End, in a thread of its own, the heads of all clusters but the wanted ones, and remove
        what they left.

        Args:
            find_needed: the keys; asked again before a head is ended, for its cluster may be made
                again.
        """
        if not self._folder.exists():
            return
        keys = find_needed()
        for folder in self._folder.iterdir():
            if folder.name in keys or not folder.is_dir():
                continue
            threading.Thread(target=self._end, args=(folder.name, find_needed), daemon=True).start()

    def stop(self, key: str) -> None:
        """End the head and all of its processes; machines that joined wait for it to come back."""
        folder = self._folder / key
        if folder.exists():
            with self._starting, self._held(key):
                self._stop(key, folder)

    def _held(self, key: str) -> AbstractContextManager[object]:
        """Its lock, which stays where its folder goes."""
        return locks.hold(self._folder / f".{key}.lock")

    def _end(self, key: str, find_needed: Callable[[], Collection[str]]) -> None:
        folder = self._folder / key
        # Never while it is being started: the records would be those of the next one.
        with self._starting, self._held(key):
            if folder.exists() and key not in find_needed():
                self._record_begun(folder)
                self._stop(key, folder)
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        """The token, the logs, and Ray's sessions of a head that has ended."""
        if self._programs.is_apart:
            self._programs.remove(self._place(folder))
        else:
            private_start.remove_sessions(folder)
        shutil.rmtree(folder, ignore_errors=True)

    def _place(self, folder: Path) -> Path:
        """What the head's program has to itself."""
        if not self._programs.is_apart:
            return folder
        return self._programs.folder / _name(folder).removeprefix("head-")

    def _stop(self, key: str, folder: Path) -> None:
        body = _read(folder)
        if body is None:
            return
        pid, start_time = int(body["pid"]), int(body["start_time"])
        if processes.is_running(pid, start_time):
            # It leads its own process group; a group is ended only while its leader is there.
            for signum, limit_s in ((signal.SIGTERM, _END_S), (signal.SIGKILL, _END_S)):
                self._programs.signal(_name(folder), pid, start_time, signum)
                if self._has_ended(key, pid, start_time, limit_s):
                    break
        for name in (_RECORD, _BEGUN):
            (folder / name).unlink(missing_ok=True)

    def _has_ended(self, key: str, pid: int, start_time: int, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            child = self._children.get(key)
            if child is not None and child.pid == pid:
                # It seems to have ended as soon as its first thread has, and can't be reaped yet.
                is_over = child.poll() is not None
            else:
                is_over = not processes.is_running(pid, start_time)
            if is_over:
                return True
            time.sleep(_POLL_S)
        return False

    def _running(self, folder: Path) -> RayHead | None:
        child = self._children.get(folder.name)
        if child is not None:
            child.poll()  # an ended child is not running
        body = _read(folder)
        if body is None or not processes.is_running(int(body["pid"]), int(body["start_time"])):
            return None
        return RayHead(body["address"], body["version"], body["python"], folder / "token")

    def _start(self, key: str, folder: Path) -> RayHead:
        environment = self._environment()
        token_file = _ensure_token(folder)
        host = _kept_address(folder) or self._own_address()
        port = _port(folder, host)
        version = environment.version
        head = RayHead(f"{host}:{port}", version.ray, version.python, token_file)
        body = {"address": head.address, "version": head.version, "python": head.python}
        # A server that dies before it knows the process leaves this to the next one.
        _write(folder, body, _BEGUN)
        words = [
            environment.ray, "start", "--head", "--block",
            f"--node-ip-address={host}", f"--port={port}",
            *PORTS, "--num-cpus=0", "--num-gpus=0", "--include-dashboard=false",
            "--disable-usage-stats", f"--object-store-memory={_OBJECT_STORE_BYTES}",
            _name_option(folder), f"--temp-dir={private_start.SESSIONS}",
        ]  # fmt: skip
        place = self._place(folder)
        request = {"folder": str(place), "token": head.token, "words": words}
        with open(folder / "head.log", "wb") as output:
            child = self._programs.start_lasting(
                _name(folder),
                [self._programs.python, "-I", "-S", str(_PRIVATE_START)],
                variables(self._environ, environment, None),
                json.dumps(request),
                output,
            )
        self._children[key] = child
        start_time = processes.start_time(child.pid)
        _write(folder, {**body, "pid": child.pid, "start_time": start_time})
        self._await(key, folder, head)
        return head

    def _await(self, key: str, folder: Path, head: RayHead) -> None:
        """Wait until the head answers, also one that a server before this one started."""
        host, _, port = head.address.rpartition(":")
        deadline = time.monotonic() + _START_S
        while self._running(folder) is not None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection((host, int(port)), 1.0).close()
                _write(folder, {**(_read(folder) or {}), "answers": True})
                return
            time.sleep(_POLL_S)
        self._stop(key, folder)
        log = folder / "head.log"
        lines = log.read_text(errors="replace").splitlines()[-3:]
        raise EngineUnreachable(
            f"the Ray head of this cluster does not start: {' / '.join(lines)[-500:]}",
            f"see `{log}`",
        )

    def _record_begun(self, folder: Path) -> bool:
        """Record a head whose server died in the moment of its start; whether there is one."""
        body = _read(folder, _BEGUN)
        if body is None:
            return False
        words = {b"start", b"--head", _name_option(folder).encode()}
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not process.name.isdigit() or process.stat().st_uid != self._programs.uid:
                    continue
                # Its children are Ray's own programs, and have other words.
                if words <= set((process / "cmdline").read_bytes().split(b"\0")):
                    pid = int(process.name)
                    _write(folder, {**body, "pid": pid, "start_time": processes.start_time(pid)})
                    return True
        return False


def of_server(home: Path, environ: Mapping[str, str], runner: RunnerClient | None = None) -> Heads:
    """The heads of the servers of a home."""
    programs = engine_programs.of_server(home, runner)

    def environment() -> RayEnvironment:
        return RayEnvironments(home, find_uv(), environ, programs).get(RayVersion())

    return Heads(home / "engines" / "heads", environ, environment, _own_address, programs)


def _own_address() -> str:
    return next(iter(own_addresses()), "127.0.0.1")


def _write(folder: Path, body: Mapping[str, Any], name: str = _RECORD) -> None:
    draft = folder / f"{name}.{threading.get_ident()}.new"
    draft.write_text(json.dumps(body))
    os.replace(draft, folder / name)


def _read(folder: Path, name: str = _RECORD) -> dict[str, Any] | None:
    try:
        body = json.loads((folder / name).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def _name(folder: Path) -> str:
    """What the head of a folder is called among all programs of its user."""
    return f"head-{hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:8]}"


def _name_option(folder: Path) -> str:
    """Of `ray start`; no other head has it."""
    return f"--node-name={_name(folder)}"


def _ensure_token(folder: Path) -> Path:
    file = folder / "token"
    if not file.exists():
        draft = folder / "token.new"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            opened.write(secrets.token_hex(32))
        os.replace(draft, file)
    return file


def _kept_address(folder: Path) -> str:
    """Where nodes reach the head; empty where nobody said, or this machine has it no more."""
    try:
        address = (folder / _ADDRESS).read_text().strip()
        with socket.socket() as probe:
            probe.bind((address, 0))
    except OSError:
        return ""
    return address


def _port(folder: Path, host: str) -> int:
    """The port of the head before, while it is free; else another."""
    file = folder / "port"
    remembered = int(file.read_text()) if file.exists() else 0
    for port in (remembered, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind((host, port))
                file.write_text(str(probe.getsockname()[1]))
                return int(file.read_text())
    raise EngineUnreachable(f"no port can be bound at `{host}`", "check the machine's address")
