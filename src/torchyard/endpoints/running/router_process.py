"""The router's process, as the server sees it.

Owns: starting it, replacing one of another version, its table's file, asking it.
Leaves: what it does to router/.
Always: a router that runs goes on when the server stops or is killed; the table is replaced whole,
and only when it has changed.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torchyard
from torchyard.base import files
from torchyard.endpoints.records import address
from torchyard.endpoints.router import control
from torchyard.endpoints.router import table as tables
from torchyard.endpoints.router.control import RouterAway
from torchyard.endpoints.router.program import TABLE
from torchyard.endpoints.router.table import Table

_START_LIMIT_S = 20.0
_GRACE_S = 30.0
_POLL_S = 0.05
_RETRY_S = 5.0


@dataclass(frozen=True)
class ScoringAt:
    """Where the router listens.

    Attributes:
        port: 0 takes the last one, or `default_port`, or any that is free.
        certificate, key: PEM files; without them it has no TLS.
        public_url: as callers on other machines reach it; what it listens at when empty.
        server: the address where it asks who may call an endpoint; `server_ca` checks that.
    """

    host: str = "127.0.0.1"
    port: int = 0
    default_port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    public_url: str = ""
    server: str = ""
    server_ca: str = ""


class RouterProcess:
    """Used by one thread at a time but for `stop_waiting`; every function may take seconds."""

    def __init__(self, home: Path, at: ScoringAt) -> None:
        self._home = home
        self._folder = home / "router"
        self._at = at
        self._table = Table()
        self._process: subprocess.Popen[bytes] | None = None
        self._replaced: list[subprocess.Popen[bytes]] = []
        self._tried_at_s = -_RETRY_S
        self._is_started = False
        self._is_leaving = threading.Event()

    @property
    def is_known(self) -> bool:
        """Whether this server, or one before it, started a router that may still run."""
        return self._is_started or (self._folder / control.SOCKET).exists()

    @property
    def has_table(self) -> bool:
        return (self._folder / TABLE).exists()

    def write(self, table: Table) -> None:
        """Give the router another table, if it is another, and have it read it at once."""
        table = replace(table, server=self._at.server, server_ca=self._at.server_ca)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if not self._table.version:
            self._table = self._last()
        if replace(table, version=0) == replace(self._table, version=0, broken={}):
            return
        self._table = replace(table, version=self._table.version + 1)
        with files.write_atomically(self._folder / TABLE, mode=0o600) as file:
            file.write(tables.to_text(self._table))
        self.refresh()

    def ensure(self) -> str:
        """Have a router of this version run, where this server wants it; returns what is wrong,
        empty for nothing.
        """
        self._reap()
        try:
            hello = control.ask(self._folder, {"ask": "hello"})
        except RouterAway:
            return self._start()
        if not self._is_wanted(hello):
            return self._start(replaces=True)
        self._remember(hello)
        return ""

    def refresh(self) -> bool:
        """Have the router work by the table that was written last; whether it does."""
        try:
            return control.ask(self._folder, {"ask": "refresh"}).get("table_version") == (
                self._table.version
            )
        except RouterAway:
            return False

    def statistics(self) -> dict[str, Any]:
        """
        Raises:
            RouterAway: it doesn't answer.
        """
        return control.ask(self._folder, {"ask": "statistics"})

    def demand(self, timeout_s: float) -> bool:
        """Wait until a request waits for a first instance; whether one does."""
        try:
            answer = control.ask(
                self._folder, {"ask": "demand", "timeout_s": timeout_s}, timeout_s + 5
            )
        except RouterAway:
            return False
        return bool(answer.get("waiting"))

    def stop(self) -> None:
        """End it: the home has no endpoint any more."""
        try:
            control.ask(self._folder, {"ask": "stop", "grace_s": _GRACE_S})
        except RouterAway:
            if self._process is not None:
                self._process.terminate()  # it starts yet
        self._is_started = False
        self._reap()

    def stop_waiting(self) -> None:
        """End the wait for a router that starts, from any thread: this server ends."""
        self._is_leaving.set()

    def leave(self) -> None:
        """Let it go on without this server, which ends."""
        for process in (self._process, *self._replaced):
            if process is not None and process.poll() is None:
                process.returncode = 0  # or Python warns of a process that nobody waits for

    def _last(self) -> Table:
        try:
            return tables.parse((self._folder / TABLE).read_bytes())
        except (OSError, tables.BrokenTable):
            return Table()

    def _is_wanted(self, hello: dict[str, Any]) -> bool:
        at = self._at
        return (
            hello.get("version") == torchyard.__version__
            and hello.get("host") == at.host
            and hello.get("is_tls") is (at.certificate is not None)
            and (not at.port or hello.get("port") == at.port)
        )

    def _start(self, replaces: bool = False) -> str:
        """
        Args:
            replaces: another one runs; it gives its listening socket, and ends after its requests.
        """
        if self._process is not None and self._process.poll() is None and not replaces:
            return self._await()
        if time.monotonic() - self._tried_at_s < _RETRY_S:
            return "the router does not run"
        self._tried_at_s = time.monotonic()
        if self._process is not None:
            self._replaced.append(self._process)
            self._process = None
        self._is_started = True
        words = [sys.executable, "-m", "torchyard.endpoints.router", "--home", str(self._home)]
        words += ["--host", self._at.host, "--port", str(self._at.port)]
        words += ["--default-port", str(self._at.default_port)]
        if self._at.certificate is not None:
            words += ["--certificate", str(self._at.certificate)]
        if self._at.key is not None:
            words += ["--key", str(self._at.key)]
        if replaces:
            words.append("--replace")
        with open(self._folder / "router.err", "wb") as errors:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd="/",
                start_new_session=True,
            )
        return self._await()

    def _await(self) -> str:
        process = self._process
        assert process is not None
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            try:
                hello = control.ask(self._folder, {"ask": "hello"})
                if hello.get("pid") == process.pid:
                    self._remember(hello)
                    # One that has worked is started again at once when it ends.
                    self._tried_at_s = -_RETRY_S
                    return ""
            except RouterAway:
                pass
            if process.poll() is not None:
                text = (self._folder / "router.err").read_text(errors="replace")
                return f"the router ended with code {process.returncode}: {text[:1000]}"
            if self._is_leaving.wait(_POLL_S):
                return "the server stops"
        return "the router does not answer"

    def _remember(self, hello: dict[str, Any]) -> None:
        scheme = "https" if hello.get("is_tls") else "http"
        host = str(hello.get("host") or self._at.host)
        url = self._at.public_url or f"{scheme}://{_reachable(host)}:{hello.get('port')}"
        if address.read(self._home) != url.rstrip("/"):
            address.write(self._home, url)

    def _reap(self) -> None:
        self._replaced = [process for process in self._replaced if process.poll() is None]
        if self._process is not None and self._process.poll() is not None:
            self._process = None


def _reachable(host: str) -> str:
    """A name for it: 0.0.0.0 is all addresses of this machine."""
    if host in ("0.0.0.0", "::"):
        return socket.getfqdn()
    return f"[{host}]" if ":" in host else host
