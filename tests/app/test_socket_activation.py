"""The server takes the socket that systemd has opened for it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from app.test_listeners import CERTIFICATE, KEY
from torchyard.app import listeners
from torchyard.base.errors import InvalidInput


def _activated(port: int, arguments: list[str], home: Path) -> subprocess.Popen[bytes]:
    program = shutil.which("systemd-socket-activate")
    if program is None:
        if os.environ.get("TORCHYARD_TEST_SERVICES") == "required":
            pytest.fail("systemd-socket-activate is not here: `apt-get install systemd`")
        pytest.skip("systemd-socket-activate is not here")
    command = [program, "-l", f"0.0.0.0:{port}", "-E", f"TORCHYARD_HOME={home}"]
    command += ["-E", f"PATH={os.environ['PATH']}", sys.executable, "-m", "torchyard.server"]
    log = open(home.with_name("log"), "wb")
    process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)
    log.close()
    return process


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return int(free.getsockname()[1])


def _connects(port: int) -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.slow
def test_systemds_socket_is_served_with_tls(tmp_path: Path) -> None:
    certificate, key, home = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "home"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    port = _free_port()
    tls = ["--tls-cert", str(certificate), "--tls-key", str(key), "--jobs-as-server-user"]
    process = _activated(port, tls, home)
    try:
        # The first connection starts the server, and waits until it is there.
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=60)
        connection.sock = context.wrap_socket(_connects(port), server_hostname="localhost")
        connection.request("GET", "/health")
        response = connection.getresponse()
        health = json.loads(response.read())
        connection.close()
        assert (response.status, health["pid"]) == (200, process.pid)
        assert (home / "tls-port").read_text() == str(port)
        environ = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert b"LISTEN_FDS=1" in environ  # that is how it was told; see the next test for jobs
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert "torchyard" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_systemds_socket_beyond_loopback_needs_tls(tmp_path: Path) -> None:
    port = _free_port()
    process = _activated(port, [], tmp_path / "home")
    try:
        with closing(_connects(port)) as connection:
            connection.settimeout(60)
            assert process.wait(60) == 2
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert "listening at `0.0.0.0` without TLS" in (tmp_path / "log").read_text()


def test_no_process_that_the_server_starts_is_told_of_the_socket() -> None:
    environ = {"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "x", "PATH": "/bin"}
    assert listeners.inherited(environ) is None
    assert environ == {"PATH": "/bin"}


def test_several_sockets_are_refused() -> None:
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"}
    with pytest.raises(InvalidInput, match="passed 2 sockets"):
        listeners.inherited(environ)
