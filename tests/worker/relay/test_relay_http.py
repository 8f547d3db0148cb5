"""HTTP with scripts, byte by byte."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from torchyard.worker.relay.relay import Relay
from worker.relays import RUNS, TOKEN, MlflowStub, Script, relay_of, steps

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def relay(server: MlflowStub, tmp_path: Path) -> Iterator[Relay]:
    made = relay_of(server, tmp_path)
    yield made
    made.finish(5.0)


@pytest.fixture
def url(relay: Relay) -> str:
    return relay.start()


@pytest.fixture
def wire(url: str) -> Iterator[socket.socket]:
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as made:
        yield made


def metric(step: int, headers: str = "", version: str = "HTTP/1.1") -> bytes:
    fields = {"run_id": "job-1", "key": "loss", "value": 1, "timestamp": 7, "step": step}
    body = json.dumps(fields)
    return (
        f"POST {RUNS}/log-metric {version}\r\nHost: x\r\nAUTHORIZATION: Bearer {TOKEN}\r\n"
        f"Content-Length: {len(body)}\r\n{headers}\r\n{body}"
    ).encode()


def read(wire: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size and (more := wire.recv(size - len(received))):
        received += more
    return received


def to_the_end(wire: socket.socket) -> bytes:
    return read(wire, 1 << 20)


def test_requests_in_pieces_and_in_one(
    server: MlflowStub, relay: Relay, wire: socket.socket
) -> None:
    for block in metric(0):
        wire.sendall(bytes([block]))
    assert read(wire, len(OK)) == OK
    wire.sendall(metric(1) + metric(2) + metric(3)[:-5])
    assert read(wire, 2 * len(OK)) == OK * 2
    wire.sendall(metric(3)[-5:])
    assert read(wire, len(OK)) == OK
    assert relay.finish(60.0)
    assert steps(server) == [0, 1, 2, 3]


def test_requests_behind_one_that_takes_long(
    server: MlflowStub, relay: Relay, wire: socket.socket
) -> None:
    server.answers["/x"] = (200, b"slow")
    get = f"GET /x HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    wire.sendall(metric(0) + get + metric(1) + get)
    wire.sendall(metric(2, "Connection: close\r\n"))
    answers = to_the_end(wire)
    assert answers.count(b"{}") == 3 and answers.count(b"slow") == 2
    assert answers.index(b"{}") < answers.index(b"slow") < answers.rindex(b"{}")
    assert relay.finish(60.0)
    assert steps(server) == [0, 1, 2]


def test_a_body_in_chunks_and_one_that_is_announced(
    server: MlflowStub, relay: Relay, wire: socket.socket
) -> None:
    head, _, body = metric(0).partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    wire.sendall(b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + b"\r\n\r\n")
    for piece in (body[:7], body[7:]):
        wire.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
    wire.sendall(b"0\r\n\r\n")
    assert read(wire, len(OK)) == OK

    head, _, body = metric(1, "Expect: 100-continue\r\n").partition(b"\r\n\r\n")
    wire.sendall(head + b"\r\n\r\n")
    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    assert read(wire, len(go_on)) == go_on
    wire.sendall(body)
    assert read(wire, len(OK)) == OK
    assert relay.finish(60.0)
    assert steps(server) == [0, 1]


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_a_connection_ends_when_the_script_says_so(version: str, wire: socket.socket) -> None:
    wire.sendall(metric(0, "Connection: close\r\n" if version == "HTTP/1.1" else "", version))
    assert to_the_end(wire).endswith(b"Connection: close\r\n\r\n{}")


@pytest.mark.parametrize(
    "words",
    [
        b"hello\r\n\r\n",
        b"POST /x HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"x" * (256 * 1024 + 1),
    ],
)
def test_what_is_no_request_is_refused(words: bytes, url: str, wire: socket.socket) -> None:
    wire.sendall(words)
    assert to_the_end(wire).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    with Script(url) as script:
        script.metric(1)


def test_a_script_that_goes_away_takes_nobody_along(
    server: MlflowStub, relay: Relay, url: str, wire: socket.socket
) -> None:
    wire.sendall(metric(0)[:-3])
    wire.close()
    with Script(url) as script:
        script.metric(1)
    assert relay.finish(60.0)
    assert steps(server) == [1]


def test_an_early_refusal_ends_the_connection(
    server: MlflowStub, relay: Relay, wire: socket.socket
) -> None:
    # Without the token nothing of the body is read, and none of it is taken for a request.
    wire.sendall(metric(0).replace(TOKEN.encode(), b"other") + metric(1))
    answer = to_the_end(wire)
    assert answer.startswith(b"HTTP/1.1 401") and answer.count(b"HTTP/1.1") == 1
    assert relay.finish(60.0)
    assert server.history == {}
