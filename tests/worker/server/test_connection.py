"""The worker's line to the server."""

from __future__ import annotations

import socket
import threading

import pytest

from torchyard.worker.server.connection import Link


def test_an_answer_that_is_cut_off_is_a_lost_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        link = Link(f"http://127.0.0.1:{listener.getsockname()[1]}", "token", "a")
        with pytest.raises(OSError, match="cut off"):
            link.call("GET", "/orders")
        thread.join()


def test_a_connection_that_the_server_closed_meanwhile_is_no_lost_server(server):
    link = Link(server.url, "token", "a")
    link.call("GET", "/orders")
    server.stop()
    server.start()
    # It is the kept connection that is gone; the server is there.
    assert link.call("GET", "/orders") is not None
    link.close()
