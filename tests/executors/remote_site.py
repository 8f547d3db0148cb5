"""A server in this process, and nodes that see nothing of its disk."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import uvicorn

from executors import folder_engine
from executors.folder_engine import FolderEngine
from torchyard import server
from torchyard.app import application
from torchyard.app.application import Parts
from torchyard.app.listeners import TlsEndpoint
from torchyard.azureml import job_variables
from torchyard.base import certificates
from torchyard.base.clock import SystemClock
from torchyard.executors.server_for_nodes import NodeAddresses
from torchyard.jobs import actions
from torchyard.jobs.records import attempt_store
from torchyard.jobs.records.types import Attempt, Job
from torchyard.jobs.requests import submission
from torchyard.workspaces.types import Identity, TokenKind

_ME = Identity("root", TokenKind.PERSON)


@dataclass(frozen=True)
class RemoteSite:
    """`node_folder` is what nodes have, `url` where the server answers."""

    parts: Parts
    engine: FolderEngine
    node_folder: Path
    url: str

    def submit(self, **document: Any) -> Job:
        body = {"environment": "python", **document}
        return submission.create(self.parts.services, "default", body, _ME)[0]

    def run(self, limit_s: float = 60.0, **document: Any) -> Job:
        return self.ended(self.submit(**document), limit_s)

    def ended(self, job: Job, limit_s: float = 60.0) -> Job:
        deadline = time.monotonic() + limit_s
        while not job.status.ended:
            assert time.monotonic() < deadline, (job, self.attempt(job), self.engine_logs())
            time.sleep(0.05)
            job = actions.get(self.parts.services, "default", job.name)
        return job

    def attempt(self, job: Job) -> Attempt:
        with self.parts.services.db.read() as connection:
            return attempt_store.attempts_of(connection, job.id)[-1]

    def plan(self, job: Job, limit_s: float = 60.0) -> dict[str, Any]:
        """What its nodes get, once it is launched."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            with self.parts.services.db.read() as connection:
                attempts = attempt_store.attempts_of(connection, job.id)
            text = self.parts.services.launches.read(attempts[-1].id) if attempts else None
            if text is not None:
                plan: dict[str, Any] = json.loads(text)
                return plan
            time.sleep(0.02)
        raise AssertionError(f"{job} was not launched")

    def engine_logs(self) -> str:
        return "".join(file.read_text() for file in self.parts.services.home.glob("engine-*.log"))

    def scratch_left(self) -> list[str]:
        """What attempts left on the nodes, once their processes have had time to remove it."""
        deadline = time.monotonic() + 60
        while True:
            # Not by `**`, which would walk through what is just being removed.
            patterns = ("scratch/*", "machine-*/scratch/*")
            left = [str(file) for each in patterns for file in self.node_folder.glob(each)]
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.05)


@contextlib.contextmanager
def serving(
    folder: Path,
    host: str = "127.0.0.1",
    before: Callable[[int], Sequence[str]] = lambda _: (),
    address: Callable[[int], str] = lambda node: f"127.0.0.{node + 2}",
    python: str = sys.executable,
    tls: bool = False,
    apart: bool = False,
) -> Iterator[RemoteSite]:
    """
    Args:
        before, address: see FolderEngine.
        python: of the nodes.
        tls: with the server's own certificate, which nodes pin.
        apart: each node has a folder of its own, `node_folder/machine-K`.
    """
    home, node_folder = folder / "home", folder / "nodes"
    home.mkdir(mode=0o700, exist_ok=True)
    listener = server.listen(home, host, None)
    url = f"{'https' if tls else 'http'}://{host}:{listener.getsockname()[1]}"
    pem = certificates.ensure(home, (host,), SystemClock().now()).file if tls else None
    authority = certificates.authority(home) if tls else ""
    parts = application.build(
        home, url, os.environ, node_addresses=lambda: NodeAddresses((url,), authority)
    )
    # This machine's nodes may see the server's folder, and are not to use it.
    environ = {**os.environ, "TORCHYARD_NODE_COPY": "1"}
    for_nodes = parts.services.for_nodes

    def folder_of(node: int) -> Path:
        return node_folder / f"machine-{node}" if apart else node_folder

    engine = FolderEngine(home, for_nodes, folder_of, before, environ, address, python)
    # As an extra would.
    parts.services.engines._openers[folder_engine.NAME] = lambda: engine
    with parts.services.db.write() as connection:
        connection.execute(sa.text("UPDATE computes SET engine = 'folder'"))
    if tls:
        endpoint = TlsEndpoint(listener.getsockname()[1], authority=authority)
        job_variables.publish(parts.services, os.environ, parts.signer, lambda: endpoint)
    server.ensure_token(parts, home / "token")
    app = application.create_app(parts)
    config = uvicorn.Config(app, log_level="warning", ssl_certfile=pem, ssl_keyfile=pem)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield RemoteSite(parts, engine, node_folder, url)
    finally:
        engine.close()
        parts.services.signals.close()
        running.should_exit = True
        thread.join(60)
