"""A real `yard-server` with TLS, as a service runs it, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.test_listeners import CERTIFICATE, KEY

_START_LIMIT_S = 90.0


@dataclass(frozen=True)
class Reply:
    status: int
    body: Any
    headers: http.client.HTTPMessage


@dataclass(frozen=True)
class ServedProcess:
    """`url` is that of its TLS listener, `plain_url` this machine's own."""

    home: Path
    certificate: Path
    url: str
    plain_url: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def owner(self) -> str:
        return (self.home / "token").read_text().strip()

    def ask(
        self,
        method: str,
        path: str,
        token: str = "",
        json_body: Any = None,
        more: Mapping[str, str] | None = None,
    ) -> Reply:
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        context = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=90)
        headers = {"Content-Type": "application/json", **(more or {})}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        body = None if json_body is None else json.dumps(json_body)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        is_json = "json" in response.headers.get("content-type", "")
        return Reply(response.status, json.loads(text) if is_json else text, response.headers)

    def ok(self, method: str, path: str, token: str = "", json_body: Any = None) -> Any:
        reply = self.ask(method, path, token, json_body)
        assert reply.status in (200, 201), (path, reply.status, reply.body)
        return reply.body

    def yard(self, *arguments: str, home: Path | None = None) -> str:
        """What `yard` prints, as the owner of the home or with a home of one's own."""
        environ = {**os.environ, "TORCHYARD_HOME": str(home or self.home)}
        done = subprocess.run(
            [sys.executable, "-m", "torchyard.cli.main", *arguments],
            capture_output=True,
            text=True,
            env=environ,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def served_process(folder: Path, options: Sequence[str] = ()) -> Iterator[ServedProcess]:
    home, log = folder / "home", folder / "log"
    certificate, key = folder / "cert.pem", folder / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    command = [sys.executable, "-m", "torchyard.server", "--home", str(home)]
    command += ["--host", "0.0.0.0", "--port", "0", "--jobs-as-server-user"]
    command += ["--tls-cert", str(certificate), "--tls-key", str(key), *options]
    with open(log, "wb") as opened:
        process = subprocess.Popen(
            command,
            stdout=opened,
            stderr=opened,
            env={**os.environ, "TORCHYARD_HOME": str(home)},
        )
    try:
        deadline = time.monotonic() + _START_LIMIT_S
        while not (home / "server.json").exists():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        url = f"https://localhost:{(home / 'tls-port').read_text()}"
        plain_url = json.loads((home / "server.json").read_text())["url"]
        served = ServedProcess(home, certificate, url, plain_url, log, process)
        while True:
            try:
                served.ask("GET", "/livez")
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
        yield served
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)
