"""Who may reach the server, and TLS beside the plain listener."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from torchyard import server
from torchyard.app import listeners
from torchyard.base.errors import InvalidInput

# For tests alone: of no host, made with `openssl req -x509`.
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUCR3u14FVLUTaoUKt1bNqI+6dYi0wCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTA5NDIxN1oYDzIxMjYxMDI4
MDk0MjE3WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQJzZM0Iu7SykoUah7lsOIRgmEknSXfAe9TiEDxrFDCVcQDBLV/vI6M
DAZ5RVFzqLVhSN2H/n3Fu7wYymq/ZYBCo28wbTAdBgNVHQ4EFgQUYe83BVz6pOB4
+x7jDzdLyotQshswHwYDVR0jBBgwFoAUYe83BVz6pOB4+x7jDzdLyotQshswDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgedlPdp0LhBWtcu7EIsr6vtQgP4zWJNVydmeqpLwAIVsCIG1f
Khj0MA6QJrrM1Es6PBehbQgy7jmK4KUNATf6SZz9
-----END CERTIFICATE-----
"""
KEY = """-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgY0NYwwTlkft1nWOL
DncF+MVzl+hUfPnC3tkBAbByt6ihRANCAAQJzZM0Iu7SykoUah7lsOIRgmEknSXf
Ae9TiEDxrFDCVcQDBLV/vI6MDAZ5RVFzqLVhSN2H/n3Fu7wYymq/ZYBC
-----END PRIVATE KEY-----
"""


@pytest.fixture
def tls(tmp_path: Path) -> listeners.Tls:
    made = listeners.Tls(tmp_path / "cert.pem", tmp_path / "key.pem")
    made.certificate.write_text(CERTIFICATE)
    made.key.write_text(KEY)
    return made


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert listeners.tls_of(host, None, None, False) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gpu-box", ""])
def test_other_addresses_need_tls_or_insecure(host: str, tls: listeners.Tls) -> None:
    with pytest.raises(InvalidInput, match="without TLS") as caught:
        listeners.tls_of(host, None, None, False)
    assert "--tls-cert" in caught.value.hint and "--insecure" in caught.value.hint
    assert listeners.tls_of(host, None, None, True) is None
    assert listeners.tls_of(host, tls.certificate, tls.key, False) == tls


def test_a_certificate_needs_its_key(tls: listeners.Tls) -> None:
    with pytest.raises(InvalidInput, match="needs a certificate and its key"):
        listeners.tls_of("0.0.0.0", tls.certificate, None, True)
    assert listeners.context_of(tls).minimum_version >= ssl.TLSVersion.TLSv1_2
    tls.key.write_text("no key")
    with pytest.raises(InvalidInput, match="can't be used for TLS"):
        listeners.context_of(tls)
    tls.key.unlink()
    with pytest.raises(InvalidInput, match="No such file"):
        listeners.context_of(tls)


@pytest.mark.slow
def test_the_command_reports_it_and_exits_with_2(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchyard.server", "--home", tmp_path, "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: listening at `0.0.0.0` without TLS")
    assert "\nhint: give `--tls-cert`" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_tls_for_others_and_plain_for_this_machine(tmp_path: Path, tls: listeners.Tls) -> None:
    home = tmp_path / "home"
    command: list[str | Path] = [sys.executable, "-m", "torchyard.server", "--home", home]
    command += ["--host", "0.0.0.0", "--port", "0", "--jobs-as-server-user"]
    command += ["--tls-cert", tls.certificate, "--tls-key", tls.key]
    server = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TORCHYARD_HOME": str(home)},
    )
    try:
        deadline = time.monotonic() + 60
        while not (home / "server.json").exists() or not (home / "tls-port").exists():
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        url = json.loads((home / "server.json").read_text())["url"]
        assert url.startswith("http://127.0.0.1:")
        plain = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        assert _status(plain) == 200
        assert _status(plain, host="evil.example") == 403
        context = ssl.create_default_context(cafile=str(tls.certificate))
        secure_port = int((home / "tls-port").read_text())
        secure = http.client.HTTPSConnection("localhost", secure_port, context=context, timeout=60)
        assert _status(secure) == 200
        # A name is what the certificate is for.
        assert _status(secure, host="gpu-box.example") == 200
        _silent_client_is_closed(secure_port)
        _long_head(int(url.rpartition(":")[2]))
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) is not None


def _status(connection: http.client.HTTPConnection, host: str = "localhost") -> int:
    connection.request("GET", "/health", headers={"Host": host})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def _silent_client_is_closed(port: int) -> None:
    """Who begins no handshake holds the connection for ten seconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        assert connection.recv(1) == b""


def _long_head(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(9):
            connection.sendall(b"X-%d: %b\r\n" % (number, b"x" * 8000))
        connection.sendall(b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 431 ")


def test_a_port_that_another_takes_between_bind_and_listen_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux lets two sockets bind one port while neither listens; the second may not listen."""
    rival = socket.socket()
    rival.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    rival.bind(("127.0.0.1", 0))
    port = rival.getsockname()[1]

    class Slow(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            if address[1] == port:
                rival.listen()

    monkeypatch.setattr(socket, "socket", Slow)
    with rival, server.listen(tmp_path, "127.0.0.1", None, default=port) as listener:
        assert listener.getsockname()[1] != port
