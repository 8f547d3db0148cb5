"""The web page's server: 100 open pages that follow one job; the page's first byte and its size.

    python benchmarks/web_page.py [--streams 100] [--seconds 60]
                                  [--mlflow-python PYTHON] [--poll 30]

A job logs 10 lines and 10 metrics a second, in one request each second as a worker does. The
server's processor time is measured with no page open, which is what the job costs by itself, with
one and with all of them. MLflow's server has no stream: beside it stands what as many pages cost
there that each ask for the run once in so many seconds. What browsers see is measured by the page's
own tests.
"""

from __future__ import annotations

import argparse
import gzip
import json
import selectors
import socket
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from figures import processor_s, progress, remove
from server import memory_mb, mlflow_server, torchyard_server

ASSETS = Path(__file__).parents[1] / "src" / "torchyard" / "web" / "assets"
_RATE = 10


@dataclass(frozen=True)
class Site:
    """A server, and how to ask it."""

    url: str
    token: str
    pid: int

    def ask(self, method: str, path: str, body: object = None, raw: bytes | None = None) -> bytes:
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.url + path, content, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text: bytes = answer.read()
        return text


@dataclass
class Readers:
    """Many open streams, read by one thread so that reading costs the server nothing."""

    site: Site
    path: str
    count: int
    bytes_read: int = 0
    frames: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def open(self) -> Iterator[None]:
        address = urlsplit(self.site.url)
        assert address.hostname and address.port
        over = threading.Event()
        with ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for _ in range(self.count):
                connection = socket.create_connection((address.hostname, address.port))
                stack.enter_context(connection)
                connection.sendall(
                    f"GET {self.path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
                    f"Authorization: Bearer {self.site.token}\r\n"
                    "Accept: text/event-stream\r\n\r\n".encode()
                )
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
            reading = threading.Thread(target=self._read, args=(selector, over))
            reading.start()
            try:
                yield
            finally:
                over.set()
                reading.join()

    def _read(self, selector: selectors.BaseSelector, over: threading.Event) -> None:
        while not over.is_set():
            for key, _ in selector.select(0.1):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                content = connection.recv(1 << 16)
                if not content:
                    selector.unregister(connection)
                self.bytes_read += len(content)
                for kind in ("metrics", "logs", "ping"):
                    seen = content.count(f"event: {kind}\n".encode())
                    self.frames[kind] = self.frames.get(kind, 0) + seen


class Job:
    """A run of torchyard that logs like a job does."""

    def __init__(self, site: Site, logs: Path) -> None:
        self._site = site
        experiment = {"experiment_id": "0"}
        made = json.loads(site.ask("POST", "/api/2.0/mlflow/runs/create", experiment))
        self.name = str(made["run"]["info"]["run_id"])
        self._log = logs / "default" / self.name / "1" / "user_logs" / "std_log.txt"
        self._log.parent.mkdir(parents=True)
        self._step = 0

    def log(self) -> None:
        """What it logs in a second; the lines go where a worker's shipping puts them."""
        now = int(time.time() * 1000)
        metrics = [
            {"key": "loss", "value": 1 / (self._step + 1), "timestamp": now, "step": self._step + n}
            for n in range(_RATE)
        ]
        body = {"run_id": self.name, "metrics": metrics}
        self._site.ask("POST", "/api/2.0/mlflow/runs/log-batch", body)
        with open(self._log, "a") as writing:
            writing.writelines(f"step {self._step + n} loss 0.1\n" for n in range(_RATE))
        self._step += _RATE


def _cost(site: Site, seconds: int, log: Callable[[], None]) -> tuple[float, float]:
    """(CPU seconds a minute, MiB) of a server while a job logs."""
    log()
    before_s, start = processor_s(site.pid, with_children=True), time.monotonic()
    for second in range(seconds):
        log()
        time.sleep(max(0.0, start + second + 1 - time.monotonic()))
    used_s = processor_s(site.pid, with_children=True) - before_s
    return used_s * 60 / (time.monotonic() - start), memory_mb(site.pid, "Pss")


