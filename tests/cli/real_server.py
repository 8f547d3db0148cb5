"""The real server in the test's process, with an executor that starts nothing."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from torchyard import Client, server
from torchyard.app import application, listeners
from torchyard.base.clock import Clock, SystemClock
from torchyard.base.settings import Settings
from torchyard.executors.engines import Opener
from torchyard.executors.fake import FakeExecutor
from torchyard.executors.server_for_nodes import NodeAddresses


class RealServer:
    """The app, served on a port of loopback by a thread.

    Args:
        with_tls: it opens the listener with its own certificate when that is wanted; then
            `tls_url` and `tls_authority` (a PEM file) may be asked for.
        database: its URL; empty for a file in the home.
        address: where it listens; a port of 0 is any.
        openers: further engines, by name.
        node_urls: where nodes of other machines reach it; by default where it listens.
        clock: of the app; the machine's when None.

    Attributes:
        requests: the method and path of each, in their order.
        executor: what starts nothing.
    """

    def __init__(
        self,
        home: Path,
        with_tls: bool = False,
        database: str = "",
        address: tuple[str, int] = ("127.0.0.1", 0),
        openers: Mapping[str, Opener] | None = None,
        node_urls: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self.home = home
        self.requests: list[tuple[str, str]] = []
        self.executor = FakeExecutor()
        self._own = listeners.OwnTls(
            home,
            "127.0.0.1",
            SystemClock(),
            lambda: server.listen(home, "127.0.0.1", None, "tls-port", 0),
        )
        # With the protocol named, asyncio turns off Nagle's delay of 40 ms an answer.
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(address)
        self._listener.listen(100)
        self.url = f"http://{address[0]}:{self._listener.getsockname()[1]}"
        urls = tuple(node_urls or [self.url])
        try:
            parts = application.build(
                home,
                self.url,
                os.environ,
                clock=clock,
                executor=self.executor,
                database=database,
                node_addresses=lambda: NodeAddresses(urls, self._authority()),
                openers=openers,
            )
            server.ensure_token(parts, Settings(home).token_file)
            self.app = application.create_app(parts, (), self._own.way if with_tls else None)
        except BaseException:
            self._listener.close()
            raise
        self.token = Settings(home).token_file.read_text().strip()
        self.services = parts.services
        config = uvicorn.Config(self._serve, log_level="error", lifespan="on", interface="asgi3")
        self._server = listeners.Server(config)
        self._own.server = self._server
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server does not start"
            time.sleep(0.01)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.requests.append((scope["method"], scope["path"]))
        await self.app(scope, receive, send)

    def client(self, workspace: str = "default") -> Client:
        return Client(workspace=workspace, settings=Settings(self.home, self.url, self.token))

    def _authority(self) -> str:
        way = self._own.current()
        return way.authority if way is not None else ""

    @property
    def tls_url(self) -> str:
        return f"https://127.0.0.1:{self._own.way('127.0.0.1').port}"

    @property
    def tls_authority(self) -> Path:
        file = self.home / "authority.pem"
        file.write_text(self._own.way("127.0.0.1").authority)
        return file

    def contents(self) -> dict[str, Any]:
        """What a refused command must leave as it was."""
        with self.client() as client:
            return {
                "jobs": sorted(job.name for job in client.jobs.list(max_results=None)),
                "models": [(model.name, model.version) for model in client.models.list()],
                "computes": sorted(row.name for row in client.computes.list()),
                "blobs": sorted(path.name for path in (self.home / "blobs").rglob("*")),
            }

    def stop(self) -> None:
        self.services.signals.close()
        self._own.close()
        self._server.should_exit = True
        self._thread.join(60)
        self._listener.close()
        # A router outlives its server, also one that does not answer yet.
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = b"torchyard.endpoints.router\0--home\0%b\0" % bytes(self.home)
                if words in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
