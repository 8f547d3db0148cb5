"""What the router of online endpoints costs: a model asked directly, and through it.

Run: python benchmarks/router.py [--peers PYTHON] [--rounds 5] [--requests 1000]

The models: an asyncio server that answers at once (the router's own ceiling) and, with `--peers`,
a trivial score.py in azureml-inference-server-http of that Python. Each is asked directly at its
port, and by the router at its socket, as instances are. Where that Python has aiohttp, a proxy of
20 lines in it stands beside the router. All take turns within a round; the ratio is of the medians
of the rounds. One client connection gives the latency, eight the requests a second.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from torchyard.endpoints.router import control
from torchyard.endpoints.router.table import (
    Auth,
    DeploymentRow,
    EndpointRow,
    InstanceRow,
    Table,
    to_text,
)

KEY = "key"
BODY = b'{"data": [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]}'
CONNECTIONS = 8
SCORE = "def init():\n    pass\n\ndef run(raw_data):\n    return [1.0]\n"
BARE = """
import asyncio, socket
ANSWER = b"HTTP/1.1 200 OK\\r\\ncontent-length: 5\\r\\n\\r\\n[1.0]"
class Model(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(ANSWER)
async def main():
    loop = asyncio.get_running_loop()
    await loop.create_unix_server(Model, sock=socket.socket(fileno=4))
    server = await loop.create_server(Model, sock=socket.socket(fileno=3))
    await server.serve_forever()
asyncio.run(main())
"""
# Source: sd_listen_fds(3).
LISTENING = """
import os, sys
for number, descriptor in enumerate(map(int, sys.argv[1:3]), 3):
    os.dup2(descriptor, number)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="2")
os.execv(sys.argv[3], sys.argv[3:])
"""
PROXY = """
import sys
from aiohttp import ClientSession, TCPConnector, web
async def passed(request):
    body = await request.read()
    async with request.app["session"].request(
        request.method, sys.argv[2] + "/score", data=body,
        headers={"content-type": "application/json"},
    ) as answer:
        return web.Response(status=answer.status, body=await answer.read())
async def opened(app):
    app["session"] = ClientSession(connector=TCPConnector(limit=0))
    yield
    await app["session"].close()
app = web.Application()
app.cleanup_ctx.append(opened)
app.router.add_route("*", "/{path:.*}", passed)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
"""


@dataclass(frozen=True)
class Target:
    """Where requests go."""

    name: str
    port: int
    path: str
    body: bytes = BODY
    key: str = KEY


@dataclass(frozen=True)
class Figures:
    per_s: float
    p50_ms: float
    p99_ms: float


class Client(asyncio.Protocol):
    """Sends one request after another on one connection, while the server keeps it open."""

    def __init__(self, request: bytes, latencies: list[float], count: int, begin: float) -> None:
        self._request = request
        self._latencies = latencies
        self._begin = begin
        self.left = count
        self._got = b""
        self._at = 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send(self._begin)

    def _send(self, at: float) -> None:
        self._at = at
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, end, body = self._got.partition(b"\r\n\r\n")
        if not end:
            return
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            if not body.endswith(b"0\r\n\r\n"):
                return
        elif len(body) < int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        assert head.startswith(b"HTTP/1.1 200"), self._got
        self._latencies.append(time.perf_counter() - self._at)
        self._got = b""
        self.left -= 1
        if self.left > 0 and b"connection: close" not in lower:
            self._send(time.perf_counter())
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._got:
            exc = ConnectionError("half an answer")
        if exc is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(exc)


def _same(client: Client) -> Client:
    return client


async def ask(target: Target, requests: int, connections: int) -> tuple[float, list[float]]:
    """Seconds for all requests, and each one's latency in seconds."""
    request = (
        f"POST {target.path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {target.key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(target.body)}\r\n\r\n"
    ).encode() + target.body
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()

    async def one_after_another() -> None:
        left = requests // connections
        while left > 0:
            at = time.perf_counter()
            client = Client(request, latencies, left, at)
            await loop.create_connection(partial(_same, client), "127.0.0.1", target.port)
            await client.ended
            left = client.left

    await asyncio.gather(*(one_after_another() for _ in range(connections)))
    return time.perf_counter() - begin, latencies