def _first_byte_ms(site: Site, path: str, tries: int = 50) -> list[float]:
    """Each on a connection of its own, as a browser's first."""
    address = urlsplit(site.url)
    assert address.hostname and address.port
    times = []
    for _ in range(tries):
        start = time.monotonic()
        with socket.create_connection((address.hostname, address.port)) as connection:
            request = f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            assert connection.recv(1)
        times.append((time.monotonic() - start) * 1000)
    return times


def _of_torchyard(site: Site, home: Path, streams: int, seconds: int) -> None:
    job = Job(site, home / "logs")
    path = f"/v1/workspaces/default/events?job={job.name}&jobs=followed"
    print(f"\n{'server while one job logs':40}{'CPU s/min':>12}{'MiB':>8}{'KiB/s a page':>14}")
    for count in (0, 1, streams):
        progress(f"{count} pages")
        readers = Readers(site, path, count)
        with readers.open():
            used_s, memory = _cost(site, seconds, job.log)
        rate = readers.bytes_read / 1024 / seconds / max(1, count)
        progress("")
        print(f"{f'{count} pages follow it':40}{used_s:12.2f}{memory:8.0f}{rate:14.2f}")
        seen = readers.frames.get("metrics", 0)
        assert not count or seen >= count * seconds // 4, readers.frames


def _of_mlflow(python: str, folder: Path, streams: int, seconds: int, poll_s: float) -> None:
    folder.mkdir()
    with mlflow_server(python, folder) as (url, pid, _):
        site = Site(url, "", pid)
        made = json.loads(site.ask("POST", "/api/2.0/mlflow/runs/create", {"experiment_id": "0"}))
        name = made["run"]["info"]["run_id"]
        step = pages = 0

        def log() -> None:
            nonlocal step
            now = int(time.time() * 1000)
            metrics = [
                {"key": "loss", "value": 1.0, "timestamp": now, "step": step + n}
                for n in range(_RATE)
            ]
            site.ask("POST", "/api/2.0/mlflow/runs/log-batch", {"run_id": name, "metrics": metrics})
            step += _RATE
            for _ in range(round(pages / poll_s)):
                site.ask("GET", f"/ajax-api/2.0/mlflow/runs/get?run_id={name}")

        for count in (0, streams):
            pages = count
            used_s, memory = _cost(site, seconds, log)
            print(f"{f'mlflow: {count} pages':40}{used_s:12.2f}{memory:8.0f}")
        times = _first_byte_ms(site, "/")
        print(f"{'mlflow: first byte of /, median ms':40}{statistics.median(times):12.2f}")


def _sizes() -> None:
    scripts = [file.read_bytes() for file in sorted(ASSETS.rglob("*.js"))]
    total = sum(map(len, scripts))
    packed = sum(len(gzip.compress(script, 9)) for script in scripts)
    print(f"{'JavaScript, kB':40}{total / 1000:12.1f}")
    print(f"{'JavaScript compressed, kB (goal 150)':40}{packed / 1000:12.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, usage="python benchmarks/web_page.py")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--mlflow-python", default="")
    parser.add_argument("--poll", type=float, default=30.0, help="seconds")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="web-page-"))
    try:
        with torchyard_server(folder) as (url, pid, _):
            site = Site(url, (folder / "token").read_text().strip(), pid)
            _of_torchyard(site, folder, options.streams, options.seconds)
            times = _first_byte_ms(site, "/ui/")
            print(f"{'first byte of /ui/, median ms':40}{statistics.median(times):12.2f}")
        _sizes()
        if options.mlflow_python:
            streams, seconds = options.streams, options.seconds
            _of_mlflow(options.mlflow_python, folder / "mlflow", streams, seconds, options.poll)
    finally:
        remove(folder)


if __name__ == "__main__":
    main()
