"""Asking a torchyard by its `yard` command and its native API, as a user and a program would.

Owns: commands and requests over one home folder, its server's life, and finding every process
that knows it.
Leaves: which tests share a server to their conftest.py, what is asked to the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eventually import PATIENCE, eventually

REPOSITORY = Path(__file__).parents[2]
ENDED = ("Completed", "Failed", "Canceled")


@dataclass(frozen=True)
class Yard:
    """The `yard` command and the server that it starts, over one home folder."""

    home: Path
    database: str = ""

    @property
    def variables(self) -> dict[str, str]:
        environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
        return {
            **environ,
            "TORCHYARD_HOME": str(self.home),
            "TORCHYARD_WORKSPACE": "default",
            "TORCHYARD_DATABASE": self.database,
        }

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """The command, running; it is in the test's folder unless `cwd` says otherwise."""
        yard = Path(sys.executable).with_name("yard")
        return subprocess.Popen(
            [yard, *arguments],
            env=self.variables,
            # Tests that run in the background ignore it, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            **options,
        )

    def __call__(self, *arguments: str, expect: int = 0, timeout_s: float = 300) -> str:
        """What the command prints, once it has ended with the exit code `expect`."""
        return self.run(*arguments, expect=expect, timeout_s=timeout_s)[0]

    def run(self, *arguments: str, expect: int, timeout_s: float = 300) -> tuple[str, str]:
        """As above, with what it prints to stderr."""
        with self.start(
            *arguments, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s * PATIENCE)
            finally:
                process.kill()
        output = (out.decode(errors="replace"), err.decode())
        report = "\n".join([f"yard {' '.join(arguments)}", *output])
        assert process.returncode == expect, report
        return output

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["url"])

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def open(self, path: str, body: Any = None) -> Any:
        """An answer of the native API, to read and close; a `body` is posted."""
        request = urllib.request.Request(
            f"{self.url}/v1/workspaces/default/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        return urllib.request.urlopen(request, timeout=60)

    def read(self, path: str) -> bytes:
        with self.open(path) as answer:
            content: bytes = answer.read()
        return content

    def get(self, path: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.read(path))
        return answer

    def post(self, path: str, body: Any) -> dict[str, Any]:
        with self.open(path, body) as answer:
            document: dict[str, Any] = json.loads(answer.read())
        return document

    def job(self, name: str) -> dict[str, Any]:
        return self.get(f"jobs/{name}")

    def wait(self, name: str, timeout_s: float = 240) -> dict[str, Any]:
        """The job, once it has ended."""
        wait_until(lambda: self.job(name)["status"] in ENDED, timeout_s, f"job {name} has ended")
        return self.job(name)

    def completed(self, name: str, timeout_s: float = 240) -> dict[str, Any]:
        """The job, once it has ended; it must have gone well."""
        job = self.wait(name, timeout_s)
        assert job["status"] == "Completed", (job["status"], job["error"], self.logs(name))
        return job

    def logs(self, name: str) -> dict[str, bytes]:
        """Every rank's output, by its path."""
        files = [file["path"] for file in self.get(f"jobs/{name}/files")["value"]]
        chosen = [path for path in files if path.startswith("user_logs/")]
        return {path: self.read(f"jobs/{name}/files/{path}") for path in chosen}

    def logs_of_attempts(self, name: str) -> list[str]:
        """What the one rank of each attempt printed, in order."""
        files = [file["path"] for file in self.get(f"jobs/{name}/files")["value"]]
        earlier = sorted(path for path in files if path.startswith("attempt-"))
        paths = [path for path in earlier if path.endswith("user_logs/std_log.txt")]
        paths.append("user_logs/std_log.txt")
        return [self.read(f"jobs/{name}/files/{path}").decode() for path in paths]

    def kill_server(self) -> None:
        """End the server as a crash would."""
        pid = json.loads((self.home / "server.json").read_text())["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), 60, "the server is dead")

    def quiet_down(self, timeout_s: float = 30) -> None:
        """Cancel what still runs, and wait for it; nothing that goes wrong here fails a test."""
        with contextlib.suppress(Exception):
            left = [job["name"] for job in self.get("jobs")["value"] if job["status"] not in ENDED]
            for name in left:
                with contextlib.suppress(OSError):
                    self.post(f"jobs/{name}/cancel", {})
            if left:
                wait_until(
                    lambda: all(self.job(name)["status"] in ENDED for name in left),
                    timeout_s,
                    "what a test left running is canceled",
                )

    def worker_of(self, name: str, node: int = 0) -> dict[str, Any]:
        """What the worker of a running job says of itself: its pid and its supervisor's."""
        record = self.node_of(name, node) / "worker.json"
        wait_until(record.exists, 60, f"the worker of job {name} says who it is")
        who: dict[str, Any] = json.loads(record.read_text())
        return who

    def node_of(self, name: str, node: int = 0) -> Path:
        """The folder of a node of a job's running attempt, waited for."""
        folders: list[Path] = []

        def find_folder() -> bool:
            for plan in (self.home / "scratch").glob("*/plan.json"):
                # Folders of other attempts come and go meanwhile, half written and half removed.
                with contextlib.suppress(OSError, ValueError):
                    if json.loads(plan.read_text())["job"] == name:
                        folders.append(plan.parent / f"node-{node}")
            return bool(folders)

        wait_until(find_folder, 60, f"job {name} has a folder")
        return folders[-1]

    def processes(self) -> list[str]:
        """Every process that carries the home folder in its arguments or its environment."""
        processes = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with contextlib.suppress(OSError):
                    arguments = (folder / "cmdline").read_bytes()
                    if str(self.home).encode() in arguments + (folder / "environ").read_bytes():
                        processes.append(f"{folder.name} {arguments.decode(errors='replace')}")
        return processes


@contextlib.contextmanager
def running_yard(requirement: str, database: str = "", machine: str = "") -> Iterator[Yard]:
    """A server over a home of its own; when it has stopped, no process of it is left.

    `machine` is the text of the home's machine.yml, `database` the URL of a PostgreSQL's.
    """
    home = Path(tempfile.mkdtemp(prefix=f"torchyard-{requirement}-"))
    if machine:
        (home / "machine.yml").write_text(machine)
    try:
        with running_server(Yard(home, database)) as yard:
            yield yard
    finally:
        remove(home)


@contextlib.contextmanager
def running_server(yard: Yard) -> Iterator[Yard]:
    """Start the server of a home, and leave no process of it."""
    try:
        yard("server", "start")
        yield yard
        yard("server", "stop")
        try:
            wait_until(lambda: not yard.processes(), 60, "every process of the server has ended")
        except AssertionError as error:
            raise AssertionError(f"{error}: {yard.processes()}") from error
    finally:
        for process in yard.processes():
            with contextlib.suppress(OSError):
                os.kill(int(process.split()[0]), signal.SIGKILL)


def remove(folder: Path) -> None:
    """Delete a folder whose files may be read-only."""
    # Environments hold a hundred thousand files, with which Python takes minutes on a busy machine.
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False, capture_output=True)
    subprocess.run(["rm", "-rf", str(folder)], check=False, capture_output=True)


def alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], timeout_s: float, goal: str) -> None:
    """Real processes are waited for in real time."""
    eventually(condition, goal, timeout_s)
