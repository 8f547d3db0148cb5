"""This machine's Ray node: one process that joins the head, and what it starts.

Owns: starting it, ending it with everything below it, its token's file and its log.
Leaves: when to start it again to agent.py, Ray's environment to executors/ray/.
Always: it ends with the agent, killed or not; nothing is ended but by process id.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import files
from torchyard.executors.ray.ray_environment import RayEnvironment
from torchyard.executors.ray.ray_variables import PORTS, variables
from torchyard.shared import processes
from torchyard.shared.node_agents import VARIABLE as AGENT_VARIABLE

_OBJECT_STORE_BYTES = 100_000_000
_PR_SET_PDEATHSIG = 1
# `ray start` writes it once the head has the node.
_JOINED = b"Ray runtime started"
# What it says when the head did not have the node after 30 s, as on a busy machine.
_GAVE_UP = b"timed out during startup"
# Jobs' workers upload what they have when Ray ends; Ray itself then drains.
_GRACE_S = 40.0
_POLL_S = 0.2
_RECORD = "ray-process.json"
# Sockets below it must fit into 107 characters, with what Ray adds.
_LONGEST_PLACE = 40


@dataclass(frozen=True)
class Membership:
    """What the server says of the head: where it is, and the labels of this machine there."""

    address: str
    version: str
    python: str
    token: str
    labels: Mapping[str, str]


class RayNode:
    """
    Args:
        folder: keeps token, log and Ray's sessions; closed to others.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = dict(environ)
        self._child: subprocess.Popen[bytes] | None = None
        self._sessions = folder
        self._log_start = 0

    @property
    def log(self) -> Path:
        return self._folder / "ray.log"

    def start(self, environment: RayEnvironment, membership: Membership, address: str) -> None:
        """
        Args:
            address: this machine's, as the other nodes reach it.
        """
        self._end_former()
        self._sessions = _sessions(self._folder)
        token_file = self._folder / "ray-token"
        with files.write_atomically(token_file, mode=0o600) as file:
            file.write(membership.token.encode())
        labels = ",".join(f"{name}={text}" for name, text in sorted(membership.labels.items()))
        command = [
            environment.ray, "start", "--block",
            f"--address={membership.address}",
            f"--node-ip-address={address}",
            f"--labels={labels}",
            *PORTS,
            "--disable-usage-stats",
            f"--object-store-memory={_OBJECT_STORE_BYTES}",
            f"--temp-dir={self._sessions}",
        ]  # fmt: skip
        parent = os.getpid()
        agent = f"{parent} {processes.start_time(parent)}"
        with open(self.log, "ab") as log:
            self._log_start = log.tell()
            self._child = subprocess.Popen(
                command,
                env={**variables(self._environ, environment, token_file), AGENT_VARIABLE: agent},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: _end_with(parent),
            )
        pid = self._child.pid
        body = {"pid": pid, "start_time": processes.start_time(pid), "agent": agent}
        with files.write_atomically(self._folder / _RECORD, mode=0o600) as file:
            file.write(json.dumps(body).encode())

    def _end_former(self) -> None:
        """End the Ray of an agent that was killed: it may still be draining, and at its ports."""
        try:
            body = json.loads((self._folder / _RECORD).read_text())
            pid, started, agent = int(body["pid"]), int(body["start_time"]), str(body["agent"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        for signum in (signal.SIGTERM, signal.SIGKILL):
            processes.send(pid, started, signum)
            deadline = time.monotonic() + _GRACE_S
            while processes.is_running(pid, started) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        # The number may be another session's by now.
        mark = f"{AGENT_VARIABLE}={agent}".encode()
        _end_session(pid, lambda member: mark in _environ_of(member))

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def has_joined(self) -> bool:
        """Whether the head has it."""
        return self.is_running and _JOINED in self._said()

    @property
    def gave_up_waiting(self) -> bool:
        """Whether Ray ended because the node took longer than Ray waits; another try may do."""
        return not self.is_running and _GAVE_UP in self._said()

    def _said(self) -> bytes:
        return self.log.read_bytes()[self._log_start :]

    def last_words(self) -> str:
        """What Ray wrote last, for a person who looks why it does not join."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return " / ".join(line.strip() for line in lines[-3:] if line.strip())[-400:]

    def stop(self) -> None:
        """End Ray, and what is left of it: all in the session that it leads."""
        child, self._child = self._child, None
        if child is None:
            return
        for signum, limit_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(signum)
            deadline = time.monotonic() + limit_s
            while child.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        _end_session(child.pid)
        (self._folder / _RECORD).unlink(missing_ok=True)
        if not self._sessions.is_relative_to(self._folder):
            shutil.rmtree(self._sessions.parent, ignore_errors=True)


def processes_of_session(leader: int) -> list[processes.Process]:
    """The processes of the session that `leader` made, and that have not ended.

    Source: proc(5), `/proc/<pid>/stat`, field 6 (session).
    """
    members = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if os.getsid(int(entry)) == leader:
                process = processes.read(int(entry))
                if process is not None and not process.ended:
                    members.append(process)
    return members


def _end_session(leader: int, is_meant: Callable[[int], bool] = lambda pid: True) -> None:
    for process in processes_of_session(leader):
        if is_meant(process.pid):
            processes.send(process.pid, process.start_time, signal.SIGKILL)


def _environ_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _end_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _sessions(folder: Path) -> Path:
    """Below a folder that is closed to others: Ray opens its own to everybody."""
    sessions = folder / "s"
    if len(str(sessions)) > _LONGEST_PLACE:
        sessions = _short_place(folder) / "s"
    sessions.mkdir(mode=0o700, exist_ok=True)
    return sessions


def _short_place(folder: Path) -> Path:
    """Where Ray's sockets go when the path of `folder` is too long for them.

    By its name the next agent finds what one that was killed has left there, and removes it.
    """
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    sessions = Path(tempfile.gettempdir()) / f"ty-node-{os.getuid()}-{name}"
    with contextlib.suppress(OSError):
        # Somebody else's folder, or a link, is not removed, and then not used.
        if os.lstat(sessions).st_uid == os.getuid() and not sessions.is_symlink():
            shutil.rmtree(sessions, ignore_errors=True)
    try:
        sessions.mkdir(mode=0o700)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="ty-node-"))
    return sessions
