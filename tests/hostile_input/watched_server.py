"""A real server in its own process, and what it takes to answer `/health` meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from hostile_input.hostile_requests import Request

START_S = 120.0
# Longer than any request may take; what is not answered by then counts as a failure.
LONGEST_S = 60.0
_PAUSE_S = 0.02


class Server:
    """Answers requests of the owner; `host` is an address with its port."""

    def __init__(self, url: str, token: str) -> None:
        self.host = urlsplit(url).netloc
        self._token = token
        self._connection = http.client.HTTPConnection(self.host, timeout=LONGEST_S)

    def ask(self, request: Request) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        for attempt in (1, 2):
            try:
                self._connection.request(request.method, request.path, request.body, headers)
                response = self._connection.getresponse()
                return response.status, response.read()
            except (http.client.HTTPException, ConnectionError):
                # The server closes a connection after some refusals.
                self._connection.close()
                if attempt == 2:
                    raise
        raise AssertionError

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str) -> dict[str, object]:
        status, body = self.ask(Request("GET", path, path))
        assert status == 200, body
        content = json.loads(body)
        assert isinstance(content, dict)
        return content

    def azure_workspace(self) -> str:
        """The path of the workspace `default` as Azure writes it."""
        workspace = self.get("/v1/workspaces/default")
        return (
            f"/subscriptions/{workspace['subscription_id']}/resourceGroups/"
            f"{workspace['resource_group']}/providers/Microsoft.MachineLearningServices/"
            "workspaces/default"
        )


@contextmanager
def running(home: Path) -> Iterator[Server]:
    words = ["--home", str(home), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "torchyard.server", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TORCHYARD_HOME": str(home)},
        start_new_session=True,
    )
    try:
        file = home / "server.json"
        deadline = time.monotonic() + START_S
        while not file.exists():
            assert process.poll() is None and time.monotonic() < deadline, "no server"
            time.sleep(0.05)
        address, token = json.loads(file.read_text())["url"], (home / "token").read_text().strip()
        with closing(Server(address, token)) as server:
            yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Watch:
    """Seconds that `/health` took, and the field that was sent when it took longest."""

    def __init__(self) -> None:
        self.field = ""
        self.times_s: list[float] = []
        self.longest_s = 0.0
        self.longest_field = ""
        self._stopped = threading.Event()

    def follow(self, host: str) -> None:
        connection = http.client.HTTPConnection(host, timeout=LONGEST_S * 2)
        while not self._stopped.is_set():
            before, started = self.field, time.monotonic()
            connection.request("GET", "/health")
            connection.getresponse().read()
            took_s = time.monotonic() - started
            self.times_s.append(took_s)
            if took_s > self.longest_s:
                self.longest_s, self.longest_field = took_s, before or self.field
            self._stopped.wait(_PAUSE_S)
        connection.close()

    def stop(self) -> None:
        self._stopped.set()


@contextmanager
def watched(server: Server) -> Iterator[Watch]:
    watch = Watch()
    thread = threading.Thread(target=watch.follow, args=(server.host,))
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()
