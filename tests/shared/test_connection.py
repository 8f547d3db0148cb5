"""HTTP to the server: what a response means, and what a broken one means."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from torchyard.shared.connection import (
    AttemptOver,
    Connection,
    Refused,
    ServerFailed,
    Unreachable,
)
from torchyard.shared.server_address import ServerAddress
from worker.stub_server import StubServer, running


@pytest.fixture
def server() -> Iterator[StubServer]:
    with running() as stub:
        yield stub


@contextmanager
def _responding(response: bytes, requests: list[bytes] | None = None) -> Iterator[str]:
    """A server that reads the beginning of one request, writes these bytes and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def respond() -> None:
            connection, _ = listener.accept()
            with connection:
                request = connection.recv(65536)
                connection.sendall(response)
                connection.shutdown(socket.SHUT_WR)
                while block := connection.recv(65536):
                    request += block
                if requests is not None:
                    requests.append(request)

        thread = threading.Thread(target=respond)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def _connection(url: str) -> Connection:
    return Connection.of_attempt(ServerAddress(url), "token", "a")


def test_a_response_that_is_cut_off_means_an_unreachable_server() -> None:
    with _responding(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n") as url:
        with pytest.raises(OSError, match="cut off"):
            _connection(url).call("GET", "/control")


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(server: StubServer) -> None:
    connection = _connection(server.url)
    connection.call("GET", "/control")
    server.stop()
    server.start()
    # The kept connection is gone; the server is there.
    assert connection.call("GET", "/control") is not None
    connection.close()


def test_nobody_listening_means_an_unreachable_server() -> None:
    with pytest.raises(Unreachable):
        _connection("http://127.0.0.1:9").call("GET", "/control")


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_a_redirect_is_neither_followed_nor_success(body: bytes) -> None:
    head = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: %d\r\n\r\n"
    with _responding(head % len(body) + body) as url:
        connection = _connection(url)
        with pytest.raises(OSError, match="not a torchyard server's response: 302"):
            connection.call("GET", "/control")
        connection.close()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, AttemptOver),
        (410, AttemptOver),
        (404, Refused),
        (429, OSError),
        (500, ServerFailed),
        (503, OSError),
        (507, OSError),
    ],
)
def test_a_status_has_one_meaning(status: int, error: type[Exception]) -> None:
    with _responding(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\n{}" % status) as url:
        connection = _connection(url)
        with pytest.raises(error) as raised:
            connection.call("GET", "/report")
        assert type(raised.value) is error
        connection.close()


def test_a_file_whose_end_is_missing_is_not_taken_for_a_whole_one() -> None:
    blocks: list[bytes] = []
    with _responding(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhalf of") as url:
        with pytest.raises(OSError, match="5 bytes are missing"):
            _connection(url).download("/blobs/x", blocks.append)
    assert b"".join(blocks) == b"half of"


def test_blocks_of_unknown_size_are_chunked_and_an_empty_one_ends_nothing() -> None:
    requests: list[bytes] = []
    with _responding(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", requests) as url:
        connection = _connection(url)
        connection.send("PUT", "/files/a", iter([b"ab", b"", b"cd"]))
        connection.close()
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body == b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_server_that_ends_while_one_connects_is_unreachable(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_connection(*_: object, **__: object) -> socket.socket:
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(socket, "create_connection", create_connection)
    with pytest.raises(Unreachable, match="Connection reset by peer"):
        _connection("http://127.0.0.1:9").call(method, "/control", {})
