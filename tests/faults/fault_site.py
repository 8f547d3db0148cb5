"""A torchyard to break: a server of its own over a temporary home, and every process it leads to.

Owns: the home, the server's life, asking the native API, finding processes.
Leaves: which fault comes when to kills.py, server_kills.py and two_servers.py.
Always: at the end no process of it is left, however the faults went.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torchyard.shared.processes import Process, read, send

ENDED = ("Completed", "Failed", "Canceled")


@dataclass
class Site:
    """`ready_s` is how long the server took at its last start, in seconds."""

    home: Path
    options: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    server: subprocess.Popen[bytes] | None = None
    url: str = ""
    ready_s: float = 0.0

    @property
    def files(self) -> Path:
        """What jobs read and write beside their own folders."""
        return self.home

    @property
    def scratch(self) -> Path:
        return self.home / "scratch"

    def token(self) -> str:
        """Of who asks."""
        return (self.home / "token").read_text().strip()

    def start(self) -> None:
        """Start a server, on the port it had, and return when it answers."""
        began = time.monotonic()
        if self.server is not None:
            # One that somebody killed by its number is still to be taken note of.
            self.server.wait(60)
        self.server, self.url = self.launch()
        self.ready_s = time.monotonic() - began

    def launch(self) -> tuple[subprocess.Popen[bytes], str]:
        """A server that answers, and its URL."""
        readable, writable = os.pipe()
        environ = {name: value for name, value in os.environ.items() if "TORCHYARD" not in name}
        with open(self.home / "server.out", "ab") as out:
            server = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("yard-server")),
                    *("--home", str(self.home), "--ready-fd", str(writable), *self.options),
                ],
                env={**environ, **self.environ},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=[writable],
                start_new_session=True,
            )
        os.close(writable)
        with os.fdopen(readable) as pipe:
            url = pipe.readline().strip()
        if not url:
            server.wait(60)
        assert url, (self.home / "server.out").read_text()[-2000:]
        return server, url

    def kill(self) -> None:
        """End the server as a crash does."""
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def kill_runner(self) -> None:
        raise AssertionError("this site has no runner")

    def start_runner(self) -> None:
        raise AssertionError("this site has no runner")

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float = 30.0) -> Any:
        """An answer of the native API, as JSON.

        Raises:
            OSError: the server is unreachable, or refuses.
        """
        # A path that begins with `/` is whole.
        below = path if path.startswith("/") else f"/v1/workspaces/default/{path}"
        request = urllib.request.Request(
            self.url + below,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {self.token()}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            content = answer.read()
        kind = answer.headers.get("Content-Type", "")
        return json.loads(content) if kind.startswith("application/json") else content

    def patiently(self, method: str, path: str, body: Any = None, limit_s: float = 60.0) -> Any:
        """The same, over a server that is unreachable for a while."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                return self.ask(method, path, body)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > deadline:
                    raise AssertionError(f"{method} {path}: {error.read()!r}") from error
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def submit(self, job: Mapping[str, Any]) -> str:
        made = self.patiently("POST", "jobs", {"environment": "python", **job})
        name: str = made["name"]
        return name

    def job(self, name: str) -> dict[str, Any]:
        job: dict[str, Any] = self.patiently("GET", f"jobs/{name}")
        return job

    def wait(self, name: str, timeout_s: float = 120.0, when: str = "") -> dict[str, Any]:
        """The job, once it has ended."""
        deadline = time.monotonic() + timeout_s
        while (job := self.job(name))["status"] not in ENDED:
            assert time.monotonic() < deadline, f"{name} {when} does not end: {job}"
            time.sleep(0.1)
        return job

    def nodes(self, job: str) -> list[Path]:
        """The folders of the nodes of a job's running attempts."""
        folders = []
        for plan in self.scratch.glob("*/plan.json"):
            with contextlib.suppress(OSError, ValueError):
                if json.loads(plan.read_text())["job"] == job:
                    folders += sorted(plan.parent.glob("node-*"))
        return folders

    def end(self) -> None:
        """Stop the server, then every process that is left."""
        if self.server is not None and self.server.poll() is None:
            self.server.terminate()
            self.server.wait(60)
        for process in having(str(self.home)):
            send(process.pid, process.start_time, signal.SIGKILL)
        if self.server is not None:
            self.server.wait(60)


AnySite = TypeVar("AnySite", bound=Site)


@contextlib.contextmanager
def made(options: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> Iterator[Site]:
    """A site with a server that runs; nothing of it stays."""
    with started(Site(new_home(), options, environ or {})) as site:
        yield site


def new_home() -> Path:
    return Path(tempfile.mkdtemp(prefix="torchyard-faults-"))


@contextlib.contextmanager
def started(site: AnySite) -> Iterator[AnySite]:
    """A site of whatever kind, running; nothing of it stays."""
    try:
        site.start()
        yield site
    finally:
        site.end()
        for folder, _, _ in os.walk(site.home):
            with contextlib.suppress(OSError):
                os.chmod(folder, 0o700)
        shutil.rmtree(site.home, ignore_errors=True)


def having(word: str) -> list[Process]:
    """Living processes with the word in their arguments or their environment."""
    living = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        process = read(int(name))
        if process is None or process.ended:
            continue
        for file in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                if word.encode() in Path(f"/proc/{name}/{file}").read_bytes():
                    living.append(process)
                    break
    return living


def until(
    condition: Callable[[], bool], timeout_s: float, goal: str, every_s: float = 0.02
) -> float:
    """Wait in real time; returns how long it took, in seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + timeout_s, f"not within {timeout_s} s: {goal}"
        time.sleep(every_s)
    return time.monotonic() - began


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