def measure(target: Target, requests: int) -> Figures:
    _, latencies = asyncio.run(ask(target, requests, 1))
    cuts = quantiles(latencies, n=100)
    seconds, _ = asyncio.run(ask(target, requests, CONNECTIONS))
    return Figures(requests / seconds, cuts[49] * 1000, cuts[98] * 1000)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, descriptors: Sequence[int] = ()) -> Iterator[None]:
    """A program that listens at `port`."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=descriptors,
    )
    try:
        until = time.monotonic() + 60
        while True:
            assert process.poll() is None and time.monotonic() < until, command
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def model(stack: ExitStack, command: list[str], path: Path) -> int:
    """Start a model that listens at the socket `path` and at the port that is returned."""
    with (
        socket.create_server(("127.0.0.1", 0)) as at_port,
        socket.socket(socket.AF_UNIX) as at_path,
    ):
        at_path.bind(str(path))
        at_path.listen()
        # Numbers that neither of them gets in the program.
        numbers = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (at_port, at_path)]
        port = int(at_port.getsockname()[1])
        words = [sys.executable, "-c", LISTENING, *map(str, numbers)]
        stack.enter_context(running([*words, *command], port, numbers))
    for number in numbers:
        os.close(number)
    return port


def peer(python: str, folder: Path) -> list[str]:
    """The command of azureml-inference-server-http with a trivial model."""
    (folder / "score.py").write_text(SCORE)
    command = [str(Path(python).with_name("azmlinfsrv"))]
    command += ["--entry_script", str(folder / "score.py"), "--port", str(free_port())]
    return [*command, "--health_port", str(free_port())]


def proxy(stack: ExitStack, python: str, folder: Path, model: int) -> Target | None:
    """An aiohttp proxy before the model, where that Python has aiohttp."""
    if subprocess.run([python, "-c", "import aiohttp"], capture_output=True).returncode:
        return None
    (folder / "proxy.py").write_text(PROXY)
    port = free_port()
    command = [python, str(folder / "proxy.py"), str(port), f"http://127.0.0.1:{model}"]
    stack.enter_context(running(command, port))
    return Target("aiohttp proxy", port, "/score")


def table(paths: dict[str, Path], concurrent: int) -> Table:
    instances = {name: InstanceRow(name, str(path)) for name, path in paths.items()}
    auth = Auth("key", (hashlib.sha256(KEY.encode()).digest(),))
    rows = {
        f"vision/{name}": EndpointRow(
            auth,
            {"blue": 100},
            {},
            {
                "blue": DeploymentRow((instance,), max_concurrent=concurrent),
            },
        )
        for name, instance in instances.items()
    }
    return Table(1, endpoints=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", help="a Python with azureml-inference-server-http")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1000)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        commands = {"bare": [sys.executable, "-c", BARE]}
        if options.peers:
            commands["azureml"] = peer(options.peers, folder)
        paths = {name: folder / f"{name}.sock" for name in commands}
        models = {name: model(stack, each, paths[name]) for name, each in commands.items()}
        (folder / "router").mkdir()
        (folder / "router" / "table.json").write_bytes(to_text(table(paths, 2 * CONNECTIONS)))
        port = free_port()
        command = [sys.executable, "-m", "torchyard.endpoints.router", "--home", str(folder)]
        stack.enter_context(running([*command, "--port", str(port)], port))
        targets: dict[str, list[Target]] = {}
        for name, model_port in models.items():
            targets[name] = [
                Target("direct", model_port, "/score"),
                Target("router", port, f"/endpoints/vision/{name}/score"),
            ]
            other = proxy(stack, options.peers, folder, model_port) if options.peers else None
            if other is not None:
                targets[name].append(other)
        compare(targets, options.rounds, options.requests)
        statistics = control.ask(folder / "router", {"ask": "statistics"})
        refusals = [
            each["deployments"]["blue"]["refusals"] for each in statistics["endpoints"].values()
        ]
        assert not any(refusals), refusals


def compare(targets: dict[str, list[Target]], rounds: int, requests: int) -> None:
    for name, of_model in targets.items():
        figures: dict[str, list[Figures]] = {target.name: [] for target in of_model}
        for target in of_model:
            measure(target, 200)
        for number in range(rounds):
            for target in of_model if number % 2 else reversed(of_model):
                figures[target.name].append(measure(target, requests))
        base_per_s = median(f.per_s for f in figures["direct"])
        base_p50 = median(f.p50_ms for f in figures["direct"])
        for target in of_model:
            each = figures[target.name]
            per_s = median(f.per_s for f in each)
            p50, p99 = median(f.p50_ms for f in each), median(f.p99_ms for f in each)
            print(
                f"{name:8} {target.name:14} {per_s:8.0f}/s ({per_s / base_per_s:.2f} of direct)"
                f"  p50 {p50:.2f} ms (+{p50 - base_p50:.2f})  p99 {p99:.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
