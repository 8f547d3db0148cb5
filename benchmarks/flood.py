"""Memory and answers of a server that many slow and large requests come to at once.

    python benchmarks/flood.py [--slow 1000] [--large 200] [--seconds 60] [--nginx]

Of the slow connections a quarter each is silent, sends a header byte by byte, a body so with a
wrong token, and a body so with a good one. Of the large requests a quarter each is 60 MiB with a
wrong token, 16 MiB of a snapshot's list of files, a job's document as large as one may be (in turns
of one long text and of many short ones), and a blob of 60 MiB, all as fast as they go; each is
repeated as soon as it is answered, and connections that were closed are opened again. Meanwhile
`/health` is asked on new connections, and `/v1/whoami` on one that stays. The flood would come from
other machines, and comes from 250 addresses here; it leaves the processor to the server. With
`--nginx` all of it passes Debian's nginx with packaging/nginx.conf.
Ends with 1 if the server's memory goes over 300 MB or p99 of `/health` over 250 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import hashlib
import http.client
import json
import multiprocessing
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from figures import clean_variables, progress, remove

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from app.nginx_proxy import nginx_before

MOST_MEMORY_MB = 300.0
MOST_P99_MS = 250.0
_ADDRESSES = 250
_PIECE = bytes(256 << 10)
_BLOB_BYTES = 60 << 20
# Just below the limit of 4 MiB.
_DOCUMENT_BYTES = (4 << 20) - 1000
_LONG_TEXT = b'{"command": "' + b"x" * (_DOCUMENT_BYTES - 15) + b'"}'
_MANY_TEXTS = json.dumps(
    {
        "command": "x",
        "environment_variables": {f"{number:06}": "x" for number in range(_DOCUMENT_BYTES // 17)},
    }
).encode()
_BLOB_HASH = hashlib.sha256(bytes(_BLOB_BYTES)).hexdigest()


@dataclass
class Flood:
    """The clients, in a process of their own; counts what they were answered."""

    port: int
    token: str
    slow: int
    large: int
    tls: ssl.SSLContext | None
    answers: collections.Counter[str] = field(default_factory=collections.Counter)
    jobs: int = 0

    async def run(self, seconds: float) -> None:
        slow = [self.silent, self.slow_head, self.slow_stranger, self.slow_person]
        large = [self.large_stranger, self.manifest, self.job, self.blob]
        acts = [slow[number % 4] for number in range(self.slow)]
        acts += [large[number % 4] for number in range(self.large)]
        tasks = [
            asyncio.create_task(self._again_and_again(act, f"127.0.1.{number % _ADDRESSES + 1}"))
            for number, act in enumerate(acts)
        ]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _again_and_again(
        self, act: Callable[[Stream], Awaitable[None]], address: str
    ) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1",
                    self.port,
                    local_addr=(address, 0),
                    ssl=self.tls,
                    server_hostname=self.tls and "localhost",
                )
                stream = Stream(self, act.__name__, reader, writer)
                try:
                    await act(stream)
                finally:
                    stream.end()
            await asyncio.sleep(0.5)

    async def silent(self, stream: Stream) -> None:
        await stream.answer()

    async def slow_head(self, stream: Stream) -> None:
        stream.send(b"GET /health HTTP/1.1\r\nX-Slow: ")
        await stream.drip()

    async def slow_stranger(self, stream: Stream) -> None:
        stream.head("PUT", "/v1/workspaces/default/snapshots", "x", 60 << 20)
        await stream.drip()

    async def slow_person(self, stream: Stream) -> None:
        stream.head("PUT", "/v1/workspaces/default/snapshots", self.token, 30 << 20)
        await stream.drip()

    async def large_stranger(self, stream: Stream) -> None:
        stream.head("PUT", "/v1/workspaces/default/snapshots", "x", 60 << 20)
        await stream.pour(60 << 20)

    async def manifest(self, stream: Stream) -> None:
        entry = {
            "path": "folder/of/the/snapshot/file-000000",
            "sha256": "0" * 64,
            "size": 1,
            "mode": "0644",
        }
        text = json.dumps(entry).encode() + b","
        count = (16 << 20) // len(text)
        size_bytes = len(b'{"files":[') + count * len(text) + len(b"0]}")
        stream.head("PUT", "/v1/workspaces/default/snapshots", self.token, size_bytes)
        stream.send(b'{"files":[')
        for done in range(0, count, 1000):
            await stream.sent(text * min(1000, count - done))
        stream.send(b"0]}")
        await stream.answer()

    async def job(self, stream: Stream) -> None:
        self.jobs += 1
        body = _LONG_TEXT if self.jobs % 2 else _MANY_TEXTS
        stream.head("POST", "/v1/workspaces/default/jobs/validate", self.token, len(body))
        for start in range(0, len(body), 64 << 10):
            await stream.sent(body[start : start + (64 << 10)])
        await stream.answer()

    async def blob(self, stream: Stream) -> None:
        stream.head("PUT", f"/v1/workspaces/default/blobs/{_BLOB_HASH}", self.token, _BLOB_BYTES)
        await stream.pour(_BLOB_BYTES)


@dataclass
class Stream:
    """One connection of the flood."""

    flood: Flood
    name: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def __post_init__(self) -> None:
        # The server may answer long before it has all.
        self._answering = asyncio.create_task(self._answer())

    def head(self, method: str, path: str, token: str, size_bytes: int) -> None:
        self.send(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {size_bytes}\r\n\r\n".encode()
        )

    def send(self, content: bytes) -> None:
        self.writer.write(content)

    async def sent(self, content: bytes) -> None:
        """Send, and wait until it is on its way.

        Raises:
            ConnectionError: the server answered instead.
        """
        self.writer.write(content)
        await self.writer.drain()
        if self._answering.done():
            raise ConnectionError("answered")

    async def pour(self, size_bytes: int) -> None:
        for left in range(size_bytes, 0, -len(_PIECE)):
            await self.sent(_PIECE[:left])
        await self.answer()

    async def drip(self) -> None:
        """A byte a second, until the server has enough."""
        while True:
            await self.sent(b"x")
            await asyncio.wait([self._answering], timeout=1.0)

    async def answer(self) -> None:
        await self._answering

    def end(self) -> None:
        self._answering.cancel()
        self.writer.transport.abort()

    async def _answer(self) -> None:
        line = b""
        with contextlib.suppress(OSError):
            line = await self.reader.readline()
        status = line.split()[1].decode() if line else "closed"
        self.flood.answers[f"{self.name} {status}"] += 1


def flood_process(
    answers: Connection,
    port: int,
    token: str,
    slow: int,
    large: int,
    seconds: float,
    certificate: Path | None,
) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    os.nice(10)
    flood = Flood(port, token, slow, large, tls_of(certificate))
    asyncio.run(flood.run(seconds))
    answers.send(dict(flood.answers))


def tls_of(certificate: Path | None) -> ssl.SSLContext | None:
    return None if certificate is None else ssl.create_default_context(cafile=certificate)


@contextlib.contextmanager
def entrance(port: int, is_proxied: bool) -> Iterator[tuple[int, Path | None]]:
    """Where the clients come to: a port, and the certificate of the proxy that has it."""
    if not is_proxied:
        yield port, None
        return
    folder = Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    try:
        with nginx_before(port, folder / "nginx") as (proxy_port, certificate):
            yield proxy_port, certificate
    finally:
        remove(folder)


@contextlib.contextmanager
def yard_server(*options: str) -> Iterator[tuple[Path, int, int]]:
    """Home, port and pid of a server, with as many open files as its unit allows."""
    home = Path(tempfile.mkdtemp(prefix="torchyard-benchmark-"))
    variables = clean_variables(TORCHYARD_HOME=str(home))
    command = [sys.executable, "-m", "torchyard.server", "--home", str(home), "--port", "0"]
    command += options
    limits = (min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2
    with open(home / "server.log", "wb") as log:
        server = subprocess.Popen(
            command,
            env=variables,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
        )
    try:
        while not (home / "server.json").exists():
            if server.poll() is not None:
                raise SystemExit((home / "server.log").read_text())
            time.sleep(0.05)
        url = json.loads((home / "server.json").read_text())["url"]
        yield home, int(url.rpartition(":")[2]), server.pid
    finally:
        server.terminate()
        server.wait(60)
        remove(home)


@dataclass
class Watch:
    """Memory and answers while it lasts."""

    port: int
    pid: int
    token: str
    certificate: Path | None
    memory_mb: list[float] = field(default_factory=list)
    health_ms: list[float] = field(default_factory=list)
    person_ms: list[float] = field(default_factory=list)
    failed: collections.Counter[str] = field(default_factory=collections.Counter)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self, seconds: float) -> None:
        threads = [
            threading.Thread(target=act)
            for act in (self._watch_memory, self._ask_health, self._ask_as_person)
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.over.set()
        for thread in threads:
            thread.join()

    def _watch_memory(self) -> None:
        while not self.over.wait(0.1):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    self.memory_mb.append(int(line.split()[1]) / 1024)

    def _ask_health(self) -> None:
        while not self.over.wait(0.05):
            connection = self._connection()
            self._ask(connection, "/health", {}, self.health_ms)
            connection.close()

    def _ask_as_person(self) -> None:
        connection = self._connection()
        headers = {"Authorization": f"Bearer {self.token}"}
        while not self.over.wait(0.05):
            self._ask(connection, "/v1/whoami", headers, self.person_ms)
        connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        tls = tls_of(self.certificate)
        if tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        return http.client.HTTPSConnection("localhost", self.port, timeout=30, context=tls)

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        headers: dict[str, str],
        took_ms: list[float],
    ) -> None:
        began = time.perf_counter()
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            response.read()
            outcome = str(response.status)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            outcome = type(error).__name__
        took_ms.append((time.perf_counter() - began) * 1000)
        if outcome != "200":
            self.failed[f"{path} {outcome}"] += 1


def percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=1000)[round(share * 1000) - 1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--large", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nginx", action="store_true")
    options = parser.parse_args()
    proxied = ("--trusted-proxy", "127.0.0.1", "--jobs-as-server-user") if options.nginx else ()
    with (
        yard_server(*proxied) as (home, server_port, pid),
        entrance(server_port, options.nginx) as (port, certificate),
    ):
        token = (home / "token").read_text().strip()
        quiet = Watch(port, pid, token, certificate)
        quiet.run(5.0)
        receiving, sending = multiprocessing.Pipe(duplex=False)
        flood = multiprocessing.Process(
            target=flood_process,
            args=(
                sending,
                port,
                token,
                options.slow,
                options.large,
                options.seconds,
                certificate,
            ),
        )
        flood.start()
        progress(f"{options.slow} slow connections and {options.large} large requests")
        watch = Watch(port, pid, token, certificate)
        watch.run(options.seconds)
        answers = receiving.recv()
        flood.join()
        spooled = list((home / "spool").glob("*"))
    progress("")
    peak_mb, p99_ms = max(watch.memory_mb), percentile(watch.health_ms, 0.99)
    print(f"memory: {max(quiet.memory_mb):.0f} MB before, {peak_mb:.0f} MB at most")
    for name, before, values in (
        ("/health, new connections", quiet.health_ms, watch.health_ms),
        ("/v1/whoami, one connection", quiet.person_ms, watch.person_ms),
    ):
        figures = "  ".join(
            f"{share} {percentile(values, float(share[1:]) / 100):.1f}" for share in ("p50", "p99")
        )
        print(
            f"{name}: ms {figures}  longest {max(values):.1f}, of {len(values)}; "
            f"p99 {percentile(before, 0.99):.1f} before"
        )
    print(f"failed: {dict(watch.failed) or 'none'}; files left in spool/: {len(spooled)}")
    print("answers to the flood: " + ", ".join(f"{k}: {n}" for k, n in sorted(answers.items())))
    if peak_mb > MOST_MEMORY_MB or p99_ms > MOST_P99_MS or watch.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
