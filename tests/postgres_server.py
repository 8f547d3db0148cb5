"""A PostgreSQL server that tests start: in a temporary folder, on a Unix socket, as nobody."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually

USER = "torchyard"
# From a folder, where SQLite keeps it, to the URL of a new database.
NewDatabase = Callable[[Path], str]
_MUST = os.environ.get("TORCHYARD_TEST_SERVICES") == "required"


def need() -> Path:
    """The folder of PostgreSQL's programs; the test is skipped where there are none."""
    folders = [
        path for path in os.environ["PATH"].split(os.pathsep) if Path(path, "initdb").exists()
    ]
    folders += [str(path.parent) for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    missing = "" if folders else "PostgreSQL is not installed"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        missing = "psycopg is not installed"
    if missing and _MUST:
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    return Path(folders[0])


class PostgresServer:
    """One cluster of its own.

    Args:
        durable: writes to disk before it says so, as a real one does; slower.
    """

    def __init__(self, durable: bool = False) -> None:
        programs = need()
        # A socket's path has 107 characters at the most, so not below pytest's own folder.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self._owner = _unprivileged()
        if self._owner is not None:
            os.chown(self.folder, self._owner.pw_uid, self._owner.pw_gid)
        self.data = self.folder / "data"
        self._postgres = programs / "postgres"
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        setup = [str(programs / "initdb"), "--no-sync", "--auth=trust", f"--username={USER}"]
        setup += ["--encoding=UTF8", "--locale=C.UTF-8", f"--pgdata={self.data}"]
        subprocess.run(setup, check=True, stdout=subprocess.DEVNULL, **self._as_owner())
        self.start()

    def start(self) -> None:
        safe = "on" if self._durable else "off"
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "fsync": safe,
            "synchronous_commit": safe,
            "full_page_writes": safe,
            "max_connections": "300",
            "shared_buffers": "32MB",
            "log_min_messages": "warning",
        }
        command = [str(self._postgres), "-D", str(self.data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **self._as_owner()
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """End all of its processes at once, with nothing put in order."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        # They end by themselves, too, as soon as they see it.
        for child in _descendants(self.data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._wait_for_backends()

    def kill_postmaster(self) -> None:
        """End the process that watches over the others; they end by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._wait_for_backends()

    def kill_a_backend(self, chance: random.Random) -> None:
        """End one that serves a connection; the postmaster ends the others and recovers."""
        assert self._process is not None
        serving = [pid for pid in _descendants(self.data) if _serves(pid)]
        if serving:
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(sorted(serving)), signal.SIGKILL)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        """End it; its folder goes with the folder for temporary files."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # no checkpoint: the folder goes anyway
            self._process.wait(60)

    def url(self, database: str, user: str = USER, password: str = "") -> str:
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@/{database}?host={self.folder}"

    def run(self, *statements: str, database: str = "postgres") -> None:
        """Each statement in a transaction of its own."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def new_database(self, template: str = "template1") -> str:
        """The URL of a database nobody has used."""
        self._made += 1
        name = f"d{self._made}"
        # From PostgreSQL 15 on every page is else written to its log, at twice the cost.
        version = int((self.data / "PG_VERSION").read_text())
        strategy = " STRATEGY FILE_COPY" if version >= 15 else ""
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}{strategy}")
        return self.url(name)

    def _wait_for_backends(self) -> None:
        """Until they are gone a new server finds their shared memory in use, and ends."""
        eventually(lambda: not _descendants(self.data), "the backends to end with their postmaster")

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url("postgres"), connect_timeout=60).close()
        except psycopg.OperationalError:
            return False
        return True

    def _as_owner(self) -> dict[str, Any]:
        if self._owner is None:
            return {"cwd": self.folder}
        return {
            "cwd": self.folder,
            "user": self._owner.pw_uid,
            "group": self._owner.pw_gid,
            "extra_groups": [],
        }


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom the server runs as when the tests run as root, which it refuses."""
    if os.geteuid() != 0:
        return None
    users = {user.pw_name: user for user in pwd.getpwall()}
    return users.get("postgres") or users["nobody"]


def _serves(pid: int) -> bool:
    """Whether this process of PostgreSQL's is a connection's."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return words.startswith(b"postgres: " + USER.encode())


def _descendants(data: Path) -> list[int]:
    """Its backends, which are sessions of their own.

    Known by their folder: one that was forked this moment has no name of its own yet, and one that
    is ending has none any more, but still its memory.
    """
    pids = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and os.readlink(folder / "cwd") == str(data):
                pids.append(int(folder.name))
    return pids
