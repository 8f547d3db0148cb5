"""The listener with the server's own certificate, opened when it is first wanted."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from eventually import eventually
from torchyard import server
from torchyard.app import listeners
from torchyard.base import certificates
from torchyard.base.clock import Clock, FakeClock, SystemClock
from torchyard.base.errors import Unreachable


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


class Life:
    """One life of a server, from its start to its end."""

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        self.own = listeners.OwnTls(
            home,
            "127.0.0.1",
            clock or SystemClock(),
            lambda: server.listen(home, "127.0.0.1", None, "tls-port", 0),
        )
        self.plain = socket.create_server(("127.0.0.1", 0))
        secure = self.own.at_start()
        self.had_tls = secure is not None
        config = uvicorn.Config(hello, lifespan="off")
        self.server = listeners.Server(config, secure)
        self.own.server = self.server
        self._thread = threading.Thread(target=self.server.run, args=([self.plain],), daemon=True)
        self._thread.start()
        while not self.server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)

    def end(self) -> None:
        self.own.close()
        self.server.should_exit = True
        self._thread.join(60)
        self.plain.close()
        assert not self._thread.is_alive()


@contextmanager
def living(home: Path, clock: Clock | None = None) -> Iterator[Life]:
    life = Life(home, clock)
    try:
        yield life
    finally:
        life.end()


def scheme_at(way: listeners.TlsEndpoint, name: str = "127.0.0.1") -> str:
    """What the server says of a connection by a client that trusts its authority alone."""
    trusting = ssl.create_default_context(cadata=way.authority)
    asking = http.client.HTTPSConnection(name, way.port, timeout=60, context=trusting)
    try:
        asking.request("GET", "/")
        return asking.getresponse().read().decode()
    finally:
        asking.close()


def test_the_listener_opens_on_demand_and_keeps_its_port(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        assert not life.had_tls and not certificates.is_made(tmp_path)
        assert life.own.current() is None
        way = life.own.way("127.0.0.1")
        assert scheme_at(way) == scheme_at(way, "localhost") == "https"
        assert life.own.way("127.0.0.1") == way == life.own.current()
    with living(tmp_path) as again:
        assert again.had_tls
        assert scheme_at(way) == "https"
        assert again.own.way("localhost").port == way.port


def test_many_requests_at_once_open_one_listener(tmp_path: Path) -> None:
    with living(tmp_path) as life:
        endpoints: list[listeners.TlsEndpoint] = []
        threads = [
            threading.Thread(target=lambda: endpoints.append(life.own.way("localhost")))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(endpoints) == 6 and len(set(endpoints)) == 1
        assert scheme_at(endpoints[0]) == "https"


def test_it_is_renewed_while_it_runs(tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(timezone.utc) - timedelta(days=390))
    with living(tmp_path, clock) as life:
        way = life.own.way("127.0.0.1")
        old = certificates.read_stored(tmp_path)
        assert old is not None and life.own.way("127.0.0.1") == way
        clock.advance(timedelta(days=390).total_seconds())
        renewed = life.own.way("127.0.0.1")
        stored = certificates.read_stored(tmp_path)
        assert stored is not None and stored.ends_at > old.ends_at
        assert renewed == way  # the same authority: nobody has to trust anything again
        assert _ends(way) == stored.ends_at.replace(microsecond=0)


def _ends(way: listeners.TlsEndpoint) -> datetime:
    trusting = ssl.create_default_context(cadata=way.authority)
    with (
        socket.create_connection(("127.0.0.1", way.port), timeout=60) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        certificate = secure.getpeercert()
    assert certificate is not None
    seconds = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    return datetime.fromtimestamp(seconds, timezone.utc)


def test_an_expired_certificate_is_renewed_after_the_start(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc)
    over = certificates.ensure(tmp_path, [], now - timedelta(days=500))
    with living(tmp_path) as life:
        assert life.had_tls
        eventually(lambda: certificates.read_stored(tmp_path) != over, "another certificate")
        stored = certificates.read_stored(tmp_path)
        assert stored is not None and stored.ends_at > now
        assert scheme_at(life.own.way("localhost")) == "https"


def test_a_damaged_file_does_not_keep_the_server_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = certificates.ensure(tmp_path, [], datetime.now(timezone.utc))
    first_line = made.file.read_text().splitlines()[0]
    made.file.write_text(f"{first_line}\nnothing\n")
    with living(tmp_path) as life:
        assert not life.had_tls and "creating a new one" in caplog.text
        assert scheme_at(life.own.way("localhost")) == "https"


def test_a_server_that_has_not_started_opens_nothing(tmp_path: Path) -> None:
    tls = listeners.OwnTls(
        tmp_path,
        "127.0.0.1",
        SystemClock(),
        lambda: server.listen(tmp_path, "127.0.0.1", None, "tls-port", 0),
    )
    tls.server = listeners.Server(uvicorn.Config(hello))
    with pytest.raises(Unreachable, match="starting or stopping"):
        tls.way("localhost")
    tls.close()


@contextmanager
def stranger(port: int, tls: ssl.SSLContext | None) -> Iterator[list[bytes]]:
    """A program that listens at a port of loopback and keeps what one client sends to it."""
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                received.append(connection.recv(65536))

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield received
        thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("with_tls", [True, False])
def test_a_program_that_took_the_port_gets_no_token(
    tmp_path: Path, with_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with living(tmp_path) as life:
        way = life.own.way("127.0.0.1")
    context = None
    if with_tls:
        (tmp_path / "other").mkdir(0o700)
        issued = certificates.ensure(tmp_path / "other", ["127.0.0.1"], datetime.now(timezone.utc))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.file)
    with stranger(way.port, context) as received, living(tmp_path) as again:
        port = again.own.way("127.0.0.1").port
        assert port != way.port
        assert f"port {way.port} of `127.0.0.1` is taken; using {port} instead" in caplog.text
        # What `yard client-env` printed: the old port, the home's authority, the token.
        trusting = ssl.create_default_context(cadata=way.authority)
        client = http.client.HTTPSConnection("127.0.0.1", way.port, timeout=60, context=trusting)
        with pytest.raises(ssl.SSLError if with_tls else OSError):
            client.request("GET", "/msi/token", headers={"secret": "yard_p_" + "t" * 43})
        client.close()
    assert b"yard_p_" not in b"".join(received)
