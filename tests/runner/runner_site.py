"""A runner with Unix users of its own, and whatever a test does to it.

Owns: the users (all of them begin with `tyt-`), the runner's process, its folders.
Leaves: servers and jobs to the tests.
Always: at the end no user, process or folder of it is left. Needs root.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torchyard.executors.runner_client import RunnerClient, RunnerUnreachable
from torchyard.runner import cgroups
from torchyard.shared import processes

_LIMIT_S = 90.0


class RunnerSite:
    """Users `server`, `build`, `engine`, `other` and the pool `job1`… of one test; see `user`."""

    def __init__(self, folder: Path, number: str) -> None:
        self.folder = folder
        self._prefix = f"tyt-{number}-"
        self.node_folder = folder / "node"
        self.state = folder / "state"
        self.config_file = folder / "etc" / "runner.json"
        self.socket = folder / "run" / "runner.sock"
        self.log = folder / "runner.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.client = RunnerClient(self.socket)

    def user(self, name: str) -> str:
        """The Unix user that a test calls so."""
        return self._prefix + name

    def uid(self, name: str) -> int:
        return pwd.getpwnam(self.user(name)).pw_uid

    def add_users(self, *names: str) -> None:
        for name in names:
            words = ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"]
            subprocess.run(["useradd", *words, self.user(name)], check=True, capture_output=True)

    def configure(self, **changes: Any) -> None:
        """Write the configuration."""
        body = {
            "server_user": self.user("server"),
            "pool": {"prefix": self.user("job"), "count": 2},
            "build_user": self.user("build"),
            "engine_user": self.user("engine"),
            "node_folder": str(self.node_folder),
            "state": str(self.state),
            "python": python_for_all(),
            **changes,
        }
        self.config_file.parent.mkdir(mode=0o755, exist_ok=True)
        self.config_file.write_text(json.dumps(body))
        self.config_file.chmod(0o644)

    def command(self, *words: str) -> list[str]:
        module = [sys.executable, "-I", "-m", "torchyard.runner"]
        return [*module, "--config", str(self.config_file), *words]

    def start(self) -> None:
        """Start the runner, and return when it answers."""
        words = self.command("serve", "--socket", str(self.socket), "--allow-writable-code")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.wait_until_it_answers()

    def wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while True:
            # To connect would say little: a child of the runner before may still hold its socket.
            with suppress(RunnerUnreachable):
                self.client.call("hello")
                return
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def keep_worker(self, program: str) -> str:
        """Keep a worker's program; its hash."""
        file = self.folder / "worker.py"
        file.write_text(program)
        with open(file, "rb") as opened:
            return str(self.client.call("keep_worker", [opened.fileno()])["worker"])

    def stop(self, signum: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(signum)
            self.process.wait()
            self.process = None

    def run_as(
        self, name: str, words: Sequence[str], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as a user; `root` for root."""
        uid = 0 if name == "root" else self.uid(name)
        return subprocess.run(
            words, user=uid, group=uid, extra_groups=[], capture_output=True, text=True, **options
        )

    def processes_of(self, name: str) -> list[int]:
        """The numbers of a user's processes."""
        uid, pids = self.uid(name), []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                process = processes.read(int(entry.name))
                if entry.stat().st_uid == uid and process is not None and not process.ended:
                    pids.append(process.pid)
        return pids

    def close(self) -> None:
        self.stop()
        names = [
            entry.pw_name for entry in pwd.getpwall() if entry.pw_name.startswith(self._prefix)
        ]
        for name in names:
            short = name.removeprefix(self._prefix)
            deadline = time.monotonic() + _LIMIT_S
            while pids := self.processes_of(short):
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                assert time.monotonic() < deadline, f"processes of {name} do not end: {pids}"
                time.sleep(0.05)
            subprocess.run(["userdel", name], check=True, capture_output=True)
        self._remove_cgroups()
        shutil.rmtree(self.folder)

    def _remove_cgroups(self) -> None:
        """Those of attempts whose folders nobody asked to remove, and the runner's own."""
        parent = cgroups.own()
        if parent is None:
            return
        for record in self.state.glob("attempts/*.json"):
            for node in json.loads(record.read_text())["nodes"]:
                assert cgroups.remove(record.stem, int(node))
        with suppress(OSError):
            (parent / "yard-runner").rmdir()  # another test's runner may be in it


def python_for_all() -> str:
    """A Python that other users can run: the one of the tests may be in a closed folder."""
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        real = Path(python).resolve()
        if real.exists() and all(path.stat().st_mode & 0o001 for path in (real, *real.parents)):
            return python
    raise AssertionError("no Python here can be run by other users: install python3")


@contextmanager
def runner_site(**changes: Any) -> Iterator[RunnerSite]:
    """A site whose users exist and whose runner answers."""
    # Not below /tmp's folders for tests, which other users can't enter.
    folder = Path(tempfile.mkdtemp(prefix="tyt-", dir="/var/lib"))
    folder.chmod(0o755)
    site = RunnerSite(folder, str(os.getpid()))
    try:
        site.add_users("server", "build", "engine", "other", "job1", "job2")
        site.configure(**changes)
        site.start()
        yield site
    finally:
        if site.log.exists():
            sys.stderr.write(site.log.read_text()[-4000:])
        site.close()
